"""The command `logpipeline` as a user may run it who is not root: permissions of files and folders
hold for it, though tests may run as root, for whom they do not.
"""

from __future__ import annotations

import ctypes
import os
import sys

from logpipeline_cli import main as command

TARGET = "faults.unprivileged:main"
# Of `capset`: the version with two words for each set, for the calling thread.
_VERSION = 0x20080522
_WORDS = 6


def main() -> int:
    """Give up every privilege that goes beyond those of the files' owner, and run the command."""
    if sys.platform == "linux" and os.geteuid() == 0:
        # Not another user: the folders above a test's own, and those of the programs, may be
        # root's alone.
        header = (ctypes.c_uint32 * 2)(_VERSION, 0)
        if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * _WORDS)()):
            raise OSError(ctypes.get_errno(), "the privileges of root stay")
    return command.main() or 0
