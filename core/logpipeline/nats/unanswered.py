"""Parts of JetStream that no server answers for, beside others that are answered for: a stream
without a leader, or with one whose disk is full, or whose only server is down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from logpipeline.nats.connection import NoResponders, OutcomeUnknown
from logpipeline.nats.jetstream import UNAVAILABLE, ApiError

Answer = TypeVar("Answer")


def stream_part(stream: str) -> str:
    """Return the name of the part *stream*."""
    return f"stream {stream}"


def bucket_part(bucket: str) -> str:
    """Return the name of the part that is the key-value *bucket*."""
    return f"bucket {bucket}"


class Unanswered:
    """The reasons why parts are not answered for, by the names of these parts."""

    def __init__(self) -> None:
        self._errors: dict[str, Exception] = {}

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons as text."""
        return {part: str(error) for part, error in self._errors.items()}

    async def ask(
        self, part: str, request: Callable[[], Awaitable[Answer]], otherwise: Answer
    ) -> Answer:
        """Return what *request*, which asks *part*, returns; *otherwise* if it is not answered. A
        part that did not answer is not asked again: each time would take as long.

        Raises:
            NotSent: there is no connection, or the part does not exist.
            ApiError: JetStream refused it.
        """
        if part in self._errors:
            return otherwise
        try:
            return await request()
        except (OutcomeUnknown, NoResponders) as error:
            self._errors[part] = error
        except ApiError as error:
            if error.code != UNAVAILABLE:
                raise
            self._errors[part] = error
        return otherwise

    def check(self, parts: Sequence[str]) -> None:
        """Return if one of *parts* was answered for.

        Raises:
            OutcomeUnknown, NoResponders, ApiError: no server answers at all.
        """
        errors = [self._errors[part] for part in parts if part in self._errors]
        if len(errors) == len(parts):
            raise errors[0]


class AllAnswered(Unanswered):
    """Each part has to answer."""

    async def ask(
        self, part: str, request: Callable[[], Awaitable[Answer]], otherwise: Answer
    ) -> Answer:
        """Return what *request* returns.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        return await request()
