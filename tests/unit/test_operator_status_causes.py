"""Each thing that can be wrong with a pipeline has its reason, and a sentence that tells what to
do.
"""

from __future__ import annotations

from typing import Any

import pytest

from components.status_facts import (
    NOW,
    PARTITIONS,
    condition,
    jetstream,
    partition,
    pipeline,
    working,
)
from logpipeline.nats.connection import ConnectFailed
from logpipeline.plan.apply import Outcome, Report, Result
from logpipeline.plan.model import FieldChange, Kind, Plan, Problem, Step
from logpipeline.plan.trim import Trimmed
from logpipeline.records import assign
from logpipeline.spec import Mistake, SpecError
from logpipeline_operator.status import (
    Facts,
    Finding,
    Mode,
    Part,
    Reason,
    Sync,
    Workload,
    is_settled,
    status_of,
)
from logpipeline_operator.status import errors as errors_of


def ready(facts: Facts) -> tuple[str, str, str]:
    """Status, reason and message of Ready."""
    return condition(status_of(facts, None, NOW))


def outcome(kind: Kind, result: Result, *fields: str, detail: str = "") -> Outcome:
    """What became of a step on the first stream."""
    changes = tuple(FieldChange(field=each, found=2, wanted=1, kind=kind) for each in fields)
    step = Step(stream="LP_team_prod_0", kind=kind, changes=changes, note="it belongs to other/x")
    return Outcome(step=step, result=result, detail=detail, held=changes)


def reported(*outcomes: Outcome) -> Facts:
    """A look whose changes of streams came to *outcomes*."""
    return working(jetstream=jetstream(report=Report(outcomes=outcomes)))


STREAM_CASES = {
    "held data": (
        outcome(Kind.DELETES_DATA, Result.HELD_BACK, "max_age", "max_bytes"),
        Reason.DATA_LOSS_HELD,
        "kubectl annotate --overwrite logpipeline prod logpipeline.dev/allow-data-loss=3",
    ),
    "partly held data": (
        outcome(Kind.DELETES_DATA, Result.DONE, "max_age"),
        Reason.DATA_LOSS_HELD,
        "changing max_age would delete stored lines",
    ),
    "held consumer": (
        outcome(Kind.DELETE, Result.HELD_BACK),
        Reason.DATA_LOSS_HELD,
        "deleting it would lose its position",
    ),
    "impossible": (
        outcome(Kind.REFUSED, Result.HELD_BACK, "storage"),
        Reason.CHANGE_IMPOSSIBLE,
        "JetStream cannot change storage",
    ),
    "foreign": (
        outcome(Kind.ADOPT_NEEDED, Result.HELD_BACK, "max_age"),
        Reason.FOREIGN_STREAM,
        "belongs to other/x",
    ),
    "account full": (
        outcome(Kind.CREATE, Result.REFUSED, detail="JetStream refused it: no room (10047): …"),
        Reason.ACCOUNT_LIMIT,
        "no room",
    ),
    "refused": (
        outcome(Kind.CREATE, Result.REFUSED, detail="JetStream refused it: odd (10999)"),
        Reason.STREAM_REFUSED,
        "odd",
    ),
    "unknown": (
        outcome(Kind.CREATE, Result.UNKNOWN, detail="no answer"),
        Reason.STREAMS_PENDING,
        "not as the resource asks yet",
    ),
}


@pytest.mark.parametrize(("became", "reason", "words"), STREAM_CASES.values(), ids=STREAM_CASES)
def test_what_became_of_a_stream_is_told(became: Outcome, reason: Reason, words: str) -> None:
    """A change that was held back or refused says so, and how to go on."""
    status = status_of(reported(became), None, NOW)

    for kind in ("Ready", "StreamsReady"):
        truth, word, message = condition(status, kind)
        assert (truth, word) == ("False", reason.word)
        assert words in message


FACT_CASES: dict[str, tuple[dict[str, Any], Reason, str]] = {
    "no collectors wanted": (
        {
            "pipeline": pipeline(collectors={"replicas": 0}),
            "collectors": Workload(wanted=0),
        },
        Reason.COLLECTORS_SCALED_TO_ZERO,
        "replicas",
    ),
    "collector missing": (
        {"collectors": Workload(wanted=2, present=2, ready=1, updated=2)},
        Reason.COLLECTORS_NOT_READY,
        "1 of 2 collectors ready",
    ),
    "collectors unseen": ({"collectors": None}, Reason.COLLECTORS_NOT_READY, "StatefulSet"),
    "rolling": (
        {"collectors": Workload(wanted=2, present=2, ready=2, updated=1)},
        Reason.COLLECTORS_UPDATING,
        "1 of 2 collectors run the current configuration",
    ),
    "scaling down": (
        {"collectors": Workload(wanted=2, present=4, ready=4, updated=4)},
        Reason.COLLECTORS_UPDATING,
        "2 collectors more than wanted",
    ),
    "not acted on": (
        {"collectors": Workload(wanted=2, present=2, ready=2, updated=2, is_current=False)},
        Reason.COLLECTORS_NOT_READY,
        "not acted",
    ),
    "shipper missing": (
        {"shippers": Workload(wanted=3, present=3, ready=2, updated=3)},
        Reason.SHIPPERS_NOT_READY,
        "2 of 3 shippers ready",
    ),
    "no nodes": ({"shippers": Workload(wanted=0)}, Reason.NO_NODES, "nodeSelector"),
    "nats pod": (
        {"nats": Workload(wanted=3, present=3, ready=2, updated=3)},
        Reason.NATS_NOT_READY,
        "2 of 3 nats-servers ready",
    ),
    "no stream": (
        {"jetstream": jetstream(partition(2, is_there=False))},
        Reason.STREAMS_PENDING,
        "partitions without a stream: 2",
    ),
    "not owned": (
        {"jetstream": jetstream(partition(1, owner=""), partition(2, released=True))},
        Reason.PARTITIONS_MOVING,
        "no collector has taken yet: 1-2",
    ),
    "owned by another": (
        {"jetstream": jetstream(partition(3, owner="prod-collector-9"))},
        Reason.PARTITIONS_MOVING,
        ": 3",
    ),
    "stalled": (
        {"jetstream": jetstream(partition(3, lag_messages=7, lag_bytes=9, lag_s=100.0))},
        Reason.PARTITIONS_STALLED,
        "in partitions 3 (owned by prod-collector-1)",
    ),
    "trimming-held": (
        {
            "trimmed": tuple(
                Trimmed(stream=stream, fill=0.95, below=0, messages=0, held_by="group old")
                for stream in ("LP_team_prod_0", "LP_team_prod_3")
            )
        },
        Reason.TRIMMING_HELD_BACK,
        "LP_team_prod_0, LP_team_prod_3: more than 90 % full, and cannot be trimmed "
        "(held by: group old)",
    ),
    "overlap": (
        {
            "jetstream": jetstream(
                plan=Plan(
                    pipeline="team/prod",
                    problems=(Problem("subjects-overlap", "stream X stores them: choose others"),),
                )
            )
        },
        Reason.SUBJECTS_OVERLAP,
        "choose others",
    ),
    "pending in read-only": (
        {"mode": Mode.READ_ONLY, "pending": ("apply StatefulSet prod-collector",)},
        Reason.READ_ONLY,
        "these changes wait: apply StatefulSet prod-collector. To let the operator change",
    ),
    "pending stream": (
        {
            "mode": Mode.PAUSED,
            "jetstream": jetstream(
                report=None,
                plan=Plan(pipeline="team/prod", steps=(Step(stream="S_0", kind=Kind.CREATE),)),
            ),
        },
        Reason.PAUSED,
        "create stream S_0",
    ),
}


@pytest.mark.parametrize(("changes", "reason", "words"), FACT_CASES.values(), ids=FACT_CASES)
def test_what_does_not_work_is_told(changes: dict[str, Any], reason: Reason, words: str) -> None:
    """Whatever keeps a pipeline from working is what Ready says."""
    truth, word, message = ready(working(**changes))

    assert (truth, word) == ("False", reason.word)
    assert words in message


def test_a_spec_that_is_wrong_is_the_first_cause() -> None:
    """All mistakes are told at once, and what is known of before stays."""
    before = status_of(working(), None, NOW)
    both = (Mistake("spec.partitions", "must be 1024 at most"), Mistake("spec.x", "?"))
    mistakes = SpecError(both)
    unseen = working(
        pipeline=None, mistakes=mistakes, jetstream=None, collectors=None, shippers=None
    )
    status = status_of(unseen, before, NOW)

    truth, word, message = condition(status)
    assert (truth, word) == ("False", "InvalidSpec")
    assert "2 mistakes: spec.partitions: must be 1024 at most, spec.x: ?" in message
    assert condition(status, "StreamsReady")[:2] == ("Unknown", "InvalidSpec")
    assert condition(status, "CollectorsAvailable")[:2] == ("Unknown", "InvalidSpec")
    for kept in ("partitions", "subject", "streams", "collectors", "shippers"):
        assert status[kept] == before[kept]


def test_the_root_cause_wins() -> None:
    """A claim without a storage class is the reason, not the silence of the server without disk."""
    unreachable = errors_of.of_nats(ConnectFailed("cannot connect to NATS at x: no server there"))
    unbound = Finding(reason=Reason.CLAIM_UNBOUND, part=Part.NATS, what="prod-nats-0: no class")
    down = Workload(wanted=1, present=1)
    facts = working(findings=[unreachable, unbound], nats=down, jetstream=None)

    status = status_of(facts, None, NOW)
    assert condition(status)[1] == "ClaimUnbound"
    assert condition(status, "StreamsReady")[:2] == ("Unknown", "ClaimUnbound")
    assert status["lag"] == "unknown"


def test_who_catches_up_works() -> None:
    """A backlog of hours is no fault while it is being written to files."""
    behind = partition(0, lag_messages=10**6, lag_bytes=2**30, lag_s=7200.0)

    assert ready(working(jetstream=jetstream(behind, commit_ages_s={0: 1.0})))[0] == "True"
    assert ready(working(jetstream=jetstream(behind, commit_ages_s={0: 61.0})))[0] == "False"
    assert ready(working(jetstream=jetstream(behind)))[0] == "False"


def test_a_pause_alone_keeps_nothing_from_working() -> None:
    """A paused pipeline that is as wanted goes on shipping, and stays Ready."""
    status = status_of(working(mode=Mode.PAUSED), None, NOW)

    assert condition(status)[0] == "True"
    assert condition(status, "Paused")[:2] == ("True", "Paused")


@pytest.mark.parametrize(
    ("changes", "truth", "reason"),
    [
        ({}, "True", "SyncAlways"),
        ({"sync": Sync(interval="2m")}, "False", "SyncDelayed"),
        ({"sync": Sync(why_unknown="no spec.nats.monitoringUrl")}, "Unknown", "SyncUnknown"),
        ({"pipeline": pipeline(stream={"storage": "memory"})}, "False", "MemoryStorage"),
    ],
)
def test_durable_says_what_is_known(changes: dict[str, Any], truth: str, reason: str) -> None:
    """Durable claims nothing that was not seen; and without it a pipeline still works."""
    status = status_of(working(**changes), None, NOW)

    assert condition(status, "Durable")[:2] == (truth, reason)
    assert condition(status)[0] == "True"


def test_lost_bytes_are_told_and_keep_nothing_from_working() -> None:
    """What is lost stays lost: the pipeline goes on, and says so."""
    state = jetstream(partition(1, lost_bytes=2048), partition(3, lost_bytes=1))
    status = status_of(working(jetstream=state), None, NOW)
    unseen = status_of(working(jetstream=None), status, NOW)

    assert condition(status, "Complete")[:2] == ("False", "BytesLost")
    message = next(each["message"] for each in status["conditions"] if each["type"] == "Complete")
    assert message.startswith("2049 bytes are lost, in partitions 1, 3")
    assert status["lost"] == unseen["lost"] == "2 KiB"
    assert condition(unseen, "Complete")[0] == "Unknown"
    assert condition(status)[0] == "True"
    assert status["lostBytes"] == unseen["lostBytes"] == 2049
    assert status_of(working(), None, NOW)["lost"] == "nothing"


def test_missing_bytes_are_told_and_are_not_lost() -> None:
    """What may still come is no loss; where nobody can look, the last word stays."""
    state = jetstream(partition(1, missing_bytes=2048), partition(3, missing_bytes=1))
    status = status_of(working(jetstream=state), None, NOW)
    unseen = status_of(working(jetstream=None), status, NOW)
    never = status_of(working(jetstream=None), {"missingBytes": -1, "lostBytes": "x"}, NOW)

    assert (status["missing"], status["missingBytes"]) == ("2 KiB", 2049)
    assert (unseen["missing"], unseen["missingBytes"]) == ("2 KiB", 2049)
    assert (never["missing"], never.keys() & {"missingBytes", "lostBytes"}) == ("unknown", set())
    assert condition(status, "Complete")[:2] == ("True", "NothingLost")


@pytest.mark.parametrize(
    ("shippers", "truth", "reason"),
    [
        ({"mode": "sidecar"}, "Unknown", "Sidecars"),
        ({"enabled": False}, "True", "ShippersDisabled"),
    ],
)
def test_without_a_daemonset_none_is_waited_for(
    shippers: dict[str, Any], truth: str, reason: str
) -> None:
    """Sidecars are nobody's to count, and where none is wanted none is missing."""
    facts = working(pipeline=pipeline(shippers=shippers), shippers=None)
    status = status_of(facts, None, NOW)

    assert condition(status, "ShippersAvailable")[:2] == (truth, reason)
    assert condition(status)[0] == "True"


def test_warnings_of_the_plan_stand_with_the_streams() -> None:
    """What applying does not run into is told where the streams are, and keeps nothing back."""
    warning = Problem("many-replicated-assets", "use fewer partitions", is_blocking=False)
    facts = working(jetstream=jetstream(plan=Plan(pipeline="team/prod", problems=(warning,))))

    status = status_of(facts, None, NOW)
    assert condition(status)[0] == "True"
    assert "Warning: use fewer partitions." in condition(status, "StreamsReady")[2]


def test_what_passes_by_itself_is_not_settled() -> None:
    """The next look comes soon while something is under way, and later when a human must act."""
    starting = working(collectors=Workload(wanted=2, present=2, updated=2))
    wrong = working(findings=[errors_of.of_secret("the Secret x does not exist")])

    assert is_settled(status_of(working(), None, NOW))
    assert is_settled(status_of(wrong, None, NOW))
    assert not is_settled(status_of(starting, None, NOW))


def test_assignments_stand_in_the_order_of_collectors() -> None:
    """The tenth collector comes after the ninth, as people count."""
    names = [f"prod-collector-{number}" for number in range(12)]
    shares = assign([*reversed(names)], partitions=PARTITIONS, generation=1)
    status = status_of(working(jetstream=jetstream(assignment=shares)), None, NOW)

    assert [row["name"] for row in status["collectors"]["assignments"]] == names
    assert status["collectors"]["assignments"][1]["partitions"] == "none"


def test_the_figures_are_what_columns_and_autoscalers_read() -> None:
    """Counts, assignments, selector, names and version stand where `kubectl get` looks."""
    status = status_of(working(), None, NOW)

    assert status["observedGeneration"] == 3
    assert (status["partitions"], status["streams"]) == (4, "LP_team_prod")
    assert status["subject"] == "lp.team.prod"
    assert status["version"] == "0.1.0"
    assert status["nats"] == {"ready": "1/1"}
    assert status["shippers"] == {
        "desired": 3,
        "readyPods": 3,
        "ready": "3/3",
        "notReadyNodes": "",
        "behind": 0,
        "behindNodes": "",
    }
    assert status["collectors"] == {
        "replicas": 2,
        "readyReplicas": 2,
        "ready": "2/2",
        "selector": "app.kubernetes.io/component=collector,app.kubernetes.io/instance=prod,"
        "app.kubernetes.io/name=logpipeline",
        "assignments": [
            {"name": "prod-collector-0", "partitions": "0-1"},
            {"name": "prod-collector-1", "partitions": "2-3"},
        ],
    }


@pytest.mark.parametrize(
    "trimmed",
    [
        {"fill": 0.95, "below": 7, "held_by": "group main"},
        {"fill": 0.6, "below": 0, "held_by": "group main"},
        # A table has a reason of its own.
        {"fill": 0.95, "below": 0, "held_by": "table team/prod"},
    ],
)
def test_a_stream_with_room_or_that_gets_some_is_no_problem(trimmed: dict[str, Any]) -> None:
    """Nor one that only a table holds back, which the status says in another way."""
    facts = working(trimmed=(Trimmed(stream="LP_team_prod_0", messages=0, **trimmed),))

    assert ready(facts)[0] == "True"


def test_a_stream_that_refuses_nothing_need_not_be_trimmed() -> None:
    """With `discard: old` the server makes room itself."""
    held = Trimmed(stream="LP_team_prod_0", fill=1.0, below=0, messages=0, held_by="group old")
    facts = working(pipeline=pipeline(stream={"discard": "old"}), trimmed=(held,))

    assert ready(facts)[0] == "True"
