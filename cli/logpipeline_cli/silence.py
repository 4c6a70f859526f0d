"""The parts of a pipeline that ought to answer, and do not: what is dead complains of nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from logpipeline.authority import TABLE, shipper_user
from logpipeline.lag import PartitionState
from logpipeline.layout import SERVER
from logpipeline_cli.target import Target

Answers = Mapping[str, Sequence[Mapping[str, Any]]]

# As a local shipper calls itself in its answer.
_SHIPPER = "logpipeline shipper "


def silent(target: Target, partitions: Sequence[PartitionState], answers: Answers) -> list[str]:
    """Return a sentence for each part that `up` keeps running here, and for each owner of
    *partitions*, that is not among *answers*, and for each whose answer cannot be read.
    """
    group = target.pipeline.spec.collectors.group
    heard = _heard(group, answers)
    found = dict(_local(target, heard, answers["shipper"]))
    for owner, numbers in silent_owners(group, partitions, answers).items():
        if owner not in found:
            found[owner] = f"{owner}, {owning(numbers)}, does not answer: see its log"
    for each in answers.get("unreadable", ()):
        name = each["name"]
        found[name] = f"{name} gives an answer that cannot be read: is it of this version?"
    return [found[name] for name in sorted(found)]


def silent_owners(
    group: str, partitions: Sequence[PartitionState], answers: Answers
) -> dict[str, list[int]]:
    """Return the collectors of *group* that own some of *partitions* and are not among *answers*,
    with the numbers of what they own.
    """
    heard = _heard(group, answers)
    found: dict[str, list[int]] = {}
    for state in partitions:
        if state.owner and not state.released and state.owner not in heard:
            found.setdefault(state.owner, []).append(state.partition)
    return found


def owning(numbers: Iterable[int]) -> str:
    """Return in words which partitions a collector owns."""
    return f"which owns partitions {', '.join(map(str, numbers))}"


def _heard(group: str, answers: Answers) -> set[str]:
    return {
        str(each.get("member", "")) for each in answers["collector"] if each.get("group") == group
    }


def _local(
    target: Target, heard: set[str], shippers: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    names = [str(each.get("name", "")) for each in shippers]
    alive = heard | {
        shipper_user(name.removeprefix(_SHIPPER)) for name in names if name.startswith(_SHIPPER)
    }
    for part in target.run.components if target.run is not None else ():
        if part.name == SERVER:
            continue  # it answered what all of this comes from
        # A table's job answers no questions.
        if part.name in alive or (part.name == TABLE and part.is_running):
            continue
        what = "does not run" if part.name == TABLE else "does not run, or does not answer"
        yield part.name, f"{part.name} {what}: see {target.layout.log(part.name)}"
