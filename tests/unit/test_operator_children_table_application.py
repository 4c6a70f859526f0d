"""The table as a SparkApplication of either operator for Spark."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.child_manifests import UID, child, children, resource
from cluster.child_manifests import settings as child_settings
from cluster.restricted_pods import restricted_faults
from components.status_facts import NOW, condition, pipeline, with_table
from logpipeline_operator.children import Component, Manifest, NoSparkApi, build, kinds
from logpipeline_operator.cluster.kinds import SPARK_APACHE, SPARK_KUBEFLOW
from logpipeline_operator.differences import changes
from logpipeline_operator.status import pods, status_of
from logpipeline_operator.status.errors import of_undecided
from logpipeline_operator.status.reasons import Reason
from tables.applications import SHAPES, misfits

APIS = (SPARK_APACHE, SPARK_KUBEFLOW)
TABLE: dict[str, Any] = {
    "enabled": True,
    "runner": "sparkApplication",
    "path": "s3://logs/prod",
    "s3": {"secret": {"name": "keys"}},
    "driverMemory": "2Gi",
    "executors": {"instances": 3, "cores": 2, "memory": "4Gi"},
    "imagePullPolicy": "Always",
}


def made(api: str, **table: Any) -> list[Manifest]:
    """The children where the cluster has the operator of *api*."""
    settings = child_settings(spark_api=api, spark_role="ClusterRole/spark")
    return children({"table": {**TABLE, **table}}, settings)


def application(api: str, **table: Any) -> Manifest:
    """The one application."""
    (found,) = (m for m in made(api, **table) if m["kind"] == "SparkApplication")
    return found


def templates(api: str) -> tuple[Manifest, Manifest]:
    """The pods of driver and executors."""
    spec = application(api)["spec"]
    if api == SPARK_APACHE:
        return spec["driverSpec"]["podTemplateSpec"], spec["executorSpec"]["podTemplateSpec"]
    return spec["driver"]["template"], spec["executor"]["template"]


@pytest.mark.parametrize("api", APIS)
def test_an_application_has_the_shape_that_its_operator_takes(api: str) -> None:
    """No field that it does not know, and each of the type that it wants."""
    found = application(api)

    assert found["apiVersion"] == api
    assert misfits(found["spec"], SHAPES[api]) == []


def test_a_wrong_shape_is_noticed() -> None:
    """The check itself knows what is missing, unknown, or of another type."""
    spec = application(SPARK_APACHE)["spec"]
    wrong = {**spec, "pyFiles": 1, "sparkConf": {"a": True}, "more": ""}
    del wrong["driverArgs"]

    assert sorted(misfits(wrong, SHAPES[SPARK_APACHE])) == [
        "spec.driverArgs is missing", "spec.more is not known", "spec.pyFiles is no str",
        "spec.sparkConf.a is no str",
    ]  # fmt: skip


def test_both_operators_are_asked_for_the_same() -> None:
    """So many executors of such a size, with the table's image and account."""
    apache = application(SPARK_APACHE)["spec"]
    kubeflow = application(SPARK_KUBEFLOW)["spec"]
    conf, executor = apache["sparkConf"], kubeflow["executor"]

    assert conf["spark.executor.instances"] == str(executor["instances"]) == "3"
    assert conf["spark.executor.cores"] == str(executor["cores"]) == "2"
    assert conf["spark.executor.memory"] == executor["memory"] == "4096m"
    assert conf["spark.driver.memory"] == kubeflow["driver"]["memory"] == "2048m"
    assert conf["spark.kubernetes.container.image"] == kubeflow["image"] == "a:1"
    assert apache["driverArgs"] == kubeflow["arguments"]
    assert apache["pyFiles"] == kubeflow["mainApplicationFile"]
    account = "spark.kubernetes.authenticate.driver.serviceAccountName"
    assert conf[account] == kubeflow["driver"]["serviceAccount"] == "prod-table"
    for spec in (apache, kubeflow):
        assert spec["sparkConf"]["spark.kubernetes.container.image.pullPolicy"] == "Always"


def test_an_application_is_started_again_for_ever() -> None:
    """Apache's operator gives up after three times, unless it is told to forget them."""
    restart = application(SPARK_APACHE)["spec"]["applicationTolerations"]["restartConfig"]

    assert restart["restartPolicy"] == "Always"
    assert restart["restartCounterResetMillis"] > 0
    assert application(SPARK_KUBEFLOW)["spec"]["restartPolicy"] == {"type": "Always"}


@pytest.mark.parametrize("api", APIS)
def test_its_pods_are_as_restricted_as_ours(api: str) -> None:
    """Found by the same labels, and without a command: Spark adds its own."""
    components = []
    for template in templates(api):
        (container,) = template["spec"]["containers"]
        assert restricted_faults(template["spec"]) == []
        assert container["args"] == []
        components.append(template["metadata"]["labels"]["app.kubernetes.io/component"])

    assert components == ["table", "executor"]


@pytest.mark.parametrize("api", APIS)
def test_a_driver_knows_that_it_was_submitted(api: str) -> None:
    """The master is the submission's, and not its own choice."""
    driver, _ = templates(api)
    names = {each["name"] for each in driver["spec"]["containers"][0]["env"]}

    assert "LOGPIPELINE_SPARK_SUBMITTED" in names
    assert "LOGPIPELINE_SPARK_MASTER" not in names


@pytest.mark.parametrize("api", APIS)
def test_a_change_is_another_application(api: str) -> None:
    """Apache's operator does not act on a change of one that runs."""
    first = application(api)["metadata"]["name"]

    assert first == application(api)["metadata"]["name"]
    assert first != application(api, maxBytesPerBatch="64Mi")["metadata"]["name"]
    assert first.startswith("prod-table-")


@pytest.mark.parametrize("api", APIS)
def test_what_stands_around_it_is_made_by_us(api: str) -> None:
    """Configuration, account, the right to make executors; and no set of pods of our own."""
    found = made(api)

    for kind in ("ConfigMap", "Service", "ServiceAccount", "RoleBinding"):
        child(found, kind, "prod-table")
    assert not [m for m in found if m["kind"] == "StatefulSet" and "table" in str(m["metadata"])]
    known = {(each.group_version, each.name) for each in kinds(child_settings(spark_api=api))}
    assert (api, "SparkApplication") in known


def test_without_an_operator_for_spark_the_condition_says_what_to_do() -> None:
    """Nothing is made of the table, and everything else goes on."""
    desired = build(resource({"table": TABLE}), child_settings(spark_api=""))
    why = desired.undecided[Component.TABLE]
    facts = with_table(pipeline=pipeline(table=TABLE), table=None, findings=[of_undecided(why)])
    status, reason, message = condition(status_of(facts, None, NOW), "TableRunning")

    assert not [m for m in desired.manifests if "table" in m["metadata"]["name"]]
    assert child(desired.manifests, "StatefulSet", "prod-collector")
    assert (status, reason) == ("False", "SparkOperatorMissing")
    assert "Install one" in message


def test_while_kubernetes_does_not_say_what_it_has_the_reason_says_so() -> None:
    """Advice to install an operator for Spark would be wrong: there may be one."""
    desired = build(resource({"table": TABLE}), child_settings(spark_api=None))
    why = desired.undecided[Component.TABLE]

    assert isinstance(why, NoSparkApi)
    assert of_undecided(why).reason is Reason.KUBERNETES_AWAY


@pytest.mark.parametrize("api", ["", None])
def test_an_application_s_surroundings_stay_while_there_is_no_api_for_it(api: str | None) -> None:
    """A driver that runs needs its account and its configuration; it may be only the API that is
    gone, or that cannot be asked.
    """
    there = made(SPARK_APACHE)
    desired = build(resource({"table": TABLE}), child_settings(spark_api=api))
    found = changes(desired, there, owner_uid=UID, pipeline="prod", may_adopt=False)

    assert found.delete == ()


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({"currentState": {"currentStateSummary": "RunningHealthy"}}, 1),
        ({"currentState": {"currentStateSummary": "DriverReady"}}, 1),
        ({"currentState": {"currentStateSummary": "Submitted"}}, 0),
        ({"currentState": {"currentStateSummary": "Failed", "message": "no driver"}}, 0),
        ({"applicationState": {"state": "RUNNING"}}, 1),
        ({"applicationState": {"state": "FAILED", "errorMessage": "no driver"}}, 0),
        ({}, 0),
    ],
)
def test_its_operator_s_word_is_what_is_told(status: dict[str, Any], ready: int) -> None:
    """Whether the driver works, and else why not, in the operator's own words."""
    manifest = {**application(SPARK_APACHE), "status": status}
    workload = pods.spark_application([manifest])
    found = pods.spark_problems([manifest])

    assert workload is not None
    assert (workload.wanted, workload.ready) == (1, ready)
    is_told = "no driver" in str(status)
    assert [finding.what.endswith("no driver") for finding in found] == [True] * is_told


def test_where_there_is_no_application_nothing_runs() -> None:
    """Its workload is none, which the condition tells."""
    assert pods.spark_application([]) is None
