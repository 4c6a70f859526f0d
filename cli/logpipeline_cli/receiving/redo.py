"""Records of a receiver's redo log, as bytes. Pure.

Each record begins with a head, which has a checksum of its own: the log's name, which is random,
the record's number in the log, and the length and the checksum of its body. A crash can only leave
the last record half written, in whatever parts of it. So a record that is not whole is damaged, and
no crash's, if a later one of its log can be found behind it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from logpipeline import json_text

REDO = ".redo"
_HEAD = re.compile(rb"redo ([0-9a-f]{8}) ([0-9]{1,12}) ([0-9]{1,12}) ([0-9a-f]{8}) ([0-9a-f]{8})\n")
# As former versions wrote it.
_FORMER_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,12})\n")


class SpoolBroken(Exception):
    """The redo log is damaged where a crash cannot have damaged it; the message says what to do."""


class Write(NamedTuple):
    """*data* at *offset* of the file *name*."""

    name: str
    offset: int
    data: bytes


class Record(NamedTuple):
    """A group of writes that is durable as a whole, and the *state* that it leads to."""

    writes: tuple[Write, ...]
    state: Any


class Place(NamedTuple):
    """Where a record stands: in which *log*, of 8 hexadecimal digits, and at which *number*. A
    sender of lines cannot guess the log, and so cannot write what looks like a record.
    """

    log: str
    number: int = 0

    @property
    def next(self) -> Place:
        """The place behind it."""
        return self._replace(number=self.number + 1)


class _Head(NamedTuple):
    place: Place
    length: int
    checksum: str
    end: int

    def body(self, raw: bytes) -> bytes | None:
        """Return the record's body; None where it is not whole."""
        body = raw[self.end : self.end + self.length]
        is_whole = len(body) == self.length and f"{zlib.crc32(body):08x}" == self.checksum
        return body if is_whole else None


def encode(record: Record, place: Place) -> bytes:
    """Return *record* as it stands at *place*."""
    places = [[write.name, write.offset, len(write.data)] for write in record.writes]
    meta = json.dumps({"writes": places, "state": record.state}, separators=(",", ":"))
    return framed(b"".join([meta.encode(), b"\n", *(write.data for write in record.writes)]), place)


def framed(body: bytes, place: Place) -> bytes:
    """Return *body* with its head."""
    head = f"redo {place.log} {place.number} {len(body)} {zlib.crc32(body):08x} ".encode()
    return head + f"{zlib.crc32(head):08x}\n".encode() + body


def records_of(raw: bytes) -> Iterator[Record]:
    """Yield the records of a redo log; a last one that is not whole was never accepted.

    Raises:
        SpoolBroken: a record is damaged, or is no record of this version.
    """
    if _FORMER_HEAD.match(raw):
        yield from _former_records_of(raw)
        return
    at, place = 0, None
    while at < len(raw):
        head = _head_of(_HEAD.match(raw, at))
        is_next = head is not None and head.place == (place or Place(head.place.log))
        body = head.body(raw) if head is not None and is_next else None
        if head is None or body is None:
            _check_is_torn(raw, at, place)
            return
        yield _decode(body)
        at, place = head.end + head.length, head.place.next


def _head_of(found: re.Match[bytes] | None) -> _Head | None:
    if found is None or f"{zlib.crc32(found[0][:-9]):08x}".encode() != found[5]:
        return None
    place = Place(found[1].decode(), int(found[2]))
    return _Head(place, int(found[3]), found[4].decode(), found.end())


def _check_is_torn(raw: bytes, at: int, place: Place | None) -> None:
    """Return if the record at *at*, which should be that of *place*, can be what a crash left.

    Raises:
        SpoolBroken: it cannot.
    """
    if place is None:
        # It was synced before the log had its name.
        raise SpoolBroken(_broken("its first record is not whole"))
    found = _HEAD.match(raw, at)
    if found is not None and _head_of(found) is None:
        # What a crash leaves out are whole pages, which are then missing or zeros.
        raise SpoolBroken(_broken("a checksum does not match"))
    for later in map(_head_of, _HEAD.finditer(raw, at + 1)):
        if later and later.place.log == place.log and later.place.number > place.number:
            raise SpoolBroken(_broken("a record before others is not whole"))


def _former_records_of(raw: bytes) -> Iterator[Record]:
    at = 0
    while (head := _FORMER_HEAD.match(raw, at)) and (end := head.end() + int(head[2])) <= len(raw):
        body = raw[head.end() : end]
        if f"{zlib.crc32(body):08x}".encode() != head[1]:
            if end == len(raw):
                return
            raise SpoolBroken(_broken("a checksum does not match"))
        yield _decode(body)
        at = end


def _decode(body: bytes) -> Record:
    meta, _, data = body.partition(b"\n")
    try:
        fields = json_text.parse(meta)
        places = [(str(name), int(offset), int(size)) for name, offset, size in fields["writes"]]
        state = fields["state"]
    except (ValueError, TypeError, KeyError) as error:
        raise SpoolBroken(_broken(str(error))) from error
    writes, at = [], 0
    for name, offset, size in places:
        if offset < 0 or size < 0 or at + size > len(data):
            raise SpoolBroken(_broken("a place is outside of the data"))
        writes.append(Write(name, offset, data[at : at + size]))
        at += size
    return Record(tuple(writes), state)


def _broken(why: str) -> str:
    return (
        f"the receiver's redo log {REDO} is damaged ({why}): move it out of the folder; lines and "
        "the position that are only there are lost"
    )
