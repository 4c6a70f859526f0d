"""Takes messages as they come: whose lines they are, and how many did not reach us.

Nobody sends a line again in this way of reading. So what is dropped here, because the disk is
slower than the network, is counted; and what the server did not deliver to us, where the numbers
of a push consumer tell.
"""

from __future__ import annotations

import logging
import re
from collections import Counter

from logpipeline.nats.pull import read_reply
from logpipeline.nats.session import RawMessage
from logpipeline.subjects import BadHost, check_host
from logpipeline.wire import BadMessage, decode_headers, decode_payload, parse_headers
from logpipeline_collector.fshipper.config import CONSUMERS_MAX, HOSTS_MAX, LINE_OVERHEAD_BYTES

log = logging.getLogger(__name__)

# A message of a push consumer about itself: it is idle, or asks whether we still listen.
STATUS_CONTROL = 100
_STREAM_REPLY = b"$JS.ACK."


class Intake:
    """The lines that wait to be written, in the order in which they came, at most *bytes_max*."""

    def __init__(self, subject: str, *, bytes_max: int) -> None:
        self.lines = 0
        self.dropped = 0
        self.undelivered = 0
        self.refused: Counter[str] = Counter()
        self.size = 0
        self._bytes_max = bytes_max
        self._waiting: list[tuple[str, bytes]] = []
        self._hosts: set[str] = set()
        self._last: dict[bytes, int] = {}
        self._subject = re.compile(rf"{re.escape(subject)}\.p\d+\.(.+)")

    def take(self, message: RawMessage) -> bytes | None:
        """Take *message* in; return a subject that wants an empty answer, if it does."""
        if message.status:
            is_asking = message.status == STATUS_CONTROL and message.reply
            return message.reply if is_asking else None
        self._note_gap(message)
        try:
            host, data = self._host(message.subject), _data(message)
        except BadMessage as error:
            self._refuse(error.reason, str(error))
            return None
        size = len(data) + LINE_OVERHEAD_BYTES
        if self.size + size > self._bytes_max:
            self.dropped += 1
            return None
        self.size += size
        self.lines += 1
        self._waiting.append((host, data))
        return None

    def give(self) -> dict[str, bytes]:
        """Return what waits, by host; it is to be written now."""
        taken: dict[str, list[bytes]] = {}
        for host, data in self._waiting:
            taken.setdefault(host, []).append(data)
        self._waiting, self.size = [], 0
        return {host: b"".join(parts) for host, parts in taken.items()}

    def _host(self, subject: bytes) -> str:
        found = self._subject.fullmatch(subject.decode("utf-8", "surrogateescape"))
        if found is None:
            raise BadMessage("bad-subject", f"subject {subject[:80]!r} names no host")
        host = found[1]
        if host not in self._hosts:
            try:
                check_host(host)
            except BadHost as error:
                raise BadMessage("bad-host", str(error)) from error
            if len(self._hosts) >= HOSTS_MAX:
                raise BadMessage("too-many-hosts", f"{HOSTS_MAX} hosts have files already")
            self._hosts.add(host)
        return host

    def _note_gap(self, message: RawMessage) -> None:
        if not message.reply.startswith(_STREAM_REPLY):
            return
        try:
            delivered = read_reply(message)
        except (ValueError, IndexError):
            return  # a stranger's, who published where the server delivers
        tokens = message.reply.split(b".")
        consumer = b".".join(tokens[: 4 if len(tokens) == 9 else 6])
        if consumer not in self._last and len(self._last) >= CONSUMERS_MAX:
            return
        # One that was made anew begins at 1, and has missed nothing yet.
        last = self._last.get(consumer, delivered.delivery - 1)
        if delivered.delivery > last + 1:
            missed = delivered.delivery - last - 1
            self.undelivered += missed
            log.error(
                "messages were sent that did not reach us; they are lost here",
                extra={"messages": missed, "sequence": delivered.sequence},
            )
        self._last[consumer] = delivered.delivery

    def _refuse(self, reason: str, detail: str) -> None:
        self.refused[reason] += 1
        if self.refused[reason] == 1:
            log.error(
                "a message is no line of a host; more are only counted",
                extra={"reason": reason, "detail": detail},
            )


def _data(message: RawMessage) -> bytes:
    """Return the lines of *message*, each with its end; a batch of ours is unpacked."""
    data = message.data
    if message.headers:
        batch = decode_headers(parse_headers(message.headers))
        if batch is not None:
            data = decode_payload(batch, data)
            # One that names bytes as lost has no lines.
            return data if batch.lost or data.endswith(b"\n") else data + b"\n"
    return data + b"\n"
