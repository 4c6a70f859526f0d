"""Exit codes, and the messages for errors that a user or a network can cause."""

from __future__ import annotations

EXIT_OK = 0
# Something failed, or a check found a problem; standard error says what.
EXIT_FAILED = 1
# `plan`: there are changes to apply.
EXIT_CHANGES = 2
# The arguments were wrong (EX_USAGE of sysexits.h).
EXIT_USAGE = 64
# Ended by Ctrl-C, as shells report it (128 + SIGINT).
EXIT_INTERRUPTED = 130
# Whoever read standard output has closed it before all was written, as shells report it (128 +
# SIGPIPE): a check whose result nobody read has not passed.
EXIT_PIPE_CLOSED = 141


class CliError(Exception):
    """A command cannot do what was asked; the message says why and what to do."""


class UsageError(CliError):
    """The value of an argument is wrong; the message names the argument, and what to give."""


def is_usage(error: Exception) -> bool:
    """Return whether *error* is a mistake in the arguments."""
    if isinstance(error, OSError):
        # Nothing is imported for it: a process that may open no further file could not do that.
        return False
    from logpipeline.consuming.options import BadOption

    return isinstance(error, UsageError | BadOption)


def explain(error: Exception) -> str | None:
    """Return the message for *error*, or None where only a bug can have caused it."""
    if isinstance(error, ExceptionGroup):
        # Tasks that ran side by side; one that a bug ended needs its traceback.
        messages = [explain(inner) for inner in error.exceptions]
        explained = [message for message in messages if message is not None]
        return "\n".join(dict.fromkeys(explained)) if len(explained) == len(messages) else None
    if isinstance(error, OSError):
        # As above, nothing is imported for it.
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    # Imported only now: these modules cost more than all the rest of a command's start.
    from logpipeline.consuming.options import BadOption, ConsumeError
    from logpipeline.embedded import ServerFailed
    from logpipeline.layout import NoPipeline
    from logpipeline.nats.connection import (
        ConnectFailed,
        Denied,
        NoResponders,
        NotSent,
        OutcomeUnknown,
    )
    from logpipeline.nats.jetstream import ApiError, NoStream
    from logpipeline.plan.observe import JetStreamOff
    from logpipeline.quantity import QuantityError
    from logpipeline.records import BadRecord
    from logpipeline.spec import SpecError
    from logpipeline.subjects import BadHost
    from logpipeline_spark.errors import Refused

    if isinstance(error, NoStream):
        return f"{error}; run `logpipeline apply`"
    if isinstance(error, NoResponders):
        return f"{error}; is JetStream enabled on this server?"
    if isinstance(error, Denied):
        return str(error)
    if isinstance(error, NotSent | OutcomeUnknown):
        return f"the NATS server did not answer: {error}"
    if isinstance(
        error,
        CliError
        | ConsumeError
        | BadOption
        | ConnectFailed
        | JetStreamOff
        | NoPipeline
        | ApiError
        | SpecError
        | QuantityError
        | ServerFailed
        | BadRecord
        | BadHost
        | Refused,
    ):
        return str(error)
    return None
