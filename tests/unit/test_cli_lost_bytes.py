"""What is lost and missing is summed up whole, whatever collectors list, and whoever answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logpipeline_cli import losses
from logpipeline_cli.commands import losses as command
from logpipeline_cli.losses import (
    ACKNOWLEDGED_MAX,
    Acknowledged,
    Sums,
    acknowledge,
    acknowledged,
    id_of,
    lost,
    missing,
    owned,
    sums,
)
from logpipeline_collector.status_question import LossesAsked

PARTITION = {"partition": 0, "epoch": 1, "lost_bytes": 0, "missing_bytes": 0}


def loss(number: int = 0, **fields: Any) -> dict[str, Any]:
    """A loss of 10 bytes, as a collector lists it; the next one is newer."""
    made = {
        "host": "node-a",
        "source": "/var/log/app.log",
        "generation": "0" * 16,
        "start": number * 10,
        "end": number * 10 + 10,
        "cause": "expired",
        "time_ns": number,
    }
    return made | fields


def answer(*listed: dict[str, Any], group: str = "main", **fields: Any) -> dict[str, Any]:
    """A collector's answer on one partition with the losses *listed*."""
    row = {"partition": 0, "problem": None, "epoch": 1, "missing_bytes": 0, "losses": list(listed)}
    return {"group": group, "member": "collector-0", "partitions": [row | fields]}


class Pipeline:
    """What a bucket remembers of one key, and what commands find beside it. A fake: what is looked
    at is only what is recorded.
    """

    def __init__(self) -> None:
        self.value: bytes | None = None

    async def get(self, key: str) -> SimpleNamespace | None:
        """Return the entry."""
        return SimpleNamespace(value=self.value, revision=1) if self.value is not None else None

    async def swap(self, key: str, value: bytes, *, revision: int) -> None:
        """Replace it."""
        self.value = value

    async def found(
        self, *answers: dict[str, Any], **state: Any
    ) -> tuple[list[dict[str, Any]], list[Sums]]:
        """Return the losses and the sums that a command finds."""
        seen, places = await acknowledged(cast("Any", self)), owned(answers)
        rows = lost(places, seen, group="main")
        return rows, sums([PARTITION | state], places, rows, seen, group="main")

    async def acknowledge(self, found: tuple[list[dict[str, Any]], list[Sums]], *ids: str) -> None:
        """Acknowledge *ids* of what was found, or all that is lost."""
        rows, whole = found
        chosen = [row for row in rows if not ids or row["id"] in ids]
        as_json = [{name: getattr(each, name) for name in Sums.__slots__} for each in whole]
        await acknowledge(cast("Any", self), chosen, as_json, with_unlisted=not ids)


async def test_what_no_collector_lists_is_counted() -> None:
    """Of a partition whose collector is silent, and of one with too many losses to be listed."""
    pipeline = Pipeline()

    _, [silent] = await pipeline.found(lost_bytes=50)
    _, [cut] = await pipeline.found(answer(loss(1), loss(2), lost_bytes=70), lost_bytes=50)

    assert (silent.lost, silent.lost_new, silent.lost_unlisted) == (50, 50, 50)
    assert not silent.is_heard
    # What the owner says is newer than its last commit.
    assert (cut.lost, cut.lost_new, cut.lost_unlisted) == (70, 70, 50)
    assert cut.is_heard


async def test_who_acknowledges_all_acknowledges_what_is_only_counted() -> None:
    """And no later loss: those count again, wherever the list is cut by then."""
    pipeline = Pipeline()
    await pipeline.acknowledge(await pipeline.found(answer(loss(1), loss(2), lost_bytes=70)))

    _, [after] = await pipeline.found(answer(loss(1), loss(2), lost_bytes=70))
    _, [silent] = await pipeline.found(lost_bytes=70)
    _, [later] = await pipeline.found(answer(loss(8), loss(9), lost_bytes=100))
    _, [moved] = await pipeline.found(lost_bytes=100)

    assert [each.lost_new for each in (after, silent, later, moved)] == [0, 0, 30, 30]
    assert later.lost_unlisted == 10


async def test_a_loss_that_left_the_list_stays_acknowledged() -> None:
    """One by one as well as all."""
    pipeline = Pipeline()
    for number in (1, 2):
        found = await pipeline.found(answer(loss(1), loss(2), lost_bytes=20))
        # Acknowledging it once more changes nothing.
        for _ in range(2):
            await pipeline.acknowledge(found, id_of(loss(number)))

    _, [after] = await pipeline.found(answer(loss(3), lost_bytes=30))

    assert (after.lost_new, after.lost_unlisted) == (10, 0)


async def test_what_was_found_again_hides_no_later_loss() -> None:
    """Once a person has looked again."""
    pipeline = Pipeline()
    await pipeline.acknowledge(await pipeline.found(answer(loss(1), loss(2), lost_bytes=20)))
    found = await pipeline.found(answer(loss(3), lost_bytes=10))
    await pipeline.acknowledge(found, id_of(loss(3)))

    _, [after] = await pipeline.found(answer(lost_bytes=20))

    assert after.lost_new == 10


async def test_what_was_not_heard_is_not_acknowledged() -> None:
    """No person has seen it."""
    pipeline = Pipeline()
    await pipeline.acknowledge(await pipeline.found(lost_bytes=20))

    _, [after] = await pipeline.found(lost_bytes=20)

    assert after.lost_new == 20


async def test_what_a_former_version_recorded_is_acknowledged() -> None:
    """It wrote ids alone."""
    pipeline = Pipeline()
    pipeline.value = json.dumps({id_of(loss(1)): 5.0}).encode()

    rows, [after] = await pipeline.found(answer(loss(1), loss(2), lost_bytes=20))

    assert [row["acknowledged"] for row in rows] == [False, True]
    assert (after.lost_new, after.lost_unlisted) == (10, 0)


async def test_of_too_many_acknowledged_losses_the_oldest_are_forgotten() -> None:
    """Never the ones that a person has just named."""
    pipeline = Pipeline()
    pipeline.value = json.dumps({f"old {n}": float(n) for n in range(ACKNOWLEDGED_MAX)}).encode()

    await pipeline.acknowledge(await pipeline.found(answer(loss(1))))

    known = await acknowledged(cast("Any", pipeline))
    assert len(known.ids) == ACKNOWLEDGED_MAX
    assert id_of(loss(1)) in known.ids
    assert "old 0" not in known.ids


def test_losses_are_those_of_all_collectors_the_newest_first() -> None:
    """Each with its size, and once: of a former owner that still answers nothing is taken."""
    older, newer = loss(1), loss(2, host="node-b")
    answers = [
        answer(newer, epoch=2),
        answer(older, partition=1),
        answer(loss(5), epoch=1),
        {"group": "main", "member": "c", "partitions": [{"partition": 2, "problem": "waits"}]},
    ]

    rows = lost(owned(answers), Acknowledged({id_of(older): 1.0}), group="main")

    assert [(row["host"], row["bytes"], row["acknowledged"]) for row in rows] == [
        ("node-b", 10, False),
        ("node-a", 10, True),
    ]


def test_what_a_former_owner_says_is_no_sum() -> None:
    """Its successor has committed more."""
    places = owned([answer(lost_bytes=5, missing_bytes=7)])
    state = PARTITION | {"epoch": 2, "lost_bytes": 20, "missing_bytes": 3}

    [found] = sums([state], places, [], Acknowledged(), group="main")

    assert (found.lost, found.missing, found.is_heard) == (20, 3, False)


def test_holes_that_are_not_listed_are_counted() -> None:
    """A collector lists so many sources."""
    row = {"host": "h", "source": "/a", "bytes": 4}
    places = owned([answer(missing=[row], missing_bytes=60)])

    [found] = sums([PARTITION], places, [], Acknowledged(), group="main")
    [listed] = missing(places, group="main")

    assert (found.missing, found.missing_unlisted) == (60, 56)
    assert (listed["source"], listed["bytes"], listed["toldBy"]) == ("/a", 4, "collector")


@pytest.mark.parametrize(
    ("silent", "sizes", "told"),
    [
        ({}, [], []),
        (
            {"collector-0": [0, 1]},
            [],
            ["collector-0, which owns partitions 0, 1, does not answer: its losses are not listed"],
        ),
        ({}, [(2048, False)], ["2.0 KiB are lost that no collector lists"]),
        (
            {},
            [(2048, True)],
            [
                "2.0 KiB are lost that collectors only count: `--acknowledge all` acknowledges "
                "them as well"
            ],
        ),
    ],
)
def test_what_is_not_listed_is_said(
    silent: dict[str, list[int]], sizes: list[tuple[int, bool]], told: list[str]
) -> None:
    """Whose it is, as far as that is known, and how much."""
    rows = [{"lost_unlisted": size, "is_heard": is_heard} for size, is_heard in sizes]

    gathered = {"silentOwners": silent, "sums": rows, "partitions": []}
    assert list(command._unlisted(gathered)) == told


def test_partitions_that_no_server_answers_for_are_said() -> None:
    """Whether one owns them is not known, so none could be missed."""
    partitions = [{"partition": number, "is_known": number % 2 == 0} for number in range(4)]
    (told,) = command._unlisted({"silentOwners": {}, "sums": [], "partitions": partitions})

    assert told.startswith("no server answers for the streams of partitions 1, 3, or for the")


def page(known: int, *, group: str = "main") -> dict[str, Any]:
    """The answer of an owner with 450 losses, of which so many are known."""
    rows = [loss(number) for number in range(known, min(known + 200, 450))]
    return answer(*rows, group=group, losses_left_out=450 - known - len(rows))


async def test_all_losses_are_asked_for_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each group that lists too few; one that answers nothing new is not asked again."""
    asked: list[tuple[str, int]] = []

    async def ask(_: Any, subjects: Any, question: bytes, keep: Any) -> None:
        wanted = LossesAsked.decode(question)
        assert wanted is not None
        asked.append((wanted.group, wanted.known))
        # A collector of a former version does not know the question.
        known = wanted.known if wanted.group == "main" else 0
        keep(SimpleNamespace(data=json.dumps(page(known, group=wanted.group)).encode()))
        keep(SimpleNamespace(data=b"no JSON"))

    monkeypatch.setattr(losses, "gather", ask)
    monkeypatch.setattr(losses, "is_readable", lambda *_: True)
    places = owned([page(0), page(0, group="old"), answer(loss(1), partition=1)])

    found = await losses.listed_whole(cast("Any", None), "_lp.logs", places)

    assert {place: len(row["losses"]) for place, row in found.items()} == {
        ("main", 0): 450,
        ("old", 0): 200,
        ("main", 1): 1,
    }
    assert asked == [("main", 200), ("old", 200), ("main", 400)]


async def test_more_losses_than_can_be_acknowledged_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are counted."""
    monkeypatch.setattr(losses, "ACKNOWLEDGED_MAX", 200)
    places = owned([page(0)])

    assert await losses.listed_whole(cast("Any", None), "_lp.logs", places) == places
