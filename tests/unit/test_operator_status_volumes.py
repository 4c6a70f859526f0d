"""A volume that comes back empty is said: collected lines were in it."""

from __future__ import annotations

from components.status_facts import NOW, jetstream, partition, working
from logpipeline.records import GoneFolder
from logpipeline_operator.status import events_of, status_of

MEMBER = "prod-collector-1"


def gone(*, after: int, end: int, again_from: int) -> GoneFolder:
    """A folder that is gone."""
    return GoneFolder(MEMBER, "f-1", 1, after, end, again_from)


def complete(*folders: GoneFolder) -> tuple[str, str, str]:
    """What is said, and the type of the event that tells of it first."""
    before = status_of(working(), None, NOW)
    there = jetstream(partition(2, owner=MEMBER, gone=folders))
    after = status_of(working(jetstream=there), before, NOW)
    found = next(each for each in after["conditions"] if each["type"] == "Complete")
    events = [each for each in events_of(before, after) if each.reason == found["reason"]]
    return found["status"], found["reason"], events[0].type if events else ""


def test_volume_whose_lines_the_streams_no_longer_hold_is_a_loss() -> None:
    """Whether some of them are read again or none."""
    assert complete(gone(after=0, end=90, again_from=40)) == ("False", "VolumeGone", "Warning")
    assert complete(gone(after=0, end=90, again_from=0)) == ("False", "VolumeGone", "Warning")


def test_volume_that_is_filled_again_is_told() -> None:
    """Nothing is lost; but users hear of it."""
    assert complete(gone(after=0, end=90, again_from=1)) == ("True", "VolumeReread", "Normal")


def test_volume_that_is_gone_is_named() -> None:
    """Partition and collector are in the message."""
    there = jetstream(partition(2, owner=MEMBER, gone=(gone(after=0, end=9, again_from=0),)))
    status = status_of(working(jetstream=there), None, NOW)
    [message] = [each["message"] for each in status["conditions"] if each["type"] == "Complete"]

    assert "partitions 2 of prod-collector-1" in message
