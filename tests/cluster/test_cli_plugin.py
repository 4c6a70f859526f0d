"""`kubectl logpipeline` against a real cluster: a host's lines though its collector is gone, and
errors that say what to do.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.chart_rendering import never_pulled, render
from cluster.child_manifests import children, pod_templates, resource
from cluster.handle import Cluster
from cluster.installed_operator import Operator, define
from cluster.pipelines import Pipeline, create
from cluster.plugin import Plugin, plugin_in
from logpipeline.partition import partition_of
from logpipeline_cli.cluster.agent_pods import Claimed, manifest
from logpipeline_cli.console.access import TOKEN_HEADER
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

LINES = 400
ARRIVE_S_MAX = 60.0
ENDED_S_MAX = 90.0
CONSOLE = "logpipeline-console"
# Prints half of its lines, and the others when it is told to.
PRINTER = f"""
import pathlib, time
for number in range({LINES}):
    print(f"line {{number:05d}}", flush=True)
while not pathlib.Path("/tmp/more").exists():
    time.sleep(0.1)
for number in range({LINES}, {2 * LINES}):
    print(f"line {{number:05d}}", flush=True)
time.sleep(100_000)
"""


@pytest.fixture(scope="module")
def pipeline(cluster: Cluster, operator: Operator) -> Pipeline:
    """Two collectors with a claim each, the last of which has the partition of the first node."""
    namespace = operator.new_namespace()
    node = cluster.nodes[0]
    partitions = next(n for n in range(2, 64, 2) if partition_of(node, n) >= n // 2)
    spec: dict[str, Any] = {
        "partitions": partitions,
        "nats": {"managed": {"storage": "1Gi"}},
        "collectors": {"replicas": 2, "persistence": {"size": "1Gi"}},
        "shippers": {"match": [{"select": {"namespaces": [namespace]}}]},
    }
    made = create(cluster, namespace, "prod", spec)
    made.wait_ready()
    return made


@pytest.fixture
def plugin(tmp_path: Path, cluster: Cluster) -> Plugin:
    """The plugin, as the cluster's owner runs it."""
    return plugin_in(tmp_path, cluster)


def printer(pipeline: Pipeline, image: str, node: str) -> dict[str, Any]:
    """A pod that prints."""
    container = {
        "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", PRINTER],
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "printer", "namespace": pipeline.namespace},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container],
        },
    }  # fmt: skip


def text_of(first: int, end: int) -> str:
    """The lines that the printer prints."""
    return "".join(f"line {number:05d}\n" for number in range(first, end))


async def test_cli_prints_a_hosts_lines_though_its_collector_was_scaled_away(
    cluster: Cluster, pipeline: Pipeline, plugin: Plugin, workload_image: str
) -> None:
    """Half of them lie on the claim of a collector that is gone: all come, once and in order, and
    the pod that read them is gone as well.
    """
    node, here = cluster.nodes[0], ("-n", pipeline.namespace)
    cat = ("files", "cat", node, *here, "--path", "*/printer/*")
    cluster.apply(printer(pipeline, workload_image, node))

    async def printed(expected: str) -> None:
        def is_there() -> bool:
            return plugin.run(*cat).stdout == expected

        await eventually(is_there, within_s=ARRIVE_S_MAX, what="the lines")

    await printed(text_of(0, LINES))
    assert {f["collector"] for f in plugin.json("files", "ls", node, *here)} == {"prod-collector-1"}

    pipeline.kubectl("scale", "logpipeline/prod", "--replicas=1")

    def is_gone() -> bool:
        return set(pipeline.pods("collector")) == {"prod-collector-0"}

    await eventually(is_gone, within_s=ENDED_S_MAX, what="one collector")
    cluster.kubectl("exec", pipeline.here, "printer", "--", "touch", "/tmp/more")
    await printed(text_of(0, 2 * LINES))

    # The nodes' files are compared with what both collectors wrote, the one that is gone included.
    audit = plugin.json("audit", *here)
    assert audit["differingBytes"] == 0
    assert audit["comparedBytes"] > 0
    half = plugin.run("audit", "--running", "-o", "json", *here)
    assert half.returncode == 1
    (finding,) = json.loads(half.stdout)["findings"]
    assert (finding["lines"], finding["bytes"]) == (LINES, len(text_of(0, LINES)))
    files = plugin.json("files", "ls", node, *here)
    assert {f["collector"] for f in files} == {"prod-collector-0", "prod-collector-1"}
    assert plugin.text(*cat, "--running") == text_of(LINES, 2 * LINES)
    assert pipeline.pods("files") == {}
    # Neither keys nor credentials stay behind.
    assert [path.name for path in plugin.folder.iterdir()] == ["kubectl-logpipeline"]


async def test_cli_shows_a_clusters_pipeline_as_it_is(pipeline: Pipeline, plugin: Plugin) -> None:
    """Conditions stand beside partitions, the operator's work leaves nothing to plan, a changed
    file does, and lines that passed are shown.
    """
    here = ("-n", pipeline.namespace)
    pipeline.wait_ready()
    status = plugin.json("status", *here, "--pipeline", "prod")
    planned = plugin.run("plan", *here)
    changed = pipeline.get()
    changed["spec"]["stream"]["maxAge"] = "13h"
    file = plugin.folder / "changed.yaml"
    file.write_text(json.dumps({k: changed[k] for k in ("apiVersion", "kind", "metadata", "spec")}))
    plan = plugin.run("plan", *here, "-f", str(file))

    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"
    assert {p["owner"] for p in status["partitions"]} <= {"prod-collector-0", "prod-collector-1"}
    assert "Ready" in plugin.text("status", *here)
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert plan.returncode == 2, plan.stdout + plan.stderr
    assert "max_age" in plan.stdout


def test_cli_reads_dead_letters_through_tls(pipeline: Pipeline, plugin: Plugin) -> None:
    """As the alert about them says."""
    listed = plugin.run("dlq", "ls", "-n", pipeline.namespace)
    assert (listed.returncode, listed.stdout) == (0, "There are no dead letters.\n"), listed.stderr


def test_cli_shows_lines_of_a_cluster_that_passed(pipeline: Pipeline, plugin: Plugin) -> None:
    """`tail` reads through a forwarded port, with a person's credentials."""
    here = ("-n", pipeline.namespace, "--pod-namespace", pipeline.namespace)
    done = plugin.run("tail", *here, "--since", "1h", "--grep", "^line 00007$", "--lines", "1")

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("/printer/main | line 00007\n")


async def test_the_console_of_the_chart_shows_the_pipeline(
    cluster: Cluster, pipeline: Pipeline, images: dict[str, str]
) -> None:
    """Its pod may read no more than its Role says, and a person reaches it as the page on
    Kubernetes says: with the Secret's token, through a forwarded port.
    """
    wanted = {"enabled": True, "pipeline": pipeline.name, "namespace": pipeline.namespace}
    rendered = render({"console": wanted, "image": never_pulled(images["operator"])})
    cluster.apply(*(each for each in rendered.manifests if each["metadata"]["name"] == CONSOLE))
    pipeline.kubectl("rollout", "status", f"deployment/{CONSOLE}", "--timeout=120s")
    secret = cluster.get("secret", CONSOLE, pipeline.here)
    token = b64decode(secret["data"]["token"]).decode()

    with forwarded(cluster, pipeline, f"service/{CONSOLE}", 8630) as url:
        asking = urllib.request.Request(
            f"{url}/api/view?table=partitions", headers={TOKEN_HEADER: token}
        )

        def owners() -> bool:
            with urllib.request.urlopen(asking, timeout=30) as answer:
                rows = json.load(answer)["view"]["table"]["rows"]
            return "prod-collector-0" in json.dumps(rows)

        await eventually(owners, within_s=60, what="partitions with their owners")


@contextmanager
def forwarded(cluster: Cluster, pipeline: Pipeline, what: str, port: int) -> Iterator[str]:
    """Yield the address under which *port* of *what* is on this machine."""
    words = ["--kubeconfig", str(cluster.kubeconfig), "port-forward", pipeline.here]
    command = [str(cluster.program("kubectl")), *words, what, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", said)
            assert found is not None, said
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            process.terminate()


async def test_cli_gives_pods_back_when_it_is_ended(
    cluster: Cluster, pipeline: Pipeline, plugin: Plugin
) -> None:
    """A reader that its command did not need to the end is removed, too."""
    words = ["logpipeline", "files", "ls", "-n", pipeline.namespace]
    process = subprocess.Popen(
        [str(cluster.program("kubectl")), *words], env=plugin.environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await eventually(lambda: pipeline.pods("files"), what="a reader")
    process.terminate()
    process.wait(30)

    def is_gone() -> bool:
        return not pipeline.pods("files")

    await eventually(is_gone, what="no reader")


def test_cli_names_the_pipelines_there_are(
    cluster: Cluster, namespace: str, plugin: Plugin
) -> None:
    """A wrong or a missing name costs no second command."""
    define(cluster)
    here = ("-n", namespace)
    none = plugin.run("status", *here)
    for name in ("one", "two"):
        create(cluster, namespace, name, {"managementState": "Unmanaged"})
    several, wrong = (
        plugin.run("status", *here),
        plugin.run("files", "ls", *here, "--pipeline", "x"),
    )

    assert none.stderr.endswith("give -n NAMESPACE (`kubectl get logpipelines -A` lists all)\n")
    assert f"namespace {namespace} has several LogPipelines: one, two" in several.stderr
    assert f"no LogPipeline x in namespace {namespace}; there are: one, two" in wrong.stderr
    assert {done.returncode for done in (none, several, wrong)} == {1}


def test_cli_says_which_right_is_missing(
    cluster: Cluster, pipeline: Pipeline, tmp_path: Path
) -> None:
    """Whoever may not is told what to ask for, and the same for whom kubectl impersonates."""
    config = json.loads(
        cluster.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    )
    config["users"][0]["user"]["as"] = "nobody"
    kubeconfig = tmp_path / "nobody"
    kubeconfig.write_text(json.dumps(config))
    plugin = plugin_in(tmp_path, cluster, kubeconfig)
    here = ("-n", pipeline.namespace, "--pipeline", "prod")
    refused = plugin.run("status", *here)
    grant(cluster, pipeline, "see", {"logpipeline.dev": ["logpipelines"]}, ["get", "list"])
    trust = plugin.run("status", *here)
    grant(cluster, pipeline, "trust", {"": ["configmaps"]}, ["get"])
    secret = plugin.run("status", *here)
    grant(cluster, pipeline, "look", {"": ["serviceaccounts/token"]}, ["create"])
    forward = plugin.run("status", *here)
    grant(cluster, pipeline, "list", {"": ["pods", "persistentvolumeclaims"]}, ["list"])
    execute = plugin.run("files", "ls", *here, "--running")
    # From here on, what the documentation says, and no more.
    grant(cluster, pipeline, "get", {"": ["pods", "services"], "apps": ["statefulsets"]}, ["get"])
    grant(cluster, pipeline, "into", {"": ["pods/portforward", "pods/exec"]}, ["create"])
    granted = plugin.run("status", *here)
    planned = plugin.run("plan", *here)
    acknowledged = plugin.run("losses", *here, "--acknowledge", "all")
    reader = plugin.run("files", "ls", *here)
    grant(cluster, pipeline, "read", {"": ["pods"]}, ["create", "delete"])
    files = plugin.run("files", "ls", *here)

    assert "get and list logpipelines.logpipeline.dev" in refused.stderr
    assert "get the ConfigMap prod-nats-ca" in trust.stderr
    assert "create serviceaccounts/token of prod-reader" in secret.stderr
    assert "Ready" in secret.stdout
    assert "create pods/portforward" in forward.stderr
    assert "create pods/exec" in execute.stderr
    assert planned.returncode == 0, planned.stderr
    assert "get the Secret prod-nats-auth" in acknowledged.stderr
    assert "create and delete pods" in reader.stderr
    assert "give --running" in reader.stderr
    assert (granted.returncode, files.returncode) == (0, 0), granted.stderr + files.stderr


def grant(
    cluster: Cluster, pipeline: Pipeline, name: str, what: dict[str, list[str]], verbs: list[str]
) -> None:
    """Let nobody do something in the pipeline's namespace."""
    metadata = {"name": name, "namespace": pipeline.namespace}
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [g], "resources": r, "verbs": verbs} for g, r in what.items()]
    cluster.apply(
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "nobody"}],
        },
    )


def test_cli_without_a_kubeconfig_says_how_to_name_a_cluster(
    cluster: Cluster, tmp_path: Path
) -> None:
    """And nothing of a traceback."""
    done = plugin_in(tmp_path, cluster, tmp_path / "none").run("status")

    assert done.returncode == 1
    assert "no cluster is known" in done.stderr
    assert "--kubeconfig FILE" in done.stderr


def test_cli_readers_pass_the_restricted_standard(cluster: Cluster, namespace: str) -> None:
    """A namespace that lets only such pods in lets its collectors' files be read, too."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace, label)
    pipeline = resource({}, namespace=namespace)
    template = pod_templates(children({}))["collector"]
    made = manifest(pipeline, "u-1", Claimed("data-prod-collector-1", "m"), template, "ab12")

    said = cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(made))

    assert "created (server dry run)" in said
    assert "Warning" not in said
