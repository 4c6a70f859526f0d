"""A state bucket in memory, for answers that get lost at a moment that no server can be made to
choose.
"""

from __future__ import annotations

from typing import cast

from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import NotSent, OutcomeUnknown


class FakeBucket:
    """The state bucket. So many of the next writes fail: *unsent* ones did not leave the client,
    *lost_writes* did not arrive, and *lost_answers* are stored, which their writers are not told.
    So many reads are *unread*; the next ones find what is *shown*, if anything is.
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
        """Return what is stored at *key*."""
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
