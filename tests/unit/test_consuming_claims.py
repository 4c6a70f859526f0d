"""A member of a group releases the claims of its own that it does not read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from components.fake_bucket import FakeBucket
from logpipeline.consuming.claims import Claims, may_take
from logpipeline.consuming.options import StateForeign
from logpipeline.consuming.records import Claim, ReadProgress, claim_key
from logpipeline.group.ownership import Fenced
from logpipeline.nats.connection import OutcomeUnknown
from logpipeline.records import StreamPosition

CONSUMER = "billing"


def claim_in(bucket: FakeBucket, partition: int) -> Claim:
    return Claim.decode(bucket.values[claim_key(CONSUMER, partition)][1])


def claims_of(bucket: FakeBucket, member: str) -> Claims:
    """The claims that *member* takes."""
    return Claims(bucket.bucket, consumer=CONSUMER, member=member, incarnation=f"run-of-{member}")


@pytest.fixture
def bucket() -> FakeBucket:
    """An empty bucket."""
    return FakeBucket()


async def test_a_claim_whose_answer_was_lost_is_let_go(bucket: FakeBucket) -> None:
    """The member does not read, since it does not know that it may."""
    claims = claims_of(bucket, "a")
    bucket.lost_answers = 1
    with pytest.raises(OutcomeUnknown):
        await claims.take(0)
    assert not claim_in(bucket, 0).released

    await claims.let_go(kept=[1])

    assert claim_in(bucket, 0).released


async def test_a_claim_is_let_go_when_the_server_answers_again(bucket: FakeBucket) -> None:
    """Each look at the group tries it once more."""
    claims = claims_of(bucket, "a")
    await claims.take(0)
    bucket.lost_answers = 1
    with pytest.raises(OutcomeUnknown):
        await claims.let_go(kept=())
    await claims.let_go(kept=())

    assert claim_in(bucket, 0).released
    assert claim_in(bucket, 0).epoch == 1


@pytest.mark.parametrize("owner", ["a", "b"])
async def test_what_is_read_and_what_another_member_has_stays_claimed(
    bucket: FakeBucket, owner: str
) -> None:
    """Neither changes its owner."""
    claims = claims_of(bucket, "a")
    await claims.take(0)
    if owner == "b":
        await claims_of(bucket, "b").take(0)
    await claims.let_go(kept=[0] if owner == "a" else [])

    assert (claim_in(bucket, 0).owner, claim_in(bucket, 0).released) == (owner, False)


OTHERS = Claim(epoch=3, owner="b", incarnation="run-of-b")


@pytest.mark.parametrize(
    ("found", "living", "is_group", "was_ours", "may"),
    [
        pytest.param(None, "ab", True, False, True, id="nobody has it"),
        pytest.param(replace(OTHERS, released=True), "ab", True, True, True, id="released"),
        pytest.param(replace(OTHERS, incarnation="run-of-a"), "b", True, True, True, id="ours"),
        pytest.param(OTHERS, "ab", True, False, False, id="its owner lives"),
        pytest.param(OTHERS, "a", True, True, True, id="its owner is gone"),
        pytest.param(OTHERS, "ab", False, False, True, id="a reader alone, before it reads"),
        pytest.param(OTHERS, "a", False, True, False, id="a reader alone, taken for dead"),
    ],
)
def test_a_partition_is_taken_from_nobody_who_lives(
    found: Claim | None, living: str, is_group: bool, was_ours: bool, may: bool
) -> None:
    """A reader alone has looked whether it is that."""
    assert may is may_take(
        found, incarnation="run-of-a", living=living, is_group=is_group, was_ours=was_ours
    )


PROGRESS = ReadProgress(StreamPosition("monday", 9, 90))


async def test_a_claim_is_taken_with_its_progress_and_given_up_with_it(bucket: FakeBucket) -> None:
    """In the next epoch."""
    first = await claims_of(bucket, "a").take(0)
    assert first is not None
    await first.save(PROGRESS)
    await first.check()
    second = await claims_of(bucket, "b").take(0)
    assert second is not None
    assert claim_in(bucket, 0) == replace(OTHERS, epoch=2, progress=PROGRESS)
    with pytest.raises(Fenced):
        await first.check()
    await first.release(None)
    assert second.progress == PROGRESS
    await second.release(None)

    assert claim_in(bucket, 0) == replace(OTHERS, epoch=2, released=True)


async def test_what_was_let_go_is_not_looked_at_again(bucket: FakeBucket) -> None:
    """Each look at a group would read it."""
    claims = claims_of(bucket, "a")
    await claims.take(0)
    await claims.let_go(kept=())
    bucket.unread = 1
    await claims.let_go(kept=())

    assert bucket.unread == 1


async def test_a_key_that_holds_no_claim_is_named(bucket: FakeBucket) -> None:
    """With what to do."""
    key = claim_key(CONSUMER, 0)
    bucket.values[key] = (1, b"nonsense")

    with pytest.raises(StateForeign, match=f"--reset, or restore the key {key}"):
        await claims_of(bucket, "a").read(0)
