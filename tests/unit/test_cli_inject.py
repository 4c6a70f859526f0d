"""`inject` puts a shipper into pods and changes nothing else, however often it is called."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from logpipeline.spec import parse
from logpipeline_cli.main import main
from logpipeline_operator.children import config, names, nats_tls
from logpipeline_shipper.files.source_filter import SIDECAR_CONTAINER

CONTAINER: dict[str, Any] = {"name": "app", "image": "busybox"}
POD: dict[str, Any] = {"containers": [CONTAINER]}
TEMPLATES: dict[str, tuple[str, Any]] = {
    "Pod": ("v1", POD),
    "Deployment": ("apps/v1", {"template": {"spec": POD}}),
    "StatefulSet": ("apps/v1", {"template": {"spec": POD}}),
    "DaemonSet": ("apps/v1", {"template": {"spec": POD}}),
    "Job": ("batch/v1", {"template": {"spec": POD}}),
    "CronJob": ("batch/v1", {"jobTemplate": {"spec": {"template": {"spec": POD}}}}),
}
OTHERS = """\
# What stands here is nobody's business.
apiVersion: v1
kind: ConfigMap
metadata: {name:   odd,  labels: {when: 2026-11-21}}
data: {mode: "0644", on: yes}
"""


def workload(kind: str = "Deployment", **pod: Any) -> dict[str, Any]:
    """Return a workload whose pods have the fields *pod* besides their container."""
    version, spec = copy.deepcopy(TEMPLATES[kind])
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": spec}
    pod_spec(made).update(pod)
    return made


def pod_spec(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]
    while "containers" not in spec:
        spec = next(spec[key] for key in ("jobTemplate", "template", "spec") if key in spec)
    return spec


class Injected:
    """What `inject` made of *text*."""

    def __init__(self, folder: Path, text: str, *words: str) -> None:
        path = folder / "given.yaml"
        path.write_text(text)
        output = folder / "made.yaml"
        self.code = main(("inject", "-f", str(path), "--out", str(output), *words))
        self.text = output.read_text() if output.exists() else ""

    @property
    def pod(self) -> dict[str, Any]:
        """The pod of the last document."""
        return pod_spec(list(yaml.safe_load_all(self.text))[-1])

    @property
    def sidecar(self) -> dict[str, Any]:
        """The container that was put in."""
        found: dict[str, Any] = self.pod["initContainers"][0]
        return found


def injected(folder: Path, document: Any, *words: str) -> Injected:
    return Injected(folder, yaml.safe_dump(document), "--pipeline", "prod", *words)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_each_workload_gets_a_native_sidecar(kind: str, tmp_path: Path) -> None:
    """It is started first and stopped last, and the containers get the folder it reads."""
    made = injected(tmp_path, workload(kind))
    mount = {"name": "logs", "mountPath": "/var/log/app"}

    assert made.code == 0
    assert made.sidecar["name"] == SIDECAR_CONTAINER
    assert made.sidecar["restartPolicy"] == "Always"
    assert made.pod["containers"] == [{**CONTAINER, "volumeMounts": [mount]}]
    assert {**mount, "readOnly": True} in made.sidecar["volumeMounts"]
    assert {"name": "logs", "emptyDir": {}} in made.pod["volumes"]
    assert made.pod["terminationGracePeriodSeconds"] == 30 + 25 + 10


def test_twice_is_once(tmp_path: Path) -> None:
    """To the byte, without saying again for which pipeline; new words replace the old ones."""
    document = workload(terminationGracePeriodSeconds=5)
    once = injected(tmp_path, document, "--image", "one")
    twice = Injected(tmp_path, once.text, "--image", "one")
    other = Injected(tmp_path, once.text, "--image", "two")

    assert twice.text == once.text
    assert other.text == once.text.replace("image: one", "image: two")
    assert once.pod["terminationGracePeriodSeconds"] == 5 + 25 + 10


def test_what_runs_no_pods_stays_as_it_is(tmp_path: Path) -> None:
    """To the byte, with its comments; also a kind of that name in a group of somebody's own."""
    stranger = "---\napiVersion: example.com/v1\nkind: Job\nspec: {template:  {}}\n---\n"
    text = OTHERS + stranger + yaml.safe_dump(workload())
    made = Injected(tmp_path, text, "--pipeline", "prod")

    assert made.text.startswith(OTHERS + stranger)
    assert made.sidecar["image"].startswith("docker.io/logpipeline/shipper:")


def test_a_list_is_looked_into(tmp_path: Path) -> None:
    """`kubectl get -o yaml` prints workloads in one."""
    items = [{"apiVersion": "v1", "kind": "Service"}, workload("Job")]
    made = injected(tmp_path, {"apiVersion": "v1", "kind": "List", "items": items})
    (document,) = yaml.safe_load_all(made.text)

    assert pod_spec(document["items"][1])["initContainers"][0]["name"] == SIDECAR_CONTAINER


def test_a_volume_that_is_there_is_used_where_it_is_mounted(tmp_path: Path) -> None:
    """Nothing is mounted a second time, and a folder above the files will do."""
    mount = {"name": "scratch", "mountPath": "/var/lib/web", "subPath": "a"}
    document = workload(
        containers=[{**CONTAINER, "volumeMounts": [mount]}, {"name": "b", "image": "x"}],
        volumes=[{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
    )
    made = injected(
        tmp_path, document, "--volume", "scratch", "--path", "/var/lib/web/logs/**/*.log"
    )

    assert made.pod["containers"] == pod_spec(document)["containers"]
    assert made.sidecar["volumeMounts"][0] == {**mount, "readOnly": True}
    assert "/var/lib/web/logs/**/*.log" in made.sidecar["args"]


def test_the_sidecar_passes_the_standard_restricted(tmp_path: Path) -> None:
    """It has no right that Pod Security's strictest level forbids."""
    security = injected(tmp_path, workload()).sidecar["securityContext"]

    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.parametrize(
    ("container", "pod", "expected"),
    [
        (None, None, None),
        (None, 2000, None),
        (1000, None, 1000),
        (1000, 0, 1000),
        (0, None, 65532),
        (None, 0, 65532),
    ],
)
def test_the_sidecar_may_read_what_the_container_writes(
    container: int | None, pod: int | None, expected: int | None, tmp_path: Path
) -> None:
    """It runs as the same user, but never as root."""
    document = workload(
        containers=[{**CONTAINER, "securityContext": {"runAsUser": container}}],
        securityContext={"runAsUser": pod},
    )

    assert injected(tmp_path, document).sidecar["securityContext"].get("runAsUser") == expected


def test_its_port_is_nobody_elses(tmp_path: Path) -> None:
    """A pod's containers share one network; on the node's own it serves nobody."""
    busy = workload(containers=[{**CONTAINER, "ports": [{"containerPort": 9101}]}])
    on_node = workload(hostNetwork=True)

    assert "0.0.0.0:9102" in injected(tmp_path, busy).sidecar["args"]
    assert "127.0.0.1:0" in injected(tmp_path, on_node).sidecar["args"]
    assert "livenessProbe" not in injected(tmp_path, on_node).sidecar


def files_of(pod: dict[str, Any], *, has_tls: bool) -> set[str]:
    """Return the files below /etc/logpipeline that the sidecar of *pod* finds, where the managed
    server *has_tls* or not.
    """
    (volume,) = [each for each in pod["volumes"] if each["name"] == "logpipeline-config"]
    sources = [next(iter(each.values())) for each in volume["projected"]["sources"]]
    return {
        f"/etc/logpipeline/{item['path']}"
        for source in sources
        for item in source["items"]
        if has_tls or not source.get("optional")
    }


def pipeline(**nats: Any) -> Any:
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "prod", "namespace": "shop"},
            "spec": {"nats": nats},
        }
    )


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        ({}, ()),
        ({"managed": {"tls": "Required"}}, ()),
        (
            {
                "servers": ["nats://nats.example.net:4222"],
                "creds": {"secret": {"name": "c"}, "file": "user.creds"},
                "tls": {"secret": {"name": "t"}, "ca": "ca.crt"},
            },
            ("--credentials", "creds=c:user.creds", "--credentials", "tls=t:ca.crt"),
        ),
    ],
)
def test_it_finds_what_the_operators_resource_names(
    nats: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    """The ConfigMap that the operator makes names files; each of them is in the pod."""
    resource = pipeline(**nats)
    local = config.for_sidecar(resource).spec.local
    named = {
        getattr(local.nats, name)
        for name in local.nats.__dataclass_fields__
        if name.endswith("_file") and getattr(local.nats, name)
    }
    made = injected(tmp_path, workload(), *words)
    arguments = made.sidecar["args"]

    assert named
    has_tls = nats_tls.is_on(resource)
    assert files_of(made.pod, has_tls=has_tls) == named | {"/etc/logpipeline/pipeline.yaml"}
    assert arguments[arguments.index("--name") + 1] == local.shippers[0].name
    assert "servers" in nats or names.nats_auth(resource) in str(made.pod["volumes"])


@pytest.mark.parametrize(
    ("document", "words", "advice"),
    [
        (workload(), (), "--pipeline NAME"),
        ({"apiVersion": "v1", "kind": "Service"}, ("--pipeline", "p"), "Deployment"),
        (workload() | {"spec": {}}, ("--pipeline", "p"), "spec.template"),
        (workload(containers=[]), ("--pipeline", "p"), "no containers"),
        (
            workload() | {"metadata": {"name": "web", "namespace": "shop"}},
            ("--pipeline", "p", "--namespace", "logging"),
            "Make a LogPipeline in 'shop'",
        ),
        (workload(), ("--pipeline", "p", "--path", "app.log"), "absolute"),
        (workload(), ("--pipeline", "p", "--path", "/*.log"), "folder of their own"),
        (workload(), ("--pipeline", "p", "--path", "/a/*", "--path", "/b/*"), "folder"),
        (workload(), ("--pipeline", "p", "--credentials", "creds=c"), "KIND=SECRET:KEY"),
        (
            workload(volumes=[{"name": "logs", "configMap": {"name": "c"}}]),
            ("--pipeline", "p"),
            "is a configMap",
        ),
        (
            workload(
                containers=[
                    {**CONTAINER, "volumeMounts": [{"name": "logs", "mountPath": "/elsewhere"}]}
                ],
                volumes=[{"name": "logs", "emptyDir": {}}],
            ),
            ("--pipeline", "p"),
            "--path '/elsewhere/*.log'",
        ),
        (
            workload(
                containers=[
                    {**CONTAINER, "volumeMounts": [{"name": "data", "mountPath": "/var/log/app"}]}
                ]
            ),
            ("--pipeline", "p"),
            "--volume data",
        ),
        (
            workload(containers=[{**CONTAINER, "name": SIDECAR_CONTAINER}]),
            ("--pipeline", "p"),
            "remove it",
        ),
    ],
)
def test_what_cannot_work_is_told_with_what_to_do(
    document: Any,
    words: tuple[str, ...],
    advice: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is written then."""
    made = Injected(tmp_path, yaml.safe_dump(document), *words)

    assert made.code == 1
    assert made.text == ""
    assert advice in capsys.readouterr().err


def test_aliases_are_written_out(tmp_path: Path) -> None:
    """What two containers had in common is each one's own afterwards."""
    text = yaml.safe_dump(workload(containers=[CONTAINER, {"name": "b", "image": "x"}]))
    shared = text.replace("name: app\n", "name: app\n        volumeMounts: &m []\n").replace(
        "name: b\n", "name: b\n        volumeMounts: *m\n"
    )
    made = Injected(tmp_path, shared, "--pipeline", "prod")

    assert "*m" in shared
    assert [len(each["volumeMounts"]) for each in made.pod["containers"]] == [1, 1]


def test_a_small_file_does_not_grow_without_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aliases of aliases are refused."""
    lists = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "\n".join(["l0: &l0 [a]", *lists])

    assert Injected(tmp_path, text, "--pipeline", "p").code == 1
    assert "aliases" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a: [", "kind: Pod\n x: 1", "a: &a [*a]\n- b"])
def test_what_is_no_yaml_is_told_by_its_place(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person finds the line."""
    assert Injected(tmp_path, text, "--pipeline", "p").code == 1
    assert "line " in capsys.readouterr().err
