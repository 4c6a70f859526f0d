"""A member of a group releases the claims of its own that it does not read."""

from __future__ import annotations

from typing import cast

import pytest

from logpipeline.consuming.claims import Claims
from logpipeline.consuming.records import Claim, claim_key
from logpipeline.nats.bucket import Bucket, Conflict, Entry
from logpipeline.nats.connection import OutcomeUnknown

CONSUMER = "billing"


class FakeBucket:
    """The state bucket. While *loses_answers*, a write is stored, and its writer is not told."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[int, bytes]] = {}
        self.loses_answers = False

    async def get(self, key: str) -> Entry | None:
        revision, value = self.values.get(key, (0, b""))
        return Entry(value, revision, 0, b"") if revision else None

    async def swap(
        self, key: str, value: bytes, *, revision: int, headers: dict[str, str] | None = None
    ) -> int:
        found = self.values.get(key, (0, b""))[0]
        if found != revision:
            raise Conflict(key)
        self.values[key] = (revision + 1, value)
        if self.loses_answers:
            raise OutcomeUnknown("no answer")
        return revision + 1

    def claim(self, partition: int) -> Claim:
        return Claim.decode(self.values[claim_key(CONSUMER, partition)][1])


def claims_of(bucket: FakeBucket, member: str) -> Claims:
    """The claims that *member* takes."""
    made = cast(Bucket, bucket)
    return Claims(made, consumer=CONSUMER, member=member, incarnation=f"run-of-{member}")


@pytest.fixture
def bucket() -> FakeBucket:
    """An empty bucket."""
    return FakeBucket()


async def test_a_claim_whose_answer_was_lost_is_let_go(bucket: FakeBucket) -> None:
    """The member does not read, since it does not know that it may."""
    claims = claims_of(bucket, "a")
    bucket.loses_answers = True
    with pytest.raises(OutcomeUnknown):
        await claims.take(0)
    bucket.loses_answers = False
    assert not bucket.claim(0).released

    await claims.let_go(kept=[1])

    assert bucket.claim(0).released


async def test_a_claim_is_let_go_when_the_server_answers_again(bucket: FakeBucket) -> None:
    """Each look at the group tries it once more."""
    claims = claims_of(bucket, "a")
    await claims.take(0)
    bucket.loses_answers = True
    with pytest.raises(OutcomeUnknown):
        await claims.let_go(kept=())
    bucket.loses_answers = False
    await claims.let_go(kept=())

    assert bucket.claim(0).released
    assert bucket.claim(0).epoch == 1


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

    assert (bucket.claim(0).owner, bucket.claim(0).released) == (owner, False)
