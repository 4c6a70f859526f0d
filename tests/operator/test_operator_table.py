"""The table's children on a real API server: it takes them as they are, and they come and go with
what the resource says.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from api_server.recording_proxy import Asked, Fault, Refuse
from api_server.states import NAME
from api_server.world import World
from cluster import classes
from cluster.child_manifests import built, child, resource
from cluster.child_manifests import settings as child_settings
from cluster.handle import Cluster
from logpipeline_operator.children import Manifest
from logpipeline_operator.cluster.kinds import SPARK_APACHE, kind
from logpipeline_operator.differences import differing
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

NOWHERE = {"logpipeline.dev/test": "nowhere"}
BUCKET: dict[str, Any] = {
    "path": "s3://logs/prod",
    "s3": {"endpoint": "http://s3.example.net:9000", "secret": {"name": "keys"}},
}
TABLES: dict[str, dict[str, Any]] = {
    "claim": {"persistence": {"size": "1.5Gi", "storageClassName": ""}},
    "shared": {"persistence": {"existingClaim": "c"}, "path": "/srv/tables"},
    "fleeting": {"persistence": {"emptyDir": {"sizeLimit": 1_500_000}}, "driverMemory": "1.5Gi"},
    "bucket": BUCKET,
    "executors": {**BUCKET, "runner": "native", "executors": {"instances": 2, "cores": 2}},
}
SPARK = child_settings(spark_role="ClusterRole/view")
# Without servers of its own: the managed one's pods find no node.
MANAGED: dict[str, Any] = {
    "partitions": 2,
    "nats": {"managed": {"nodeSelector": NOWHERE}},
    "collectors": {"nodeSelector": NOWHERE, "persistence": {"emptyDir": {}}},
    "shippers": {"enabled": False},
}
TABLE: dict[str, Any] = {"enabled": True, "nodeSelector": NOWHERE}


def made_in(namespace: str, name: str, table: dict[str, Any]) -> list[Manifest]:
    """The children of the pipeline *name*, without an owner that is not there."""
    spec = {"table": {**TABLE, **table}, "networkPolicy": {"enabled": True}}
    return built(resource(spec, name=name, namespace=namespace, uid=""), SPARK)


def apply(cluster: Cluster, made: list[Manifest]) -> None:
    """Apply *made* as the operator does."""
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    words = ("apply", "--server-side", "--field-manager=logpipeline-operator", "-f", "-")
    cluster.kubectl(*words, input=text)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_stored_as_it_is_applied(cluster: Cluster, namespace: str, name: str) -> None:
    """Applied again, nothing of it is written: no field has a form that Kubernetes changes."""
    made = made_in(namespace, name, TABLES[name])
    apply(cluster, made)
    first = cluster.stored(made)
    apply(cluster, made)
    second = cluster.stored(made)

    for manifest, before, after in zip(made, first, second, strict=True):
        assert list(differing(manifest, after)) == [], manifest["metadata"]["name"]
        assert before["metadata"].get("generation") == after["metadata"].get("generation")


def test_pod_security_lets_driver_and_executors_pass(cluster: Cluster, namespace: str) -> None:
    """In a namespace that enforces `restricted`; the template is a pod that Kubernetes takes."""
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    made = made_in(namespace, "prod", TABLES["executors"])
    driver = child(made, "StatefulSet", "prod-table")["spec"]["template"]
    texts = child(made, "ConfigMap", "prod-table")["data"]
    executor = yaml.safe_load(texts["executor.yaml"])

    for name, pod in (("driver", driver), ("executor", executor)):
        whole = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**pod["spec"], "serviceAccountName": "default"},
        }
        words = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
        assert "created" in cluster.kubectl(*words, input=json.dumps(whole))


def written(namespace: str, spec: dict[str, Any]) -> Manifest:
    """The pipeline with *spec*, as a user writes it."""
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": spec,
    }


def test_the_former_name_of_a_table_is_told(cluster: Cluster, namespace: str) -> None:
    """And not dropped without a word, as what no schema knows."""
    manifest = written(namespace, {"archive": {"enabled": True}})
    words = ("create", "--dry-run=server", "--validate=ignore", "-f", "-")
    said = cluster.kubectl(*words, input=json.dumps(manifest), check=False)

    assert "spec.archive" in said
    assert "is called table now" in said


@pytest.mark.parametrize(("workers", "message"), [(4, "is gone: remove it"), (1, "created")])
def test_a_field_that_is_gone_is_told_where_it_said_something(
    cluster: Cluster, namespace: str, workers: int, message: str
) -> None:
    """What the API server once wrote as the default is in every resource that it stores."""
    manifest = written(namespace, {"collectors": {"workers": workers}})
    words = ("create", "--dry-run=server", "-f", "-")

    assert message in cluster.kubectl(*words, input=json.dumps(manifest), check=False)


async def test_a_class_says_whether_there_are_tables(cluster: Cluster, here: World) -> None:
    """To pipelines that do not say it themselves."""
    name = f"tables-{here.namespace}"
    classes.allow(cluster, name, **classes.EVERYTHING, tableByDefault=True)
    here.operator("--no-lease").start()
    await write(here, className=name, table={"nodeSelector": NOWHERE})

    async def is_there() -> bool:
        return await there(here, "StatefulSet", f"{NAME}-table") is not None

    await eventually(is_there, within_s=60, what="a table's driver")
    await write(here, table={"enabled": False})

    async def is_gone() -> bool:
        return not await is_there()

    await eventually(is_gone, within_s=60, what="no driver")


async def write(here: World, **spec: Any) -> None:
    """Write the pipeline, with a managed server, as its user does."""
    manifest = written(here.namespace, {**MANAGED, **spec})
    if await here.resource() is None:
        await here.kube.create(manifest)
    else:
        await here.kube.merge(kind("LogPipeline"), here.namespace, NAME, manifest)


async def there(here: World, name: str, child_name: str) -> Manifest | None:
    """A child, if there is one."""
    return await here.kube.get(kind(name), here.namespace, child_name)


async def test_a_table_comes_and_goes_and_nobody_s_password_changes(here: World) -> None:
    """To a pipeline that was there before: its server gets one user more, and the others stay."""
    operator = here.operator("--no-lease", LOGPIPELINE_SPARK_ROLE="ClusterRole/view")
    await write(here)
    operator.start()
    server = f"{NAME}-nats"

    async def has(name: str, child_name: str, *, is_there: bool = True) -> None:
        async def is_so() -> bool:
            return (await there(here, name, child_name) is not None) is is_there

        await eventually(is_so, within_s=60, what=f"{name} {child_name}")

    await has("StatefulSet", server)
    before = await there(here, "Secret", f"{server}-auth")
    await write(here, table={**TABLE, **TABLES["executors"]})
    for each in (("StatefulSet", f"{NAME}-table"), ("RoleBinding", f"{NAME}-table")):
        await has(*each)
    user = await there(here, "Secret", f"{server}-auth-table")
    assert user is not None

    async def is_known() -> bool:
        return user["metadata"]["name"] in json.dumps(await there(here, "StatefulSet", server))

    await eventually(is_known, within_s=60, what="a server that knows the table's user")
    condition = await here.condition("TableRunning")
    await write(here, table={"enabled": False})
    for each in (("StatefulSet", f"{NAME}-table"), ("RoleBinding", f"{NAME}-table")):
        await has(*each, is_there=False)

    assert before is not None
    assert before == await there(here, "Secret", f"{server}-auth")
    assert user == await there(here, "Secret", f"{server}-auth-table")
    assert condition["status"] == "False"


async def test_a_table_that_rests_causes_no_write(here: World) -> None:
    """A new operator finds all of it as it should be, the status included."""
    operator = here.operator("--no-lease", LOGPIPELINE_SPARK_ROLE="ClusterRole/view")
    table = {**TABLE, **TABLES["executors"]}
    await here.apply({**MANAGED, "table": table})
    operator.start()
    state = await here.settles()
    operator.kill()
    await here.has_nothing_to_do()

    assert "StatefulSet p-table" in state["children"]


def definition(api: str) -> Manifest:
    """A definition of SparkApplications that takes everything: no operator for Spark is there."""
    group, _, version = api.partition("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"sparkapplications.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "SparkApplication", "plural": "sparkapplications"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


async def test_an_application_is_made_where_somebody_runs_it(here: World, cluster: Cluster) -> None:
    """Without an API for it the condition says what to do, and with one there it is. When the API
    cannot be asked or goes, that is said, and what a driver needs stays; what else the pipeline
    asks for is still done.
    """
    table = {**TABLE, **BUCKET, "runner": "sparkApplication", "executors": {"instances": 1}}
    await here.apply({**MANAGED, "table": table})
    operator = here.operator("--no-lease")
    operator.start()

    async def reason() -> str:
        return str((await here.condition("TableRunning")).get("reason"))

    async def is_missed() -> bool:
        return await reason() == "SparkOperatorMissing"

    async def is_awaited() -> bool:
        return await reason() == "TableNotReady"

    async def is_unknown() -> bool:
        return await reason() == "KubernetesAway"

    def cannot_say(asked: Asked) -> Fault | None:
        return Refuse(500, "InternalError") if "sparkapplications" in asked.path else None

    async def account() -> str | None:
        found = await there(here, "ServiceAccount", f"{NAME}-table")
        return found["metadata"]["uid"] if found else None

    async def is_made() -> bool:
        what = "sparkapplications.spark.apache.org"
        return "/p-table-" in cluster.kubectl("get", what, "-n", here.namespace, "-o", "name")

    async def is_scaled() -> bool:
        found = await there(here, "StatefulSet", f"{NAME}-collector")
        return bool(found and found["spec"]["replicas"] == 2)

    async def is_kept_otherwise() -> bool:
        return "StatefulSet p-table" in (await here.state())["children"]

    await eventually(is_missed, within_s=60, what="a condition that says what is missing")
    operator.kill()
    text = json.dumps(definition(SPARK_APACHE))
    try:
        cluster.define(text, definition(SPARK_APACHE)["metadata"]["name"])
        # It looks what the cluster has as it starts, and then every some minutes.
        operator = here.operator("--no-lease")
        operator.start()
        await eventually(is_made, within_s=60, what="a SparkApplication")
        # It says so once it has looked again.
        await eventually(is_awaited, within_s=60, what="a condition that waits for it")
        uid = await account()
        here.proxy.judge = cannot_say
        await here.apply(
            {**MANAGED, "table": table, "collectors": {**MANAGED["collectors"], "replicas": 2}}
        )
        await eventually(is_unknown, within_s=60, what="a condition that says that it is not known")
        await eventually(is_scaled, within_s=60, what="a change of collectors meanwhile")
        assert await account() == uid
        here.proxy.judge = lambda asked: None
        await eventually(is_awaited, within_s=60, what="a condition that waits for it again")
        cluster.kubectl("delete", "-f", "-", input=text)
        await eventually(is_missed, within_s=60, what="a condition that says that it is gone")
        assert await account() == uid
        await here.apply({**MANAGED, "table": {**table, "runner": None, "executors": None}})
        await eventually(is_kept_otherwise, within_s=60, what="a StatefulSet for the table")
        operator.kill()
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=text)
