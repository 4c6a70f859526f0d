"""What applying would run into is told beforehand, each with what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.plan.checks import check
from logpipeline.plan.model import (
    OWNER_KEY,
    PARTITIONS_KEY,
    Account,
    Config,
    Desired,
    DesiredStream,
    FoundStream,
    Limits,
    Observed,
)
from logpipeline.plan.observe import read_account
from logpipeline.subjects import Subjects

MIB = 1024 * 1024


def problems(
    *, stream: Config | None = None, count: int = 1, payload_bytes: int = 1000, **seen: Any
) -> list[str]:
    """What is said of *count* streams like *stream* where the server is as *seen*."""
    desired = Desired(
        pipeline="team/logs",
        root="logs.>",
        payload_bytes=payload_bytes,
        partitions=4,
        streams=tuple(
            DesiredStream(
                config={"name": f"LOGS_{number}", "max_bytes": MIB, **(stream or {})},
                consumers=({"name": "audit"},),
                readers=2,
            )
            for number in range(count)
        ),
    )
    usual: dict[str, Any] = {
        "server_version": "2.15.1",
        "max_payload_bytes": MIB,
        "servers": 1,
        "account": Account(limits=Limits()),
        "streams": {},
    }
    found = check(desired, Observed(**{**usual, **seen}))
    return [f"{problem.id} {problem.is_blocking}: {problem.message}" for problem in found]


def limited(**limits: Any) -> Account:
    """An account with *limits*, which has reserved 5 MiB in 2 streams."""
    return Account(limits=Limits(**limits), streams=2, reserved_storage_bytes=5 * MIB)


def test_a_server_that_has_everything_needed_is_no_problem() -> None:
    """Nothing is said where nothing stands against it."""
    assert problems() == []


@pytest.mark.parametrize("version", ["2.14.2", "2.9.25", "", "strange"])
def test_a_server_with_known_holes_is_refused(version: str) -> None:
    """The message names the version that is needed."""
    (problem,) = problems(server_version=version)

    assert problem.startswith("server-too-old True")
    assert "2.14.3" in problem


def test_a_pre_release_of_a_new_server_is_new_enough() -> None:
    """What follows the three numbers does not matter."""
    assert problems(server_version="2.16.0-preview.1") == []


def test_a_batch_must_fit_the_servers_messages_with_its_headers() -> None:
    """Exactly max_payload is too much; the message says what would fit."""
    (problem,) = problems(payload_bytes=MIB)

    assert problem.startswith("payload-too-small True")
    assert str(MIB - 8192) in problem
    assert problems(payload_bytes=MIB - 8192) == []


def test_replicas_need_servers() -> None:
    """One server cannot replicate; how many a cluster has is not known, so it is tried."""
    (problem,) = problems(stream={"num_replicas": 3})

    assert problem.startswith("too-few-servers True")
    assert problems(stream={"num_replicas": 3}, servers=0) == []


def test_new_streams_count_towards_the_accounts_limit() -> None:
    """Those that are there already count once."""
    account = limited(streams=4)
    there = {
        "LOGS_0": FoundStream(config={"name": "LOGS_0"}, state={}, created="", now=""),
    }

    assert problems(count=2, account=account) == []
    assert [p.split()[0] for p in problems(count=3, account=account)] == ["too-many-streams"]
    assert problems(count=3, account=account, streams=there) == []


def test_sizes_count_towards_the_accounts_storage_once_for_each_replica() -> None:
    """Only what is added counts: an unchanged stream has its share already."""
    account = limited(storage_bytes=7 * MIB)
    grown = FoundStream(config={"name": "LOGS_0", "max_bytes": MIB}, state={}, created="", now="")

    assert problems(count=2, account=account) == []
    assert problems(count=3, account=account, streams={"LOGS_0": grown}) == []
    for more in ({"count": 3}, {"stream": {"num_replicas": 3}, "servers": 0}):
        (problem,) = problems(account=account, **more)
        assert problem.startswith("too-little-storage True")


def test_a_tier_counts_one_copy_and_a_missing_tier_allows_nothing() -> None:
    """Accounts may have limits per number of replicas; R3 without a tier is not allowed."""
    account = Account(limits=Limits(), tiers={3: limited(storage_bytes=7 * MIB)})

    assert problems(stream={"num_replicas": 3}, servers=0, account=account) == []
    assert "too-many-streams" in problems(account=account)[0]


def test_a_size_that_the_account_forbids_is_told_once() -> None:
    """All partitions are alike: one message is enough."""
    (problem,) = problems(count=3, account=limited(storage_stream_bytes=1000))

    assert problem.startswith("stream-too-large True")


def test_an_account_may_demand_sizes() -> None:
    """A stream without a size limit is refused there."""
    (problem,) = problems(stream={"max_bytes": -1}, account=limited(is_max_bytes_required=True))

    assert problem.startswith("max-bytes-required True")


def test_consumers_and_readers_must_fit() -> None:
    """What collectors add by themselves counts as well."""
    assert problems(account=limited(consumers=3)) == []
    assert [p.split()[0] for p in problems(account=limited(consumers=2))] == ["too-many-consumers"]
    assert [p.split()[0] for p in problems(stream={"max_consumers": 2})] == ["too-many-consumers"]


def test_a_thousand_replicated_assets_are_a_warning() -> None:
    """It works, but servers get slow: nothing is blocked."""
    (problem,) = problems(count=500, stream={"num_replicas": 3}, servers=0)

    assert problem.startswith("many-replicated-assets False")


def test_retention_that_deletes_unread_lines_is_a_warning() -> None:
    """With interest, what comes while no collector reads is gone; with a work queue none can."""
    for retention in ("interest", "workqueue"):
        (problem,) = problems(stream={"retention": retention})

        assert problem.startswith("retention-loses-lines False")


def test_another_pipelines_stream_on_our_subjects_blocks() -> None:
    """The same as any stranger's; only our own left-over streams do not."""

    def neighbour(owner: str) -> FoundStream:
        config = {"name": "X", "subjects": ["logs.>"], "metadata": {OWNER_KEY: owner}}
        return FoundStream(config=config, state={}, created="", now="")

    assert problems(neighbours=(neighbour("team/logs"),)) == []
    assert "X" in problems(neighbours=(neighbour("team/other"),))[0]


def test_an_accounts_answer_is_read_with_its_tiers() -> None:
    """What the server leaves out is no limit."""
    tier = {"limits": {"max_storage": 9, "max_streams": 2}, "streams": 1, "reserved_storage": 3}
    account = read_account({"limits": {"max_storage": -1}, "tiers": {"R3": tier}, "streams": 4})

    assert account.tier(3).limits == Limits(storage_bytes=9, streams=2)
    assert account.tier(3).reserved_storage_bytes == 3
    assert account.tier(1).limits.streams == 0
    assert read_account({}).tier(1).limits == Limits()


def test_another_number_of_partitions_than_before_is_refused() -> None:
    """Hosts would move between streams; the first number is free."""
    (said,) = problems(partitions=2)

    assert said.startswith("partitions-changed True: spec.partitions cannot change from 2 to 4")
    assert problems(partitions=4) == problems(partitions=0) == []


def of_one_stream(
    *, foreign: int = 6, is_external: bool = False, found: Config | None, strays: int = 0
) -> list[str]:
    """What is said of a pipeline of four partitions in one stream, where *found* is there."""
    stream: Config = {
        "name": "LOGS",
        "max_bytes": MIB,
        "subjects": Subjects("logs", 4).of_single_stream(foreign=foreign),
        "metadata": {OWNER_KEY: "team/logs", PARTITIONS_KEY: "4"},
    }
    desired = Desired(
        pipeline="team/logs",
        root="logs.>",
        payload_bytes=1000,
        partitions=4,
        is_single=True,
        is_external=is_external,
        streams=(DesiredStream(config=stream),),
    )
    there: list[Config] = [{"name": "LOGS", **found}] if found is not None else []
    seen = Observed(
        server_version="2.15.1",
        max_payload_bytes=MIB,
        servers=1,
        account=Account(limits=Limits()),
        streams={
            each["name"]: FoundStream(config=each, state={}, created="", now="") for each in there
        },
        strays=strays,
    )
    return [problem.id for problem in check(desired, seen)]


def of_owner(partitions: int = 4, foreign: int = 6) -> Config:
    """The stream as another resource has made it."""
    return {
        "subjects": Subjects("logs", partitions).of_single_stream(foreign=foreign),
        "metadata": {OWNER_KEY: "other/logs", PARTITIONS_KEY: str(partitions)},
    }


@pytest.mark.parametrize("owners", [of_owner(foreign=8), of_owner(partitions=5)])
def test_a_guest_that_would_read_a_part_of_one_stream_is_refused(owners: Config) -> None:
    """Its collectors filter by what its own resource says; the owner would trim the rest."""
    assert of_one_stream(is_external=True, found=of_owner()) == []
    assert of_one_stream(is_external=True, found=owners) == ["stream-differs"]


def test_what_one_stream_stores_stays() -> None:
    """Collectors would be past what comes into subjects that they learn of later."""
    ours: Config = {**of_owner(), "metadata": {OWNER_KEY: "team/logs", PARTITIONS_KEY: "4"}}

    assert of_one_stream(found=ours) == []
    assert of_one_stream(foreign=8, found=ours) == ["subjects-stay"]


def test_what_would_be_read_by_nobody_is_told_before_a_stream_is_taken_over() -> None:
    """Its subjects are in no partition; that there are none is told as well."""
    theirs: Config = {"subjects": ["logs.>"]}

    assert of_one_stream(found=theirs) == []
    assert of_one_stream(found=theirs, strays=3) == ["messages-in-no-partition"]
    assert of_one_stream(found=None) == ["one-stream-is-slower"]
