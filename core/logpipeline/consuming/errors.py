"""What stops a reader; each message says what happened to which messages, and what to do."""

from __future__ import annotations


class ConsumeError(Exception):
    """The reader cannot go on; nothing is lost: what was not processed is still to be read."""


class ReaderBusy(ConsumeError):
    """Another reader has the consumer, or the state file."""


class StateForeign(ConsumeError):
    """The state is of another consumer, or of a stream that is no longer the one it was."""


class ConsumerGone(ConsumeError):
    """The consumer is not there (any more), or is not as it would have to be."""


class Stopped(ConsumeError):
    """A message could not be processed, and the reader was told to stop then."""


class ClaimLost(Exception):
    """Another member reads the partition now; what this one had in hand is not its own any more."""
