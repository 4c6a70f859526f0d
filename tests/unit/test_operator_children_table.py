"""The table's children: a pod that keeps the table, and the pods of its executors."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.child_manifests import built, child, children, pod_spec, resource
from cluster.child_manifests import settings as child_settings
from cluster.restricted_pods import restricted_faults
from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.children import (
    Manifest,
    config,
    credentials,
    nats_conf,
    table,
)
from logpipeline_operator.children.model import SPARK_BLOCKS_PORT, SPARK_DRIVER_PORT
from logpipeline_operator.children.policies import build as policies
from logpipeline_spark.job import kubernetes
from logpipeline_spark.job.settings import settings_of

SETTINGS_SPARK = child_settings(spark_role="ClusterRole/makes-executors")
BUCKET: dict[str, Any] = {
    "path": "s3://logs/prod",
    "s3": {"endpoint": "http://s3.example.net:9000", "secret": {"name": "keys"}},
}
NATIVE: dict[str, Any] = {"runner": "native", "executors": {"instances": 2}, **BUCKET}
NAME = "prod-table"


def made(table: dict[str, Any] | None = None, **spec: Any) -> list[Manifest]:
    """The children of a pipeline that keeps a table."""
    return children({"table": {"enabled": True, **(table or {})}, **spec}, SETTINGS_SPARK)


def pod_of(manifests: list[Manifest]) -> Manifest:
    """The table's pod."""
    return pod_spec(child(manifests, "StatefulSet", NAME))


def executor_of(manifests: list[Manifest]) -> Manifest:
    """The template of executors, as Spark reads it."""
    pod: Manifest = yaml.safe_load(child(manifests, "ConfigMap", NAME)["data"]["executor.yaml"])
    return pod


def mounts(pod: Manifest) -> dict[str, Manifest]:
    """What the one container of *pod* mounts, by volume."""
    (container,) = pod["containers"]
    return {mount["name"]: mount for mount in container["volumeMounts"]}


def environment(pod: Manifest) -> dict[str, Any]:
    """The variables of the one container of *pod*."""
    (container,) = pod["containers"]
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def read_back(manifests: list[Manifest]) -> LogPipeline:
    """The resource as the job reads it from its ConfigMap."""
    return parse(yaml.safe_load(child(manifests, "ConfigMap", NAME)["data"][config.FILE]))


def of_table(manifests: list[Manifest]) -> set[str]:
    """Kinds of what belongs to the table."""
    return {
        m["kind"]
        for m in manifests
        if m["metadata"]["labels"].get("app.kubernetes.io/component") in ("table", "executor")
    }


def test_there_is_a_table_where_one_is_asked_for() -> None:
    """And nothing of it without: what was there before is found by its kind, and deleted."""
    assert of_table(children({})) == set()
    assert of_table(made()) == {"ConfigMap", "Service", "ServiceAccount", "StatefulSet"}
    assert "ServiceAccount" not in of_table(made({"serviceAccountName": "mine"}))


@pytest.mark.parametrize(
    "table",
    [{}, NATIVE, {"persistence": {"existingClaim": "c"}}, {"persistence": {"emptyDir": {}}}],
)
def test_its_pods_pass_the_restricted_standard(table: dict[str, Any]) -> None:
    """The driver's and the executors'; nothing is written outside of volumes."""
    manifests = made(table)
    pods = [pod_of(manifests)]
    if table is NATIVE:
        pods.append(executor_of(manifests)["spec"])

    for pod in pods:
        assert restricted_faults(pod) == []
        assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in pod["containers"])


def test_the_job_reads_what_the_pipeline_says() -> None:
    """Its settings, from its ConfigMap, are those that the whole resource gives."""
    spec = {
        "cluster": "c", "partitions": 7, "subject": "logs", "stream": {"name": "LOGS"},
        "table": {
            "enabled": True, "path": "s3://logs/prod", "format": "iceberg", "every": "20s",
            "catalog": {"table": "logs.prod"}, "maxBytesPerBatch": "64Mi",
            "rollups": {"enabled": False}, "retention": {"maxAge": "9d", "maxBytes": "9Gi"},
            "compaction": {"enabled": False, "targetBytes": "64Mi", "words": True},
            "driverMemory": "2Gi",
            "trigger": "schedule", "runner": "native", "executors": {"instances": 3},
            "s3": {"endpoint": "http://s3:9000", "region": "eu-west-1"},
            "parse": [{"format": "json", "fields": [{"name": "status", "type": "int"}]}],
            "time": [{"format": "klog"}], "zone": "Europe/Berlin",
        },
    }  # fmt: skip

    def told(pipeline: LogPipeline) -> dict[str, Any]:
        nats = config.nats_options(resource(spec), Path("/x"))
        made = settings_of(pipeline, key="k", path="/t", folder=Path("/f"), nats=nats)
        return {field.name: getattr(made, field.name) for field in fields(made)}

    whole = resource(spec)
    assert told(read_back(children(spec))) == told(whole)
    # A field that stands here at its default would not be missed.
    same = {name for name, value in told(whole).items() if value == told(resource({}))[name]}
    assert same == {
        *("pipeline", "folder", "nats", "key", "holder", "master"),
        *("begin", "stops_on_loss"),
    }


def test_on_schedule_the_job_waits_in_its_pod() -> None:
    """It ends its JVM between two runs, and itself only when it is asked to."""
    table = read_back(made({"trigger": "schedule"})).spec.table

    assert (table.trigger, table.interval_ns) == ("schedule", 3600 * 10**9)


@pytest.mark.parametrize(
    ("table", "path", "source"),
    [
        ({"persistence": {"existingClaim": "c"}}, "/table", "persistentVolumeClaim"),
        ({"persistence": {"emptyDir": {"sizeLimit": "1Gi"}}}, "/table", "emptyDir"),
        ({}, "/table", None),
        ({"path": "/srv/tables"}, "/srv/tables", None),
        ({"path": "${DATA}/tables"}, "/table", None),
    ],
)
def test_a_table_in_a_folder_has_a_folder_of_its_volume(
    table: dict[str, Any], path: str, source: str | None
) -> None:
    """At the path that the job is told, in whatever volume was chosen."""
    manifests = made(table)
    pod = pod_of(manifests)
    (volume,) = [v for v in pod["volumes"] if v["name"] == "table"] or [{"name": "claim"}]
    spec = child(manifests, "StatefulSet", NAME)["spec"]

    assert read_back(manifests).spec.table.path == path
    assert mounts(pod)["table"] == {"name": "table", "mountPath": path, "subPath": "prod"}
    assert (source in volume) is (source is not None)
    assert ("volumeClaimTemplates" in spec) is (source is None)


def test_a_claim_of_its_own_is_what_the_resource_says() -> None:
    """Its size, its class, and what becomes of it."""
    persistence = {
        "size": "9Gi", "storageClassName": "fast", "retentionPolicy": {"whenDeleted": "Delete"},
    }  # fmt: skip
    spec = child(made({"persistence": persistence}), "StatefulSet", NAME)["spec"]
    (claim,) = spec["volumeClaimTemplates"]

    assert claim["spec"]["resources"] == {"requests": {"storage": "9Gi"}}
    assert claim["spec"]["storageClassName"] == "fast"
    assert spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


def test_a_table_in_a_bucket_needs_keys_and_no_volume() -> None:
    """The keys come from their Secret, and stand in no manifest."""
    manifests = made(BUCKET)
    known = environment(pod_of(manifests))

    assert "table" not in mounts(pod_of(manifests))
    assert "volumeClaimTemplates" not in child(manifests, "StatefulSet", NAME)["spec"]
    assert known["AWS_ACCESS_KEY_ID"] == {"secretKeyRef": {"name": "keys", "key": "accessKeyId"}}
    assert known["AWS_SECRET_ACCESS_KEY"] == {
        "secretKeyRef": {"name": "keys", "key": "secretAccessKey"}
    }
    assert read_back(manifests).spec.table.s3.secret is None


def test_a_user_without_a_name_has_one_for_hadoop() -> None:
    """Its home and everything that Spark writes are on the scratch volume."""
    pod = pod_of(made())
    known = environment(pod)

    assert {known[name] for name in ("USER", "SPARK_USER", "HADOOP_USER_NAME")} == {"logpipeline"}
    assert known["HOME"] == mounts(pod)["spark-local-dir-scratch"]["mountPath"]
    (container,) = pod["containers"]
    assert container["args"][container["args"].index("--data") + 1] == known["HOME"]


def test_room_is_asked_for_beside_the_heap() -> None:
    """Python's workers hold what they write."""
    (container,) = pod_of(made({"driverMemory": "3Gi"}))["containers"]

    assert container["resources"]["requests"]["memory"] == "4Gi"


@pytest.mark.parametrize(
    "table", [{}, {**BUCKET, "runner": "native"}, {**BUCKET, "executors": {"instances": 0}}]
)
def test_one_pod_that_does_it_all_asks_kubernetes_nothing(table: dict[str, Any]) -> None:
    """No token, no rights, no master, no ports for executors."""
    manifests = made(table)

    assert pod_of(manifests)["automountServiceAccountToken"] is False
    assert "RoleBinding" not in of_table(manifests)
    assert not any(name.startswith("LOGPIPELINE_SPARK") for name in environment(pod_of(manifests)))
    ports = child(manifests, "Service", NAME)["spec"]["ports"]
    assert [port["port"] for port in ports] == [9104]


def test_a_driver_makes_pods_that_find_it() -> None:
    """It knows its namespace, its image and its stable name, and has a token."""
    manifests = made(NATIVE)
    known = environment(pod_of(manifests))

    assert known["LOGPIPELINE_SPARK_MASTER"] == "k8s://https://kubernetes.default.svc"
    assert known["LOGPIPELINE_SPARK_NAMESPACE"] == "logging"
    assert known["LOGPIPELINE_SPARK_IMAGE"] == "a:1"
    assert known["LOGPIPELINE_SPARK_SERVICE_ACCOUNT"] == NAME
    assert known["LOGPIPELINE_SPARK_DRIVER_HOST"] == f"$(POD_NAME).{NAME}.logging.svc"
    assert pod_of(manifests)["automountServiceAccountToken"] is True
    spec = child(manifests, "StatefulSet", NAME)["spec"]
    assert spec["serviceName"] == child(manifests, "Service", NAME)["metadata"]["name"]
    ports = child(manifests, "Service", NAME)["spec"]["ports"]
    assert [port["port"] for port in ports] == [9104, 7078, 7079]


def test_the_driver_understands_all_that_it_is_told() -> None:
    """Names of variables, ports and the template's file are the same on both sides."""
    manifests = made(NATIVE)
    known = environment(pod_of(manifests)) | {"POD_NAME": f"{NAME}-0"}

    place = kubernetes.place_of(known)

    assert place is not None
    assert place.template == str(config.FOLDER / table.EXECUTOR_FILE)
    assert (kubernetes.DRIVER_PORT, kubernetes.BLOCKS_PORT) == (
        SPARK_DRIVER_PORT,
        SPARK_BLOCKS_PORT,
    )


@pytest.mark.parametrize(
    ("account", "role", "kind"),
    [(None, "ClusterRole/spark", "ClusterRole"), ("mine", "Role/spark", "Role")],
)
def test_a_driver_is_bound_to_the_operator_s_role(
    account: str | None, role: str, kind: str
) -> None:
    """In its own namespace only, and to none that it could choose."""
    spec = {"table": {"enabled": True, **NATIVE, "serviceAccountName": account}}
    binding = child(children(spec, child_settings(spark_role=role)), "RoleBinding", NAME)

    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "spark",
    }  # fmt: skip
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account or NAME, "namespace": "logging"}
    ]
    assert "RoleBinding" not in of_table(children(spec))


def test_executors_see_what_the_driver_sees() -> None:
    """Tasks name files by their paths: configuration, credentials, scratch and keys."""
    persistence = {"existingClaim": "shared"}
    manifests = made({**NATIVE, "path": "/tables", "persistence": persistence})
    driver, executor = pod_of(manifests), executor_of(manifests)["spec"]

    assert mounts(executor) == mounts(driver)
    shared = {"POD_NAME", "POD_IP"}
    wanted = {
        name: value
        for name, value in environment(driver).items()
        if not name.startswith("LOGPIPELINE_SPARK") and name not in shared
    }
    assert environment(executor) == wanted
    (table,) = [v for v in executor["volumes"] if v["name"] == "table"]
    assert table["persistentVolumeClaim"] == {"claimName": "shared"}
    secrets = [
        [source["secret"] for source in volume["projected"]["sources"] if "secret" in source]
        for pod in (driver, executor)
        for volume in pod["volumes"]
        if volume["name"] == "config"
    ]
    assert secrets[0] == secrets[1] != []


def test_executors_are_placed_as_the_table_is_and_ask_kubernetes_nothing() -> None:
    """They are found by labels of their own, and their own resources count."""
    options = {"nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}]}
    executors = {"instances": 2, "resources": {"limits": {"cpu": "2"}}}
    manifests = made({**NATIVE, **options, "executors": executors})
    executor = executor_of(manifests)
    (container,) = executor["spec"]["containers"]

    assert executor["kind"] == "Pod"
    assert executor["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
    assert executor["metadata"]["labels"]["logpipeline.dev/pipeline"] == "prod"
    assert {name: executor["spec"][name] for name in options} == options
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert container["resources"] == {"limits": {"cpu": "2"}}


def test_another_template_of_executors_restarts_the_driver() -> None:
    """It reads the template once, as it starts."""

    def hash_of(**options: Any) -> Any:
        template = child(made({**NATIVE, **options}), "StatefulSet", NAME)["spec"]["template"]
        return template["metadata"]["annotations"]["logpipeline.dev/config-hash"]

    assert hash_of() == hash_of()
    assert hash_of() != hash_of(nodeSelector={"a": "b"})


def rules(spec: dict[str, Any]) -> dict[str, Manifest]:
    """The policies of the table by their names."""
    whole = resource({"networkPolicy": {"enabled": True}, "table": spec})
    made = policies(whole, SETTINGS_SPARK)
    return {p["metadata"]["name"]: p["spec"] for p in made}


def ports(policy: Manifest, direction: str) -> set[int]:
    """The ports that *policy* lets through."""
    return {port["port"] for rule in policy[direction] for port in rule["ports"]}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({}, {4222, 53}),
        (BUCKET, {4222, 53, 9000}),
        ({"path": "s3://logs/prod"}, {4222, 53, 443, 80}),
        (
            {"format": "iceberg", "catalog": {"table": "a.b", "uri": "http://c:8181"}},
            {4222, 53, 8181},
        ),
    ],
)
def test_a_policy_lets_the_table_reach_its_table(spec: dict[str, Any], wanted: set[int]) -> None:
    """Its bucket and its catalog by their ports, and where a cloud tells who a pod is."""
    found = rules({"enabled": True, **spec})

    assert ports(found[NAME], "egress") == wanted
    assert ports(found[NAME], "ingress") == {9104}
    assert "prod-executor" not in found


def test_policies_let_driver_and_executors_find_each_other() -> None:
    """And the driver the API server; executors have no business there."""
    found = rules({"enabled": True, **NATIVE})

    assert ports(found[NAME], "ingress") == {9104, 7078, 7079}
    assert ports(found[NAME], "egress") == {4222, 53, 9000, 7079, 443, 6443}
    assert ports(found["prod-executor"], "ingress") == {7079}
    assert ports(found["prod-executor"], "egress") == {4222, 53, 9000, 7078, 7079}
    assert rules({"enabled": False}).keys() == {"prod-collector", "prod-shipper", "prod-nats"}


def test_the_server_knows_the_table_s_user_only_where_there_is_one() -> None:
    """Its password is in a Secret of its own, so that the others' Secret stays as it was made."""
    without, there = resource({}), resource({"table": {"enabled": True}})
    secret = credentials.table_secret(there, "table-0123456789abcdef")
    volumes = [
        str(pod_spec(child(built(each), "StatefulSet", "prod-nats"))["volumes"])
        for each in (without, there)
    ]

    assert [credentials.TABLE_FILE in nats_conf.render(each) for each in (without, there)] == [
        False, True,
    ]  # fmt: skip
    assert [secret["metadata"]["name"] in volume for volume in volumes] == [False, True]
    assert credentials.users(without) == credentials.USERS
    others = {role: f"{role}-0123456789abcdef" for role in credentials.ROLES}
    assert credentials.users_secret(without, others) == credentials.users_secret(there, others)
