"""Exit codes that scripts can use."""

from __future__ import annotations

EXIT_OK = 0
# Something failed, or a check found something; what, stands on standard error.
EXIT_FAILED = 1
# `plan`: there is something to change.
EXIT_CHANGES = 2
# The words of the command were wrong (EX_USAGE of sysexits.h).
EXIT_USAGE = 64
# Ended by Ctrl-C, as shells report it (128 + SIGINT).
EXIT_INTERRUPTED = 130
