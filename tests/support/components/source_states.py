"""What is known of a source after some batches."""

from __future__ import annotations

from logpipeline.deduplication import SourceState, decide
from logpipeline.wire import Batch


def known_after(*batches: Batch) -> SourceState:
    """Return what is known of a source of which *batches* came, in this order."""
    known = SourceState()
    for each in batches:
        known = decide(known, each).after
    return known
