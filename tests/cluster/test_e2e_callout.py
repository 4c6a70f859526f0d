"""A node's credentials, on a real Kubernetes: the token of its shipper's pod, which speaks for that
node alone, whoever of the API server and the operator is away.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cluster.handle import Cluster
from cluster.installed_operator import Operator
from cluster.pipelines import Pipeline, create, trusting
from cluster.speech import says_plain
from components.managed_server import connected, refused
from logpipeline.authority import inbox_prefix, user_of_host
from logpipeline.nats.connection import Connection, NatsOptions
from logpipeline.spec import parse
from logpipeline.subjects import ControlSubjects, Subjects
from logpipeline_cli.cluster.kubectl import Forward, Kubectl
from logpipeline_operator.children import Manifest, credentials
from waiting import eventually

pytest_plugins = ["cluster.operator_fixture"]

NATS_PORT = 4222
TOKEN_S = 600
CONNECTED = "connected to NATS"
# In a pod: prints the ports at which somebody listens whom the network reaches.
PRINTS_LISTENING = """
for table in ("tcp", "tcp6"):
    for row in open(f"/proc/net/{table}").read().splitlines()[1:]:
        _, local, _, state, *_ = row.split()
        address, port = local.rsplit(":", 1)
        if state == "0A" and address not in ("0100007F", "00000000000000000000000001000000"):
            print(int(port, 16))
"""
STRANGER_WAITS_S = 20.0
PAGES = (
    "/", "/healthz", "/varz", "/connz?auth=1&subs=detail", "/routez?subs=1", "/subsz?subs=1",
    "/accountz", "/jsz?accounts=1&streams=1&consumers=1&config=1", "/stacksz", "/raftz",
    "/expvarz", "/debug/vars", "/debug/pprof/heap", "/metrics", "/live", "/ready", "/status",
)  # fmt: skip
REQUESTS = (*(("GET", page) for page in PAGES), ("DELETE", "/"), ("POST", "/reload"))


@pytest.fixture(scope="module")
def pipeline(cluster: Cluster, operator: Operator) -> Pipeline:
    """A pipeline with a shipper on each node, and a server of its own."""
    spec = {
        "partitions": 2,
        "nats": {"managed": {"storage": "1Gi"}},
        "collectors": {"persistence": {"emptyDir": {"sizeLimit": "1Gi"}}},
    }
    made = create(cluster, operator.new_namespace(), "prod", spec)
    made.wait_ready()
    return made


@contextmanager
def forwarded(pipeline: Pipeline) -> Iterator[str]:
    """The URL of the pipeline's server, as this machine reaches it."""
    kubectl = Kubectl(str(pipeline.cluster.kubeconfig))
    with Forward(kubectl, pipeline.namespace, "service/prod-nats", NATS_PORT) as port:
        yield f"nats://127.0.0.1:{port.local_port}"


def token_of(pipeline: Pipeline, pod: str, audience: str) -> str:
    """A token as the kubelet puts it into *pod*."""
    uid = pipeline.pods("shipper")[pod]
    return pipeline.kubectl(
        "create", "token", "prod-shipper", f"--audience={audience}", f"--duration={TOKEN_S}s",
        "--bound-object-kind=Pod", f"--bound-object-name={pod}", f"--bound-object-uid={uid}",
    ).strip()  # fmt: skip


def options(pipeline: Pipeline, url: str, folder: Path, token: str, host: str) -> NatsOptions:
    """How the shipper of *host* logs in with *token*."""
    file = folder / f"{host}.token"
    file.write_text(token)
    own = NatsOptions(token_file=file, inbox_prefix=inbox_prefix(user_of_host(host)))
    return trusting(pipeline, own, url, folder)


async def test_what_a_node_has_speaks_for_that_node_alone(
    cluster: Cluster, pipeline: Pipeline, tmp_path: Path
) -> None:
    """No shipper holds a password; its token stores lines of its own node, and no others, hears no
    other node's positions, and that of another audience opens nothing.
    """
    resource = parse(pipeline.get())
    names = resource.names
    subjects, control = Subjects(names.subject, 2), ControlSubjects(names.control_subject)
    mounted = str(pipeline.child("daemonset", "shipper")["spec"]["template"]["spec"]["volumes"])
    assert "serviceAccountToken" in mounted
    assert "secret" not in mounted.lower().replace("secretkeyref", "")
    pod = next(iter(pipeline.pods("shipper")))
    node = str(cluster.get(f"pod/{pod}", pipeline.here)["spec"]["nodeName"])
    other = next(name for name in cluster.nodes if name != node)
    own = token_of(pipeline, pod, credentials.audience(resource))
    foreign = token_of(pipeline, pod, "https://somewhere.else")

    with forwarded(pipeline) as url:
        async with connected(options(pipeline, url, tmp_path, own, node)) as js:
            stored = await js.connection.request(subjects.of_host(node), b"a line\n")
            assert b'"seq"' in stored.data
            for subject in (subjects.of_host(other), control.asks(other), "$JS.API.STREAM.NAMES"):
                await js.connection.publish(subject, b"forged")
                await refused(js.connection, subject, "what is another's")
        stranger = Connection(options(pipeline, url, tmp_path, foreign, node))
        await stranger.start()
        await eventually(lambda: "uthorization" in (stranger.problem or ""), within_s=60.0)
        assert stranger.sessions == 0
        await stranger.close()

    def is_told() -> bool:
        words = ("events", pipeline.here, "--field-selector=reason=LoginsRefused")
        told = [str(each["message"]) for each in cluster.get(*words)["items"]]
        return any("with a token for another audience" in text for text in told)

    await eventually(is_told, within_s=60.0, what="the event names what was shown")


def test_a_stranger_on_the_network_is_told_nothing_of_what_is_not_his(pipeline: Pipeline) -> None:
    """At no port that any pod of the pipeline listens at, asked for whatever is usually there: no
    password, no pod, no stream and no file. All of these ports are those that the pods name.
    """
    secrets = [
        text
        for name in ("nats-auth", "nats-auth-callout", "nats-tls")
        for key, text in texts_of(pipeline.child("secret", name)).items()
        if not key.endswith(("-user", "ca.crt", "tls.crt"))
    ]
    told: dict[tuple[str, int], bytes] = {}
    for component, container in (("nats", "callout"), ("collector", ""), ("shipper", "")):
        for pod in pipeline.pods(component):
            found = pipeline.cluster.get(f"pod/{pod}", pipeline.here)
            ports = listening(pipeline, pod, container)
            assert ports == named_ports(found), pod
            for port in ports:
                told[pod, port] = all_answers(str(found["status"]["podIP"]), port)
    pods = {pod for pod, _ in told}
    hidden = [*secrets, *pods - {"prod-nats-0"}, "LP_", "/var/log"]

    assert {port for _, port in told} == {4222, 8222, 9101, 9102, 9105}
    assert told["prod-nats-0", 8222].count(b"404 Not Found") == len(REQUESTS)
    for place, answers in told.items():
        assert [word for word in hidden if word.encode() in answers] == [], place


def texts_of(secret: Manifest) -> dict[str, str]:
    """What *secret* holds."""
    return {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}


def named_ports(pod: Manifest) -> set[int]:
    """The ports that the containers of *pod* name."""
    containers = pod["spec"]["containers"]
    return {port["containerPort"] for each in containers for port in each.get("ports", [])}


def listening(pipeline: Pipeline, pod: str, container: str) -> set[int]:
    """At which ports something in *pod* listens for who comes over the network."""
    chosen = [f"--container={container}"] if container else []
    said = pipeline.cluster.kubectl(
        "exec", pipeline.here, pod, *chosen, "--", "python", "-c", PRINTS_LISTENING
    )
    return {int(port) for port in said.split()}


def all_answers(address: str, port: int) -> bytes:
    """All that is said at *port* to who asks for pages, and tries to change something."""
    answers = b""
    for method, page in REQUESTS:
        with socket.create_connection((address, port), STRANGER_WAITS_S) as place:
            place.sendall(f"{method} {page} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
            # Who takes it for something else, and resets the connection, has said enough.
            with suppress(ConnectionResetError):
                while part := place.recv(65536):
                    answers += part
    return answers


async def test_shippers_log_in_again_when_server_and_shippers_start_anew(
    pipeline: Pipeline,
) -> None:
    """A callout starts with its server, and asks nobody."""

    def pods() -> dict[str, str]:
        return pipeline.pods("nats") | pipeline.pods("shipper")

    former = pods()
    await pipeline.delete_pods(*former)
    await eventually(lambda: len(pods()) == len(former), what="as many pods")
    pipeline.kubectl("wait", "pod", *pods(), "--for=condition=Ready", "--timeout=150s")

    assert not set(former.values()) & set(pods().values())
    container = pipeline.cluster.get("pod/prod-nats-0", pipeline.here)["spec"]["containers"][1]
    assert container["name"] == "callout"
    said = pipeline.kubectl("logs", "prod-nats-0", "--container=callout")
    assert "a client was refused" not in said


async def test_all_speak_tls_also_when_the_server_gets_another_authority(
    pipeline: Pipeline,
) -> None:
    """A pod with the right password is refused in plain text. When the Secret with the certificates
    is deleted, the server gets others, and every client follows without a restart.
    """
    assert not says_plain(pipeline)
    clients = pipeline.pods("shipper") | pipeline.pods("collector")
    former = pipeline.child("secret", "nats-tls")["data"]
    counts = {pod: connections(pipeline, pod) for pod in clients}

    pipeline.kubectl("delete", "secret/prod-nats-tls")
    # So that the operator looks at once.
    pipeline.annotate("test.example.net/changed=yes")
    await eventually(
        lambda: all(connections(pipeline, pod) > count for pod, count in counts.items()),
        within_s=120.0,
        what="clients of the other server",
    )

    assert pipeline.child("secret", "nats-tls")["data"]["ca.crt"] != former["ca.crt"]
    assert pipeline.pods("shipper") | pipeline.pods("collector") == clients
    pipeline.wait_ready()


def connections(pipeline: Pipeline, pod: str) -> int:
    """How often *pod* has connected to its server."""
    return pipeline.kubectl("logs", pod).count(CONNECTED)
