"""What a resource wants of JetStream, down to the defaults that users rely on."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.plan.desired import desired
from logpipeline.plan.model import INSTALLATION_KEY, OWNER_KEY, Account, Config, Desired, Limits
from logpipeline.spec import LogPipeline, parse
from logpipeline.spec.partition_list import selects

GIB = 1024**3
HOUR = 3_600_000_000_000


def pipeline(**spec: Any) -> LogPipeline:
    """The pipeline default/demo with *spec*."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "demo"},
            "spec": spec,
        }
    )


def logs(of: Desired) -> list[Config]:
    """The streams of the partitions."""
    return [stream.config for stream in of.streams if stream.name[-1].isdigit()]


def consumers(*templates: dict[str, Any]) -> list[Config]:
    """What each of three partitions gets for *templates*."""
    wanted = desired(
        pipeline(partitions=3, subject="logs", stream={"name": "L"}, consumers=list(templates))
    )
    return [config for stream in wanted.streams for config in stream.consumers]


def test_a_resource_with_nothing_but_a_name_works() -> None:
    """Ten streams with limits, and beside them state, snapshots and dead letters, all marked."""
    wanted = desired(pipeline())

    assert [stream.name for stream in wanted.streams] == [
        "KV_LP_default_demo_state",
        "LP_default_demo_snapshots",
        "LP_default_demo_dead",
        *(f"LP_default_demo_{number}" for number in range(10)),
    ]
    assert all(s.config["metadata"] == {OWNER_KEY: "default/demo"} for s in wanted.streams)
    assert all(s.config["max_bytes"] > 0 for s in wanted.streams)


def test_the_defaults_of_a_log_stream_are_the_safe_ones() -> None:
    """Changing one of these means changing it here, on purpose."""
    config = dict(logs(desired(pipeline()))[3])

    assert config.pop("max_bytes") == 10 * GIB * 80 // 100 // 10 // 4096 * 4096
    assert config == {
        "name": "LP_default_demo_3",
        "subjects": [f"lp.default.demo.p{number}.>" for number in (13, 23, 3)],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": 1,
        "max_age": 24 * HOUR,
        "duplicate_window": HOUR // 30,
        "max_msgs": -1,
        "max_msg_size": -1,
        "max_msgs_per_subject": -1,
        "max_consumers": 1000,
        "compression": "none",
        "allow_direct": True,
        "deny_delete": False,
        "deny_purge": False,
        "metadata": {OWNER_KEY: "default/demo"},
    }


def test_all_streams_together_stay_within_the_storage() -> None:
    """With or without limits of the account, a tenth stays free, as a full disk is fatal."""
    for account, storage in ((None, 10 * GIB), (Account(limits=Limits(storage_bytes=GIB)), GIB)):
        for partitions in (0, 1, 10, 1000):
            wanted = desired(pipeline(partitions=partitions), account=account)

            assert sum(s.config["max_bytes"] for s in wanted.streams) <= storage * 92 // 100


def test_a_smaller_disk_and_an_accounts_limits_make_streams_smaller() -> None:
    """Sizes are derived from what is there; replicas count in an account without tiers."""
    replicated = pipeline(stream={"replicas": 3})
    limits = Limits(storage_bytes=3 * GIB)
    share = GIB * 80 // 100 // 10 // 4096 * 4096

    assert logs(desired(pipeline(), storage_bytes=GIB))[0]["max_bytes"] == share
    assert logs(desired(replicated, account=Account(limits=limits)))[0]["max_bytes"] == share
    tiers = Account(limits=Limits(), tiers={3: Account(limits=Limits(storage_bytes=GIB))})
    assert logs(desired(replicated, account=tiers))[0]["max_bytes"] == share
    small = Account(limits=Limits(storage_stream_bytes=8192, consumers=7))
    assert logs(desired(pipeline(), account=small))[0]["max_bytes"] == 8192
    assert logs(desired(pipeline(), account=small))[0]["max_consumers"] == 7


def test_no_partitions_are_the_one_partition_0() -> None:
    """As in fshipper, 0 means a single stream of p0."""
    (config,) = logs(desired(pipeline(partitions=0, subject="logs")))

    assert config["subjects"][0] == "logs.p0.>"


def test_what_foreign_shippers_put_into_other_partitions_is_stored() -> None:
    """Each of their partitions lies in one stream, however many they count."""
    wanted = pipeline(partitions=3, subject="logs", stream={"foreignPartitions": 8})
    alone = pipeline(partitions=3, subject="logs", stream={"foreignPartitions": 0})

    assert [config["subjects"] for config in logs(desired(wanted))] == [
        ["logs.p0.>", "logs.p3.>", "logs.p6.>"],
        ["logs.p1.>", "logs.p4.>", "logs.p7.>"],
        ["logs.p2.>", "logs.p5.>"],
    ]
    assert [config["subjects"] for config in logs(desired(alone))] == [
        ["logs.p0.>"],
        ["logs.p1.>"],
        ["logs.p2.>"],
    ]


def test_overrides_apply_to_their_partitions_alone() -> None:
    """The duplicate window never exceeds the age, which the server would refuse."""
    override = {"partitions": "1-2,4", "maxBytes": "1Mi", "maxAge": "1m", "maxMsgs": 5}
    streams = logs(desired(pipeline(partitions=5, stream={"overrides": [override]})))

    assert [config["max_msgs"] for config in streams] == [-1, 5, 5, -1, 5]
    assert streams[1]["max_bytes"] == 1024**2
    assert streams[1]["duplicate_window"] == streams[1]["max_age"] == HOUR // 60
    assert streams[0]["duplicate_window"] == HOUR // 30


def test_an_installation_marks_its_streams() -> None:
    """It tells two clusters apart that share one server."""
    wanted = desired(pipeline(stream={"metadata": {"team": "a"}}), installation="uid-1")

    mark = {OWNER_KEY: "default/demo", INSTALLATION_KEY: "uid-1"}
    assert wanted.streams[0].config["metadata"] == mark
    assert logs(wanted)[0]["metadata"] == {"team": "a", **mark}


def test_a_consumer_template_is_made_once_per_partition() -> None:
    """A durable pull consumer by default, acknowledged message by message."""
    made = consumers({"name": "audit"})

    assert made == 3 * [
        {
            "name": "audit",
            "durable_name": "audit",
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "max_deliver": -1,
            "replay_policy": "instant",
            "metadata": {OWNER_KEY: "default/demo"},
        }
    ]


def test_a_push_consumer_delivers_each_partition_to_its_own_subject() -> None:
    """Without a subject of its own, below ``out``, as the 2020 design did."""
    default = {"name": "out", "type": "push", "ackPolicy": "none"}

    assert [c["deliver_subject"] for c in consumers(default)] == [
        f"out.logs.p{number}" for number in range(3)
    ]
    named = consumers({**default, "deliverSubject": "elsewhere", "deliverGroup": "g"})
    assert (named[1]["deliver_subject"], named[1]["deliver_group"]) == ("elsewhere.p1", "g")


def test_a_consumer_of_one_host_is_made_where_that_host_is() -> None:
    """On the other partitions' streams it would wait for nothing."""
    (config,) = consumers({"name": "one", "filterHost": "web1.example.net"})

    assert config["filter_subject"].endswith(".web1.example.net")


def test_a_consumer_may_be_for_some_partitions() -> None:
    """Partitions that are not named have none."""
    assert len(consumers({"name": "some", "partitions": "0-1"})) == 2


def test_a_consumer_that_is_no_durable_outlives_its_readers_restart() -> None:
    """The server's own default would delete it after five seconds."""
    (config, *_) = consumers({"name": "short", "durable": False})

    assert "durable_name" not in config
    assert config["inactive_threshold"] == HOUR


@pytest.mark.parametrize(
    ("text", "numbers"), [("3", {3}), ("0-2", {0, 1, 2}), ("0-1,4", {0, 1, 4}), ("7, 9", {7, 9})]
)
def test_partitions_are_selected_by_numbers_and_ranges(text: str, numbers: set[int]) -> None:
    """Both ends of a range belong to it."""
    assert {number for number in range(12) if selects(text, number)} == numbers


def dead(of: Desired) -> Config:
    """The dead-letter stream."""
    return next(stream.config for stream in of.streams if stream.name.endswith("_dead"))


def test_what_readers_give_up_is_kept_where_a_consumer_may_give_up() -> None:
    """The server says so once: on streams that have a consumer with acknowledgements somebody
    listens always.
    """
    audit = {"name": "audit", "partitions": "1", "maxDeliver": 3}
    silent = {"name": "copy", "ackPolicy": "none"}
    wanted = pipeline(partitions=3, subject="logs", stream={"name": "L"}, consumers=[audit, silent])

    assert dead(desired(wanted))["subjects"] == [
        "_lpd.logs.>",
        "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.L_1.*",
        "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.L_1.*",
    ]


def test_dead_letters_have_limits_of_every_kind() -> None:
    """Bytes, letters, and how much one consumer's flood may hold while nobody makes letters. A full
    stream refuses, and nothing grows too old.
    """
    config = dead(desired(pipeline()))

    assert config["subjects"] == ["_lpd.lp_ddefault_ddemo.>"]
    assert config["discard"] == "new"
    assert "max_age" not in config
    assert config["max_bytes"] > 0
    assert (config["max_msgs"], config["max_msgs_per_subject"]) == (500_000, 10_000)


def test_the_owner_of_external_streams_decides_what_they_keep() -> None:
    """A further group with consumers of its own asks for nothing more."""
    template = {"name": "audit", "maxDeliver": 3}
    spec: dict[str, Any] = {"partitions": 1, "subject": "logs", "consumers": [template]}

    assert len(dead(desired(pipeline(**spec, stream={"name": "L"})))["subjects"]) == 3
    spec["collectors"] = {"group": "second"}
    external = desired(pipeline(**spec, stream={"name": "L", "external": True}))
    assert dead(external)["subjects"] == ["_lpd.logs.>"]
