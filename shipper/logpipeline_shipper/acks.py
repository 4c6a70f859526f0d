"""Remembers the last acknowledgement of each subject, and notices sequences that go back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from logpipeline.nats.jetstream import PubAck
from logpipeline_shipper.parcels import Parcel
from logpipeline_shipper.positions import LastAck


class Acks:
    """The last word of the server on each subject. *on_rollback* gets a stream whose sequences
    went back: what it acknowledged beyond is lost.
    """

    def __init__(self, last: Mapping[str, LastAck], on_rollback: Callable[[str], None]) -> None:
        self.last = dict(last)
        self._on_rollback = on_rollback
        self._highest: dict[str, int] = {}
        for ack in last.values():
            self._highest[ack.stream] = max(ack.sequence, self._highest.get(ack.stream, 0))

    def floor(self, subject: str) -> int:
        """Return the highest sequence acknowledged so far on the stream of *subject*."""
        last = self.last.get(subject)
        return self._highest.get(last.stream, 0) if last else 0

    def note(self, parcel: Parcel, ack: PubAck, floor: int) -> None:
        """Take an acknowledgement in; *floor* was the highest one when its publish began."""
        if ack.duplicate:
            return
        known = self.last.get(parcel.subject)
        is_same_stream = known is not None and known.stream == ack.stream
        highest = self._highest.get(ack.stream, 0)
        # A floor above the highest one is from before a roll-back that is known already.
        went_back = is_same_stream and ack.sequence <= floor <= highest
        if went_back:
            highest = 0
        self._highest[ack.stream] = max(highest, ack.sequence)
        if went_back or known is None or known.sequence < ack.sequence or not is_same_stream:
            self.last[parcel.subject] = LastAck(
                ack.stream, ack.sequence, parcel.identifier, time.time()
            )
        if went_back:
            self._on_rollback(ack.stream)

    def subjects_of(self, stream: str) -> set[str]:
        """Return the subjects whose last acknowledgement came from *stream*."""
        return {subject for subject, ack in self.last.items() if ack.stream == stream}

    def forget(self, subject: str) -> None:
        """Take note that what was acknowledged last is known to be lost."""
        lost = self.last.pop(subject, None)
        if lost is not None:
            self._highest.pop(lost.stream, None)
