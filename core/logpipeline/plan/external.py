"""Streams that belong to another pipeline: nothing of them is changed, so they have to be right."""

from __future__ import annotations

from collections.abc import Iterator

from logpipeline.plan.model import Desired, FoundStream, Observed, Problem
from logpipeline.subjects import is_advisory


def check_external(desired: Desired, observed: Observed) -> Iterator[Problem]:
    """Yield what keeps the streams that are there from being used as they are."""
    missing = [wanted.name for wanted in desired.streams if wanted.name not in observed.streams]
    if missing:
        more = f" and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        yield Problem(
            "stream-missing",
            f"stream {missing[0]}{more} not there, and external streams are made by their owner: "
            "set spec.stream.name, spec.partitions and spec.nats as the owner has them, or wait "
            "for it",
        )
    for wanted in desired.streams:
        found = observed.streams.get(wanted.name)
        subjects = _of_senders(found) if found is not None else None
        # How many foreign partitions are stored is its owner's business.
        if subjects is not None and wanted.config["subjects"][0] not in subjects:
            yield Problem(
                "stream-differs",
                f"stream {wanted.name} stores {', '.join(subjects) or 'nothing'}, and not "
                f"{wanted.config['subjects'][0]}: set spec.subject as its owner has it",
            )
            break
    if observed.neighbours and not missing:
        yield Problem(
            "stream-differs",
            f"stream {observed.neighbours[0].name} stores lines of spec.subject as well: set "
            "spec.partitions as the owner of the streams has it",
        )


def _of_senders(found: FoundStream) -> list[str]:
    # What its owner's readers gave up is kept or not, as the owner's own consumers ask for.
    subjects = found.config.get("subjects") or ()
    return [subject for subject in subjects if not is_advisory(subject)]
