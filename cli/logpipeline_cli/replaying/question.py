"""What of the streams is asked for, and what of that is still there. No clock, no connection."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from logpipeline.nats.jetstream import rfc3339_of, time_ns_of
from logpipeline_cli.errors import CliError
from logpipeline_collector.archive.naming import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which messages, by the server's time or by sequence, of which hosts and containers; None
    means any. Times are in nanoseconds since 1970.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    host: str | None = None
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    follow: bool = False
    partial: bool = False

    def __post_init__(self) -> None:
        if self.since_ns is not None and self.from_seq is not None:
            raise CliError("--since and --from-seq say the same thing: give one of them")
        if self.until_ns is not None and self.to_seq is not None:
            raise CliError("--until and --to-seq say the same thing: give one of them")
        if self._is_backwards(self.since_ns, self.until_ns):
            raise CliError("--since is after --until: nothing lies between them")
        if self._is_backwards(self.from_seq, self.to_seq):
            raise CliError("--from-seq is after --to-seq: nothing lies between them")

    @property
    def has_sequences(self) -> bool:
        """Whether it is about one stream's own numbers."""
        return self.from_seq is not None or self.to_seq is not None

    def wants(self, origin: Origin) -> bool:
        """Return whether lines of *origin* are asked for."""
        return (
            self.namespace in (None, origin.namespace)
            and self.pod in (None, origin.pod)
            and self.container in (None, origin.container)
        )

    @staticmethod
    def _is_backwards(first: int | None, last: int | None) -> bool:
        return first is not None and last is not None and first > last


@dataclass(frozen=True, slots=True)
class Span:
    """What is to be read of one stream, *created* then: from the sequence *first*, or from
    *since_ns*, to the sequence *last* (None: for ever) or the time *until_ns*.
    """

    stream: str
    created: str
    first: int
    since_ns: int | None
    last: int | None
    until_ns: int | None

    def is_before(self, sequence: int, time_ns: int) -> bool:
        """Return whether a message stands before what is to be read."""
        return sequence < self.first or (self.since_ns is not None and time_ns < self.since_ns)

    def encode(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def span_of(question: Question, info: dict[str, Any]) -> Span:
    """Return what *question* means for the stream of *info*, as the server told it.

    Raises:
        CliError: a part of it is gone, and only all of it was asked for; or it is yet to come.
    """
    stream, state = str(info["config"]["name"]), info["state"]
    there, end = int(state["first_seq"]), int(state["last_seq"])
    if not question.follow:
        for option, number in (("--from-seq", question.from_seq), ("--to-seq", question.to_seq)):
            if number is not None and number > end:
                raise CliError(f"{option} {number} is beyond the end: {stream} ends at {end}")
    if not question.partial and (gone := _gone(question, state)):
        left = f"{there} to {end}, since {state['first_ts']}" if there <= end else "nothing"
        raise CliError(
            f"{stream} has no longer {gone}; it still has {left}: give --partial to be content "
            "with that"
        )
    last = question.to_seq or (None if question.follow else end)
    return Span(
        stream,
        str(info["created"]),
        max(question.from_seq or 1, there),
        question.since_ns,
        last,
        question.until_ns,
    )


def _gone(question: Question, state: dict[str, Any]) -> str:
    """Return what was asked for by name and is gone, or an empty text."""
    there = int(state["first_seq"])
    if question.from_seq is not None and question.from_seq < there:
        return f"what begins at sequence {question.from_seq}"
    if question.to_seq is not None and question.to_seq < there:
        return f"what ends at sequence {question.to_seq}"
    # Whether something had been there at that time nobody knows; where nothing ever went, all is.
    is_trimmed = there > 1
    if question.since_ns is not None and is_trimmed:
        since = state["first_ts"] if state["messages"] else state["last_ts"]
        if question.since_ns < time_ns_of(since):
            return f"all since {rfc3339_of(question.since_ns)}"
    return ""
