"""Builds the message of a chunk: subject, headers, id and the payload, which may be compressed.

A payload has exactly as many bytes as ``[start, end)`` of the file: readers refuse one of another
length or checksum (`logpipeline.wire.decode_payload`), and positions, deduplication and the account
of what was sent all count these bytes. So a shipper masks bytes (`logpipeline.redaction`), and
changes nothing else: to shorten or enrich lines is the task of the program that writes them, or of
a reader.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, replace

from logpipeline import wire, zstd
from logpipeline.nats.connection import headers_size
from logpipeline_shipper.account import Gap
from logpipeline_shipper.files.listing import SourceId
from logpipeline_shipper.resend import Piece

# Level 1: measured as the fastest end to end; level 3 costs more here and at the server.
ZSTD_LEVEL = 1
# The suffix of a message id: two attempts at the same bytes need different ids.
ATTEMPT_BYTES = 4
# Below this the header of a frame costs more than compression saves.
COMPRESSED_BYTES_MIN = 128


@dataclass(frozen=True, slots=True)
class Message:
    """One message, ready to be sent as often as necessary. *batch* describes its bytes; with
    *is_line* the description is not sent: the message is one line without headers.
    """

    subject: str
    batch: wire.Batch
    identifier: str
    payload: bytes
    is_line: bool = False

    def headers(self, *, resend: bool) -> dict[str, str]:
        """Return the headers; *resend* says that these bytes may have been sent before."""
        if self.is_line:
            # By this id JetStream recognises a line that is sent twice.
            return {wire.MESSAGE_ID: self.identifier}
        batch = replace(self.batch, resend=True) if resend else self.batch
        return wire.encode_headers(batch, self.identifier)

    def known_as_sent(self) -> Message:
        """Return the same message, marked as certainly sent before."""
        return replace(self, batch=replace(self.batch, unsure=False))

    def size(self) -> int:
        """Return the size that counts against the server's limit, at most."""
        return len(self.payload) + headers_size(self.headers(resend=True))


class MessageBuilder:
    """Builds the messages of one source; with *is_line* each message is one line."""

    __slots__ = ("_cluster", "_id", "_is_compressing", "_is_line", "_key", "labels", "subject")

    def __init__(
        self,
        id: SourceId,
        *,
        subject: str,
        installation: str,
        cluster: str,
        labels: tuple[tuple[str, str], ...] = (),
        is_compressing: bool,
        is_line: bool = False,
    ) -> None:
        self.subject = subject
        self._id = id
        self._key = wire.source_key(installation, id.host, id.source)
        self._cluster = cluster
        self.labels = labels
        self._is_compressing = is_compressing and not is_line
        self._is_line = is_line

    def build(self, piece: Piece) -> Message:
        """Return *piece* as a message; its attempt is part of the message id."""
        chunk = piece.chunk
        compressor = _compressor() if self._is_compressing else None
        if len(chunk.data) < COMPRESSED_BYTES_MIN:
            compressor = None
        # As many bytes as [start, end): see the module.
        assert len(chunk.data) == chunk.end - chunk.start
        payload, is_compressed = wire.encode_payload(chunk.data, compressor)
        batch = wire.Batch(
            source=self._id.source,
            generation=chunk.generation,
            start=chunk.start,
            end=chunk.end,
            lines=chunk.lines,
            format=self._id.format,
            first_time_ns=chunk.first_time_ns,
            last_time_ns=chunk.last_time_ns,
            previous=chunk.previous,
            checksums=chunk.checksums,
            unsure=piece.is_unsure,
            starts_inside_line=chunk.starts_inside_line,
            ends_inside_line=chunk.ends_inside_line,
            begins=chunk.begins,
            compressed=is_compressed,
            cluster=self._cluster,
            namespace=self._id.namespace,
            pod=self._id.pod,
            container=self._id.container,
            labels=self.labels,
        )
        identifier = wire.message_id(self._key, batch, attempt=piece.attempt)
        if self._is_line:
            payload = payload.removesuffix(b"\n")
        return Message(self.subject, batch, identifier, payload, self._is_line)

    def build_loss(self, gap: Gap, *, begins: bool) -> Message:
        """Return the message that reports the bytes of *gap* as lost; *begins*: shipping of the
        generation begins with them.
        """
        batch = wire.Batch(
            source=self._id.source,
            generation=gap.generation,
            start=gap.start,
            end=gap.end,
            lines=0,
            format=self._id.format,
            first_time_ns=time.time_ns(),
            lost=gap.cause,
            begins=begins,
            cluster=self._cluster,
            namespace=self._id.namespace,
            pod=self._id.pod,
            container=self._id.container,
        )
        identifier = wire.message_id(self._key, batch, attempt=secrets.token_hex(ATTEMPT_BYTES))
        return Message(self.subject, batch, identifier, b"")


_threads = threading.local()


def _compressor() -> zstd.Compressor:
    # Two threads must not share a compressor, and making one costs more than compressing a batch.
    made = getattr(_threads, "compressor", None)
    if made is None:
        made = _threads.compressor = zstd.Compressor(ZSTD_LEVEL)
    return made
