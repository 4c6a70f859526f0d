"""Snapshots of sources in a stream that has hardly any room."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fuzzing.parsers import EPOCH
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.connection import Connection, NatsOptions, NotSent
from logpipeline.nats.jetstream import API_TIMEOUT_S, ApiError, JetStream, PubAck
from logpipeline.records import EpochRecord
from logpipeline_collector.snapshot_schedule import write_snapshot
from logpipeline_collector.snapshots import Snapshot, SnapshotStore
from waiting import WITHIN_S

STREAM, SUBJECT = "SNAPSHOTS", "snapshots.main.p0"
SNAPSHOT_BYTES = 200_000


class CutOff(JetStream):
    """A connection that ends behind the first message."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float = API_TIMEOUT_S,
    ) -> PubAck:
        """Publish, and end."""
        await super().publish(subject, payload, headers, timeout_s=timeout_s)
        raise NotSent("cut off on purpose")


class Held:
    """The record of an owner that is never fenced."""

    def __init__(self, record: EpochRecord) -> None:
        self.record = record

    async def point_to_snapshot(self, snapshot: int, at: int) -> None:
        """Note it."""
        self.record = replace(self.record, snapshot=snapshot, snapshot_at=at)


def store_of(js: JetStream) -> SnapshotStore:
    return SnapshotStore(js, stream=STREAM, subject=SUBJECT, partition=0)


async def written(store: SnapshotStore, held: Held) -> str | None:
    """Let the owner of *held* write a snapshot, and return why it did not work."""

    async def snapshot(_: Executor) -> Snapshot:
        record = held.record
        return Snapshot(record.position, {}, os.urandom(SNAPSHOT_BYTES), record)

    owned: Any = SimpleNamespace(
        partition=0,
        epoch=held.record.epoch,
        held=held,
        snapshot=snapshot,
        note_snapshot=lambda _: None,
    )
    with ThreadPoolExecutor(1) as executor:
        return await write_snapshot(store, owned, executor)


async def test_what_owners_left_unfinished_takes_no_room_for_good(
    nats_server: EmbeddedServer,
) -> None:
    """The stream has room for two. Owners that end while they write leave their parts there, until
    the next one writes; and the last whole snapshot stays the one that is found.
    """
    connection = Connection(NatsOptions(servers=(nats_server.url,)))
    await connection.start(patience_s=WITHIN_S)
    try:
        js = JetStream(connection)
        await js.call(
            f"STREAM.CREATE.{STREAM}",
            {
                "name": STREAM,
                "subjects": ["snapshots.>"],
                "max_bytes": 5 * SNAPSHOT_BYTES // 2,
                "discard": "new",
                "allow_direct": True,
            },
        )
        held = Held(replace(EPOCH, epoch=1, snapshot=0))
        assert await written(store_of(js), held) is None
        for epoch in (2, 3, 4):
            with suppress(NotSent, ApiError):
                await store_of(CutOff(connection)).write(
                    Snapshot(
                        EPOCH.position, {}, os.urandom(SNAPSHOT_BYTES), replace(EPOCH, epoch=epoch)
                    )
                )
        found = await store_of(js).last_record()

        assert found is not None
        assert found.epoch == 1
        held.record = replace(held.record, epoch=5)
        store = store_of(js)
        assert await written(store, held) is None
        # The room for a third one is that of the first.
        assert [await written(store, held), await written(store, held)].count(None) >= 1
        assert await store.is_there(held.record.snapshot)
        newest = await store.last_record()
        assert newest is not None
        assert (newest.epoch, newest.snapshot) == (5, held.record.snapshot)
    finally:
        await connection.close()
