"""A state bucket in memory, for answers that get lost at a moment that no server can be made to
choose.
"""

from __future__ import annotations

from typing import cast

from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown


class FakeBucket:
    """The state bucket. A test sets how many of the next writes fail: *unsent* ones do not leave
    the client, *lost_writes* do not arrive, and *lost_answers* are stored without an answer to the
    writer. The next *unread* reads fail; those after them return the entries *shown*, one each,
    and then what is stored.
    """

    def __init__(self) -> None:
        self.values: dict[str, tuple[int, bytes]] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.writes = self.lost_answers = self.lost_writes = self.unsent = self.unread = 0
        self.shown: list[Entry | None] = []

    @property
    def bucket(self) -> Bucket:
        """Itself, as what it stands for."""
        return cast(Bucket, self)

    def entry(self, key: str) -> Entry | None:
        """Return the entry at *key*, or None where there is none."""
        revision, value = self.values.get(key, (0, b""))
        lines = [f"{name}: {text}" for name, text in self.headers.get(key, {}).items()]
        headers = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
        return Entry(value, revision, 0, headers) if revision else None

    async def get(self, key: str) -> Entry | None:
        """See `Bucket.get`."""
        if self.unread:
            self.unread -= 1
            raise NotSent("the server is away")
        return self.shown.pop(0) if self.shown else self.entry(key)

    async def put(self, key: str, value: bytes) -> int:
        """See `Bucket.put`."""
        revision, _ = self.values.get(key, (0, b""))
        return await self.swap(key, value, revision=revision)

    async def swap(
        self, key: str, value: bytes, *, revision: int, headers: dict[str, str] | None = None
    ) -> int:
        """See `Bucket.swap`."""
        self.writes += 1
        if self.unsent:
            self.unsent -= 1
            raise NotSent("the server is away")
        if self.lost_writes:
            self.lost_writes -= 1
            raise OutcomeUnknown("no answer")
        found = self.values.get(key, (0, b""))[0]
        if found != revision:
            raise Conflict(key)
        self.values[key], self.headers[key] = (revision + 1, value), headers or {}
        if self.lost_answers:
            self.lost_answers -= 1
            raise OutcomeUnknown("no answer")
        return revision + 1
