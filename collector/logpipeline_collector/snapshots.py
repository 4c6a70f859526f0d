"""Snapshots of the sources' positions, kept in JetStream. With one, a collector with another folder
goes on where the last owner stopped, and still recognises what comes twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.nats.jetstream import JetStream, NoStream, StoredMessage, header_fields
from logpipeline.nats.replicas import certain_message
from logpipeline.records import SUCCESSION_HEADER, BadRecord, EpochRecord, StreamPosition

VERSION = 1
RECORD_HEADER = "Log-Epoch"
# Room for the headers and the subject of a chunk.
CHUNK_OVERHEAD_BYTES = 4096
# A tiny max_payload must not lead to thousands of messages.
CHUNK_BYTES_MIN = 1024
# 100,000 sources compress to some 10 MB.
SNAPSHOT_BYTES_MAX = 256 * 1024 * 1024
CHUNKS_MAX = 16_384
# Chunks of one attempt have a subject of their own, below that of the manifests: what an attempt
# left that did not come to its end is removed by its subject. The epoch leads it.
_CHUNKS = re.compile(r"e(?P<epoch>[0-9]{1,19})-[0-9]{1,19}")


class SnapshotBroken(Exception):
    """A snapshot that is missing, incomplete or damaged; the message says which."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The exported *sources* as of *position*, with the encoded marks of the stream. *record* is
    the epoch record of that moment: a second copy, in case the state bucket is lost.
    """

    position: StreamPosition
    marks: dict[str, Any]
    sources: bytes
    record: EpochRecord | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The table of contents of a snapshot: the sequences of its chunks, in order."""

    version: int
    partition: int
    position: StreamPosition
    marks: dict[str, Any]
    size: int
    sha256: str
    chunks: tuple[int, ...]

    def encode(self) -> bytes:
        """Return the manifest as JSON."""
        return json_text.dump(asdict(self)).encode()

    @staticmethod
    def decode(value: bytes) -> Manifest:
        """Return the manifest that `encode` wrote.

        Raises:
            SnapshotBroken: it is not a manifest, or of another version.
        """
        try:
            data = json_text.parse(value)
            data["position"] = StreamPosition(**data["position"])
            data["chunks"] = tuple(int(sequence) for sequence in data["chunks"])
            manifest = checked(Manifest(**data))
        except (ValueError, TypeError, KeyError) as error:
            raise SnapshotBroken(f"not a manifest: {value[:80]!r}") from error
        if manifest.version != VERSION:
            raise SnapshotBroken(f"version {manifest.version}, this collector knows {VERSION}")
        if len(manifest.chunks) > CHUNKS_MAX or manifest.size > SNAPSHOT_BYTES_MAX:
            raise SnapshotBroken(f"{manifest.size} bytes in {len(manifest.chunks)} chunks")
        return manifest


class SnapshotStore:
    """The snapshots of one partition of one group in the snapshot stream."""

    def __init__(self, js: JetStream, *, stream: str, subject: str, partition: int) -> None:
        self._js = js
        self._stream = stream
        self._subject = subject
        self._partition = partition
        self._attempts = 0
        self._unfinished: set[str] = set()
        self._is_tidy = False

    async def write(self, snapshot: Snapshot) -> int:
        """Store *snapshot*, and return the sequence by which `read` finds it.

        Raises:
            SnapshotBroken: it is larger than `read` takes.
            NotSent, OutcomeUnknown, ApiError: it is not stored completely; try again later.
        """
        parts = list(self._cut(snapshot.sources))
        if len(parts) > CHUNKS_MAX or len(snapshot.sources) > SNAPSHOT_BYTES_MAX:
            raise SnapshotBroken(f"{len(snapshot.sources)} bytes in {len(parts)} chunks")
        epoch = snapshot.record.epoch if snapshot.record is not None else 0
        self._attempts += 1
        subject = f"{self._subject}.e{epoch}-{self._attempts}"
        self._unfinished.add(subject)
        chunks = [(await self._js.publish(subject, part)).sequence for part in parts]
        manifest = Manifest(
            VERSION,
            self._partition,
            snapshot.position,
            snapshot.marks,
            len(snapshot.sources),
            hashlib.sha256(snapshot.sources).hexdigest(),
            tuple(chunks),
        )
        # Older collectors refuse a manifest with an unknown field, so the record is in the headers.
        headers = _headers(snapshot.record) if snapshot.record is not None else None
        # Whether the manifest is stored may stay unknown, and the record may come to point to it.
        self._unfinished.discard(subject)
        return (await self._js.publish(self._subject, manifest.encode(), headers)).sequence

    async def read(self, sequence: int) -> Snapshot:
        """Return the snapshot that `write` stored at *sequence*.

        Raises:
            SnapshotBroken: it is missing or incomplete.
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        manifest = await self._manifest(sequence)
        sources = bytearray()
        for chunk in manifest.chunks:
            sources += (await self._message(chunk)).data
            if len(sources) > manifest.size:
                raise SnapshotBroken(f"the snapshot at {sequence} is larger than its manifest says")
        if hashlib.sha256(sources).hexdigest() != manifest.sha256:
            raise SnapshotBroken(f"the checksum of the snapshot at {sequence} does not match")
        return Snapshot(manifest.position, manifest.marks, bytes(sources))

    async def is_there(self, sequence: int) -> bool:
        """Return whether the snapshot at *sequence* still exists; only its ends are looked at.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        try:
            manifest = await self._manifest(sequence)
            for chunk in manifest.chunks[:1]:
                await self._message(chunk)
        except SnapshotBroken:
            return False
        return True

    async def last_record(self) -> EpochRecord | None:
        """Return the epoch record as it was at the newest snapshot, which it points to; None where
        there is none.

        Raises:
            NotSent, OutcomeUnknown, ApiError: the server could not be asked.
        """
        # A collector may ask for the stream, not for a single subject of it.
        try:
            newest = self._js.newest_message(self._stream, self._subject)
            stored = await self._js.direct_get(self._stream, newest)
        except NoStream:
            return None
        if stored is None:
            return None
        fields = header_fields(stored.headers)
        try:
            manifest = Manifest.decode(stored.data)
            record = EpochRecord.decode(
                fields.get(RECORD_HEADER, "").encode(), fields.get(SUCCESSION_HEADER, "")
            )
        except (SnapshotBroken, BadRecord):
            # A snapshot of an older collector, or a chunk of one that it left unfinished.
            return None
        return replace(
            record,
            position=manifest.position,
            snapshot=stored.sequence,
            snapshot_at=manifest.position.sequence,
        )

    async def remove_unfinished(self, current: int, *, epoch: int) -> None:
        """Remove chunks of which no manifest was written: of our own attempts, and once those of
        owners before *epoch*. The snapshot at *current* stays. A stream that is full of them
        refuses the snapshots of all partitions.

        Raises:
            NotSent, OutcomeUnknown, ApiError: perhaps nothing was removed; the next call does it.
        """
        for subject in tuple(self._unfinished):
            await self._purge(subject)
            self._unfinished.discard(subject)
        if not self._is_tidy:
            for subject in await self._left_by_others(current, epoch):
                await self._purge(subject)
            self._is_tidy = True

    async def _left_by_others(self, current: int, epoch: int) -> list[str]:
        kept = await self._subject_of_chunks(current)
        below = f"{self._subject}."
        body = {"subjects_filter": f"{below}>"}
        info = await self._js.call(f"STREAM.INFO.{self._stream}", body)
        found = info["state"].get("subjects") or {}
        # A successor's have a higher epoch, should we be fenced without knowing it yet.
        return [
            subject
            for subject in found
            if subject != kept
            and (match := _CHUNKS.fullmatch(subject.removeprefix(below)))
            and int(match["epoch"]) < epoch
        ]

    async def _subject_of_chunks(self, sequence: int) -> str | None:
        if not sequence:
            return None
        try:
            manifest = await self._manifest(sequence)
            return (await self._message(manifest.chunks[0])).subject if manifest.chunks else None
        except SnapshotBroken:
            return None

    async def _purge(self, subject: str, *, before: int = 0) -> None:
        body: dict[str, Any] = {"filter": subject}
        if before:
            body["seq"] = before
        await self._js.call(f"STREAM.PURGE.{self._stream}", body)

    async def drop_before(self, sequence: int) -> None:
        """Remove the messages before the snapshot at *sequence*; 0 removes none.

        Raises:
            NotSent, OutcomeUnknown, ApiError: perhaps nothing was removed; the next call does it.
        """
        if not sequence:
            return
        try:
            manifest = await self._manifest(sequence)
        except SnapshotBroken:
            return
        first = min((*manifest.chunks, sequence))
        # Former collectors put chunks beside the manifests.
        await self._purge(self._subject, before=first)
        await self._purge(f"{self._subject}.>", before=first)

    async def _manifest(self, sequence: int) -> Manifest:
        stored = await self._message(sequence)
        if stored.subject != self._subject:
            raise SnapshotBroken(f"message {sequence} is a part of a snapshot")
        manifest = Manifest.decode(stored.data)
        if manifest.partition != self._partition:
            raise SnapshotBroken(f"the snapshot at {sequence} is of another partition")
        return manifest

    async def _message(self, sequence: int) -> StoredMessage:
        stored = await certain_message(self._js, self._stream, sequence)
        if stored is None or not f"{stored.subject}.".startswith(f"{self._subject}."):
            raise SnapshotBroken(f"message {sequence} of stream {self._stream} is gone")
        return stored

    def _cut(self, data: bytes) -> Iterator[bytes]:
        limit = self._js.connection.max_payload_bytes - CHUNK_OVERHEAD_BYTES
        size = max(limit, CHUNK_BYTES_MIN)
        for start in range(0, len(data), size):
            yield data[start : start + size]


def _headers(record: EpochRecord) -> dict[str, str]:
    headers = {RECORD_HEADER: record.encode().decode()}
    if record.succession is not None:
        headers[SUCCESSION_HEADER] = record.succession.encode()
    return headers
