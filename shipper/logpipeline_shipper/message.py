"""Makes of a chunk what travels: subject, headers, id and the compressed payload."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, replace

import zstandard

from logpipeline import wire
from logpipeline.nats.connection import headers_size
from logpipeline_shipper.account import Gap
from logpipeline_shipper.files.listing import SourceId
from logpipeline_shipper.resend import Piece

# Level 1: measured as the fastest end to end; level 3 costs more here and at the server.
ZSTD_LEVEL = 1
# The suffix of a message id: no two attempts at the same bytes may look alike to the server.
ATTEMPT_BYTES = 4
# Below this a frame's head eats what compression gains.
COMPRESSED_BYTES_MIN = 128


@dataclass(frozen=True, slots=True)
class Message:
    """One message, ready to be sent as often as it takes; *batch* tells of its bytes, which
    *is_line* keeps to ourselves: the message is a line alone.
    """

    subject: str
    batch: wire.Batch
    identifier: str
    payload: bytes
    is_line: bool = False

    def headers(self, *, resend: bool) -> dict[str, str]:
        """Return the headers; *resend* says that these bytes may have been sent before."""
        if self.is_line:
            # By it a server with JetStream knows a line that is sent twice.
            return {wire.MESSAGE_ID: self.identifier}
        batch = replace(self.batch, resend=True) if resend else self.batch
        return wire.encode_headers(batch, self.identifier)

    def known_as_sent(self) -> Message:
        """Return the same message, of which it is certain that it was sent before."""
        return replace(self, batch=replace(self.batch, unsure=False))

    def size(self) -> int:
        """Return what counts against the server's limit, at most."""
        return len(self.payload) + headers_size(self.headers(resend=True))


class MessageBuilder:
    """Packs the chunks of one source; with *is_line* each of them is a line."""

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
        """Return *piece* as a message; its attempt makes its id a fresh one."""
        chunk = piece.chunk
        compressor = _compressor() if self._is_compressing else None
        if len(chunk.data) < COMPRESSED_BYTES_MIN:
            compressor = None
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
        """Return the message that names the bytes of *gap* as lost; *begins* says that nothing was
        shipped of its generation before.
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


def _compressor() -> zstandard.ZstdCompressor:
    # A compressor must not be used by two threads at once, and making one costs more than a batch.
    made = getattr(_threads, "compressor", None)
    if made is None:
        made = _threads.compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
    return made
