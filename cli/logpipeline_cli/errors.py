"""Turns the errors that a user or a network can cause into one message that says what to do."""

from __future__ import annotations


class CliError(Exception):
    """A command cannot do what was asked; the message says why and what to do."""


def explain(error: Exception) -> str | None:
    """Return the message for *error*, or None where only a bug can have caused it."""
    if isinstance(error, ExceptionGroup):
        # Tasks that ran side by side; one that a bug ended needs its traceback.
        messages = [explain(inner) for inner in error.exceptions]
        told = [message for message in messages if message is not None]
        return "\n".join(dict.fromkeys(told)) if len(told) == len(messages) else None
    # Imported only now: these modules cost more than the whole rest of a command's start.
    from logpipeline.consuming.options import BadOption, ConsumeError
    from logpipeline.embedded import ServerFailed
    from logpipeline.nats.connection import ConnectFailed, NoResponders, NotSent, OutcomeUnknown
    from logpipeline.nats.jetstream import ApiError
    from logpipeline.quantity import QuantityError
    from logpipeline.records import BadRecord
    from logpipeline.spec import SpecError
    from logpipeline.subjects import BadHost
    from logpipeline_spark.errors import Refused

    if isinstance(error, NoResponders):
        return f"{error}; is JetStream enabled on this server?"
    if isinstance(error, NotSent | OutcomeUnknown):
        return f"the NATS server did not answer: {error}"
    if isinstance(
        error,
        CliError
        | ConsumeError
        | BadOption
        | ConnectFailed
        | ApiError
        | SpecError
        | QuantityError
        | ServerFailed
        | BadRecord
        | BadHost
        | Refused,
    ):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    return None
