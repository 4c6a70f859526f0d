"""A JetStream key-value bucket: get, put, compare-and-swap. Readers poll or listen, so that no
consumer is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.nats.connection import Listener
from logpipeline.nats.jetstream import (
    WRONG_LAST_SEQUENCE,
    WRONG_LAST_SEQUENCE_CONSTANT,
    ApiError,
    JetStream,
    StoredMessage,
    header_fields,
)
from logpipeline.nats.session import Sink
from logpipeline.subjects import key_value_subject

_EXPECTED = "Nats-Expected-Last-Subject-Sequence"


class Conflict(Exception):
    """The key was written since the revision that was expected."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value and its *revision*, the sequence in the bucket's stream; *time_ns* is the
    server's. *headers* are as the server sends them.
    """

    value: bytes
    revision: int
    time_ns: int
    headers: bytes = b""

    def header(self, name: str) -> str:
        """Return the header *name*, empty where there is none."""
        return header_fields(self.headers).get(name, "")


class Bucket:
    """One bucket; its stream is ``KV_<name>``."""

    def __init__(self, js: JetStream, name: str) -> None:
        self.name = name
        self.stream = f"KV_{name}"
        self._js = js

    async def get(self, key: str) -> Entry | None:
        """Return the key's entry, or None where it was never written or was deleted.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        stored = await self._js.last_message(self.stream, key_value_subject(self.name, key))
        if stored is None or _is_marker(stored):
            return None
        return Entry(stored.data, stored.sequence, stored.time_ns, stored.headers)

    async def last_revision(self) -> int:
        """Return the revision of the last write to any key, 0 where there was none.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the bucket could not be read.
        """
        info = await self._js.stream_info(self.stream)
        return int(info["state"]["last_seq"]) if info is not None else 0

    async def put(self, key: str, value: bytes) -> int:
        """Write the key whatever it holds, and return its revision."""
        return (await self._js.publish(key_value_subject(self.name, key), value)).sequence

    async def swap(
        self, key: str, value: bytes, *, revision: int, headers: dict[str, str] | None = None
    ) -> int:
        """Write the key, with *headers*, if its revision still is *revision* (0: it does not
        exist, or was deleted), and return the new one.

        Raises:
            Conflict: it is not; nothing was written.
            OutcomeUnknown: read the key again and compare.
        """
        try:
            return await self._swap(key, value, revision, headers)
        except Conflict:
            # Other programs, as `nats kv del`, leave a marker where the key was.
            subject = key_value_subject(self.name, key)
            stored = None if revision else await self._js.last_message(self.stream, subject)
            if stored is None or not _is_marker(stored):
                raise
            return await self._swap(key, value, stored.sequence, headers)

    async def _swap(
        self, key: str, value: bytes, revision: int, headers: dict[str, str] | None
    ) -> int:
        try:
            ack = await self._js.publish(
                key_value_subject(self.name, key),
                value,
                {_EXPECTED: str(revision)} | (headers or {}),
            )
        except ApiError as error:
            if error.err_code in (WRONG_LAST_SEQUENCE, WRONG_LAST_SEQUENCE_CONSTANT):
                raise Conflict(f"{self.name}/{key} is no longer at revision {revision}") from error
            raise
        return ack.sequence

    async def erase(self, key: str) -> None:
        """Remove the key without a trace."""
        subject = key_value_subject(self.name, key)
        await self._js.call(f"STREAM.PURGE.{self.stream}", {"filter": subject})

    async def listen(self, key: str, hint: Sink) -> Listener:
        """Call *hint* when *key* is written (which may end in ``>``); it may come before the
        value can be read.
        """
        return await self._js.connection.listen(key_value_subject(self.name, key), hint)

    async def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        await self._js.connection.unlisten(listener)


def _is_marker(stored: StoredMessage) -> bool:
    return b"KV-Operation:" in stored.headers


def bucket_stream_config(
    name: str, *, replicas: int, storage: str, max_bytes: int
) -> dict[str, object]:
    """Return the configuration of the bucket's stream, as ``nats kv add`` would make it, one value
    a key.
    """
    return {
        "name": f"KV_{name}",
        "subjects": [key_value_subject(name, ">")],
        "retention": "limits",
        "storage": storage,
        "num_replicas": replicas,
        "max_msgs_per_subject": 1,
        "max_bytes": max_bytes,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
        "allow_direct": True,
        "duplicate_window": 120_000_000_000,
    }
