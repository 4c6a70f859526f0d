"""A message as it stands in a stream: what the source hands to whoever makes lines of it."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """A stored message; *time_ns* is the server's, *headers* the publisher's block, or empty.

    A tuple: a task makes one for each message, and a frozen dataclass takes three times as long.
    """

    sequence: int
    time_ns: int
    subject: str
    headers: bytes
    data: bytes
