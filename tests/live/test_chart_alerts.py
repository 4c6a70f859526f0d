"""The chart's alerts fire when they should, and only then, as Prometheus' engine evaluates them."""

from __future__ import annotations

import pytest

from alerting import STEPS_IN_15_MIN, Series, Value, chart_rules, firing, local_rules, yielded
from go_programs import BUILT_WITHIN_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(BUILT_WITHIN_S + 120)]

WINDOW = STEPS_IN_15_MIN
POD = {"namespace": "logging", "pod": "prod-0", "instance": "10.0.0.1:9102"}
# What counts something that a person has to hear of: the alert, the metric, and its own labels.
COUNTED = [
    ("BytesLost", "logpipeline_shipper_missing_bytes_total", {}),
    ("BytesLost", "logpipeline_shipper_unhealed_bytes_total", {}),
    ("BytesLost", "logpipeline_shipper_dropped_bytes_total", {}),
    ("BytesLost", "logpipeline_collector_newly_lost_bytes_total", {"partition": "1"}),
    ("FilesUnseen", "logpipeline_shipper_unseen_generations_total", {}),
    ("FilesDamaged", "logpipeline_collector_newly_damaged_bytes_total", {"partition": "1"}),
    (
        "FilesRemovedForRoom",
        "logpipeline_collector_removed_bytes_total",
        {"partition": "1", "reason": "disk"},
    ),
    ("MessagesLost", "logpipeline_collector_missed_messages_total", {"partition": "1"}),
    (
        "DeadLetters",
        "logpipeline_collector_dead_letters_total",
        {"partition": "1", "reason": "bad-version", "kept": "yes"},
    ),
    (
        "DeadLettersNotKept",
        "logpipeline_collector_dead_letters_total",
        {"partition": "1", "reason": "bad-version", "kept": "no"},
    ),
    ("LoginsRefused", "logpipeline_callout_refused_total", {"reason": "bad-token"}),
    ("VolumeGone", "logpipeline_collector_gone_folders_total", {"partition": "1"}),
    ("RecordsDiffer", "logpipeline_collector_recovery_warnings_total", {"partition": "1"}),
    ("BytesLost", "logpipeline_shipper_unnamed_bytes_total", {}),
    ("RolledBack", "logpipeline_collector_rolled_back_total", {"partition": "1"}),
    (
        "TableMissesLines",
        "logpipeline_operator_pipeline_table_missed_messages",
        {"name": "prod"},
    ),
    (
        "ReaderMissesLines",
        "logpipeline_operator_pipeline_readers_missed_messages",
        {"name": "prod"},
    ),
]
IDS = [f"{alert}-{metric}" for alert, metric, _ in COUNTED]
# What a process counts ends with it; what the pipeline keeps goes on where another one serves it.
OF_PROCESSES = [each for each in COUNTED if "_pipeline_" not in each[1]]


def fired(alert: str, *series: Series) -> list[list[float]]:
    """The values with which the chart's *alert* fires in each step."""
    return firing(chart_rules()[f"LogPipeline{alert}"], *series)


@pytest.mark.parametrize(("alert", "metric", "labels"), COUNTED, ids=IDS)
def test_an_alert_fires_for_a_count_that_is_born_above_zero(
    alert: str, metric: str, labels: dict[str, str]
) -> None:
    """A new pod counts before it is scraped first, and a label's first value comes with the count:
    Prometheus has no sample from before it.
    """
    born: list[Value] = [*[None] * 10, *[7.0] * (2 * WINDOW)]

    found = fired(alert, Series(metric, POD | labels, born))

    assert found[10] == [7]
    assert found[10 + WINDOW + 1 :] == [[]] * (WINDOW - 1)


@pytest.mark.parametrize(("alert", "metric", "labels"), COUNTED, ids=IDS)
def test_an_alert_fires_for_a_count_that_grows_and_not_for_one_that_stays(
    alert: str, metric: str, labels: dict[str, str]
) -> None:
    """Nor for what was counted before Prometheus was away for some time."""
    away = WINDOW + 10
    stays = [20.0] * (2 * WINDOW)
    values: list[Value] = [*stays, *[None] * away, *stays, *[31.0] * WINDOW]

    found = fired(alert, Series(metric, POD | labels, values))

    grown = 2 * len(stays) + away
    assert found[WINDOW + 1 : grown] == [[]] * (grown - WINDOW - 1)
    assert found[grown] != []


@pytest.mark.parametrize(("alert", "metric", "labels"), OF_PROCESSES)
def test_an_alert_fires_for_what_the_next_process_counts(
    alert: str, metric: str, labels: dict[str, str]
) -> None:
    """It begins anew, below what its predecessor had; an end is no count."""
    before: list[Value] = [20.0] * (2 * WINDOW)
    silent = [*before, *[None] * 5, *[0.0] * WINDOW]
    counting = [*before, *[None] * 5, *[7.0] * WINDOW]

    assert fired(alert, Series(metric, POD | labels, silent))[WINDOW + 1 :] == [[]] * (
        len(silent) - WINDOW - 1
    )
    assert fired(alert, Series(metric, POD | labels, counting))[len(before) + 5] == [7]


@pytest.mark.parametrize(("alert", "metric", "labels"), COUNTED, ids=IDS)
def test_no_alert_fires_for_nothing(alert: str, metric: str, labels: dict[str, str]) -> None:
    """A new pod counts from 0."""
    born: list[Value] = [None, None, *[0.0] * WINDOW]

    assert fired(alert, Series(metric, POD | labels, born)) == [[]] * len(born)


def test_lost_bytes_of_all_causes_are_added() -> None:
    """The number in the alert is that of the pod."""
    shipper = "logpipeline_shipper"
    counts = {"missing": 7.0, "unhealed": 20.0, "dropped": 0.0}
    series = [
        Series(f"{shipper}_{cause}_bytes_total", POD, [0.0] * 40 + [count] * 3)
        for cause, count in counts.items()
    ]

    assert fired("BytesLost", *series)[41] == [27]


def test_an_alert_says_once_that_a_pipeline_is_not_complete_any_more() -> None:
    """Whatever it lost, and wherever: the status says it for ever. Another operator is no news."""
    name = "logpipeline_operator_pipeline_complete"
    place = {"namespace": "logging", "name": "prod"}
    before: list[Value] = [*[1.0] * WINDOW, *[0.0] * (2 * WINDOW), *[None] * (2 * WINDOW)]
    after: list[Value] = [*[None] * (3 * WINDOW), *[0.0] * (2 * WINDOW)]

    found = fired(
        "Incomplete",
        Series(name, place | {"pod": "a"}, before),
        Series(name, place | {"pod": "b"}, after),
    )

    assert found[WINDOW - 1 : WINDOW + 1] == [[], [0]]
    assert found[2 * WINDOW + 1 :] == [[]] * (3 * WINDOW - 1)


def test_a_gone_volume_is_no_record_that_differs_as_well() -> None:
    """The collector warns of it, too."""
    born: list[Value] = [None, 1.0]
    names = ("gone_folders_total", "recovery_warnings_total")
    series = [Series(f"logpipeline_collector_{name}", POD, born) for name in names]

    assert fired("VolumeGone", *series)[1] == [1]
    assert fired("RecordsDiffer", *series)[1] == []


@pytest.mark.parametrize("component", ["collector", "shipper"])
@pytest.mark.parametrize("is_scraped", [True, False])
def test_an_alert_says_that_a_component_is_not_scraped(component: str, is_scraped: bool) -> None:
    """Every other alert about it is over nothing then, and stays silent."""
    steps = 2 * WINDOW
    place = {"namespace": "logging", "name": "prod"}
    own = {"collector": "commit_seconds_count", "shipper": "sources"}
    ready = [
        Series(f"logpipeline_operator_pipeline_{each}s_ready", place, [2.0] * steps) for each in own
    ]
    scraped = [
        Series(f"logpipeline_{each}_{name}", POD, [0.0] * steps)
        for each, name in own.items()
        if is_scraped or each != component
    ]

    found = fired("NotScraped", *ready, *scraped)

    assert found[WINDOW - 1] == []
    assert found[-1] == ([] if is_scraped else [2])


def test_alerts_of_one_machine_fire_there() -> None:
    """With their limits, which a capital word would never reach."""
    behind = Series("logpipeline_collector_lag_seconds", POD, [301.0] * (WINDOW + 2))

    assert firing(local_rules()["LogPipelineCollectorBehind"], behind)[-1] == [301]


@pytest.mark.parametrize("rules", [chart_rules(), local_rules()], ids=["chart", "local"])
def test_every_alert_is_an_expression(rules: dict[str, dict[str, object]]) -> None:
    """Prometheus' engine takes it; a rule that it refuses takes all others of its file along."""
    for rule in rules.values():
        yielded(str(rule["expr"]), Series("up", POD, [1.0]))
