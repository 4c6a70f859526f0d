"""What becomes of a managed server when the Secrets of its users, or that of its certificate, are
deleted, changed or broken: it is started again with those of now, and nobody has to do more.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from api_server.recording_proxy import Asked, Fault, Lose
from api_server.states import NAME
from api_server.world import World
from logpipeline.spec import parse
from logpipeline_operator.certificates import mark_of, upkeep
from logpipeline_operator.children import Manifest, nats_tls
from logpipeline_operator.children.nats_server import (
    CALLOUT_USER_ANNOTATION,
    TABLE_USER_ANNOTATION,
    USERS_ANNOTATION,
)
from logpipeline_operator.cluster.kinds import kind
from logpipeline_operator.server_users import Kept
from waiting import eventually

pytest_plugins = ["api_server.world_fixture"]

NOWHERE = {"logpipeline.dev/test": "nowhere"}
SERVER = f"{NAME}-nats"


async def write(here: World, *, replicas: int = 1) -> None:
    """Write the pipeline, with a managed server and a table; none of its pods finds a node."""
    options: dict[str, Any] = {"nodeSelector": NOWHERE}
    manifest = {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": NAME, "namespace": here.namespace},
        "spec": {
            "partitions": 2,
            "nats": {"managed": {"replicas": replicas, **options}},
            "collectors": {"persistence": {"emptyDir": {}}, **options},
            "table": {"enabled": True, **options},
            "shippers": {"enabled": False},
        },
    }
    await here.kube.create(manifest)


async def secret(here: World, name: str = f"{SERVER}-auth") -> Manifest | None:
    """The Secret *name*, if it is there."""
    return await here.kube.get(kind("Secret"), here.namespace, name)


async def started_with(here: World, annotation: str = USERS_ANNOTATION) -> str:
    """What the server's pods are started with from now on; empty before there are any."""
    server = await here.kube.get(kind("StatefulSet"), here.namespace, SERVER)
    template = (server or {}).get("spec", {}).get("template", {})
    return str(template.get("metadata", {}).get("annotations", {}).get(annotation, ""))


async def delete(here: World, found: Manifest | None) -> None:
    """Delete the Secret *found*, as somebody does by mistake."""
    assert found is not None
    metadata = found["metadata"]
    await here.kube.delete(kind("Secret"), here.namespace, metadata["name"], uid=metadata["uid"])


@pytest.mark.parametrize(
    ("name", "annotation"),
    [
        (f"{SERVER}-auth", USERS_ANNOTATION),
        (f"{SERVER}-auth-table", TABLE_USER_ANNOTATION),
        (f"{SERVER}-auth-callout", CALLOUT_USER_ANNOTATION),
    ],
)
async def test_a_deleted_secret_is_made_anew_and_the_server_with_it(
    here: World, name: str, annotation: str
) -> None:
    """A server reads its users at its start: without another one it would refuse them for ever."""
    operator = here.operator("--no-lease")
    await write(here)
    operator.start()
    before = await eventually(lambda: started_with(here, annotation))
    lost = await secret(here, name)
    await delete(here, lost)

    async def is_changed() -> bool:
        return await started_with(here, annotation) not in ("", before)

    await eventually(is_changed, what="a server with other users")
    made = await secret(here, name)
    assert lost is not None
    assert made is not None
    assert made["data"] != lost["data"]


async def test_a_spoilt_certificate_is_made_anew_and_clients_get_what_they_trust(
    here: World,
) -> None:
    """When the key is spoilt, or the Secret deleted, the server starts again with a certificate
    that clients trust by the ConfigMap of then, and an event says so.
    """
    operator = here.operator("--no-lease")
    await write(here)
    operator.start()
    name, mark = f"{SERVER}-tls", nats_tls.MARK_ANNOTATION

    async def trusted() -> str:
        found = await here.kube.get(kind("ConfigMap"), here.namespace, f"{SERVER}-ca")
        return str((found or {}).get("data", {}).get(nats_tls.CA_FILE, ""))

    async def follows(former: str) -> str:
        held, now = await secret(here, name), await started_with(here, mark)
        files = {key: base64.b64decode(text) for key, text in (held or {}).get("data", {}).items()}
        has_ended = upkeep(files, nats_tls.server_names(pipeline), datetime.now(UTC)).why
        in_step = now == mark_of(files) and (await trusted()).encode() == files.get(
            nats_tls.CA_FILE
        )
        return now if in_step and now != former and not has_ended else ""

    resource = await eventually(here.resource)
    assert resource is not None
    pipeline = parse(resource)
    first = await eventually(lambda: follows(""), what="a certificate")
    authority = await trusted()
    garbage: Manifest = {"data": {nats_tls.KEY_FILE: base64.b64encode(b"garbage").decode()}}
    await here.kube.merge(kind("Secret"), here.namespace, name, garbage)
    second = await eventually(lambda: follows(first), what="another one")
    assert await trusted() == authority
    await delete(here, await secret(here, name))
    await eventually(lambda: follows(second), what="another authority")

    assert await trusted() != authority

    async def are_told() -> bool:
        events, _ = await here.kube.list(kind("Event"), here.namespace)
        told = [each for each in events if each["reason"] == "CertificateRenewed"]
        return len(told) == 3

    await eventually(are_told, what="three events")


async def test_a_certificate_that_was_made_is_told_though_the_look_did_not_end(here: World) -> None:
    """An answer is lost behind it, and the next look finds the certificate there."""
    operator = here.operator("--no-lease")
    lost: list[Asked] = []

    def judge(asked: Asked) -> Fault | None:
        if lost or not asked.write or "/services/" not in asked.path:
            return None
        lost.append(asked)
        return Lose()

    here.proxy.judge = judge
    await write(here)
    operator.start()

    async def is_told() -> bool:
        events, _ = await here.kube.list(
            kind("Event"), here.namespace, fields="reason=CertificateRenewed"
        )
        return bool(lost and events)

    await eventually(is_told, what="an event")


def texts(found: Manifest | None) -> dict[str, str]:
    """What the Secret *found* holds."""
    data = (found or {}).get("data", {})
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def agrees(held: dict[str, str]) -> bool:
    """Whether the server's file has the password of each user, and no other."""
    words = {key: text for key, text in held.items() if key.endswith("-password")}
    wanted = {f'{key.replace("-", "_")}: "{text}"' for key, text in words.items()}
    return bool(words) and wanted == set(held.get("users.conf", "").splitlines())


async def serves(here: World, before: str) -> dict[str, str]:
    """What the Secret holds once it agrees with itself, and the server was started with it."""
    found = await secret(here)
    now = await started_with(here)
    is_new = now not in ("", before) and now == Kept(found).hash
    return texts(found) if is_new and agrees(texts(found)) else {}


async def test_a_password_that_is_written_into_the_secret_is_the_one_from_then_on(
    here: World,
) -> None:
    """So passwords are rotated by hand. The server gets it with the file that it reads, else its
    user would be refused for ever; the other passwords stay.
    """
    operator = here.operator("--no-lease")
    await write(here)
    operator.start()
    before = await eventually(lambda: started_with(here))
    former, word = texts(await secret(here)), "another-password-0123"
    data = {"shipper-password": base64.b64encode(word.encode()).decode()}
    await here.kube.merge(kind("Secret"), here.namespace, f"{SERVER}-auth", {"data": data})
    held = await eventually(lambda: serves(here, before), what="a server")

    changed = {key for key in held if held[key] != former[key]}
    assert changed == {"shipper-password", "users.conf"}
    assert held["shipper-password"] == word


@pytest.mark.parametrize(
    ("broken", "changed"),
    [
        ({"operator-password": None}, {"operator-password", "users.conf"}),
        ({"shipper-password": "c2hvcnQ="}, {"shipper-password", "users.conf"}),
        ({"users.conf": "Z2FyYmFnZQ=="}, set()),
        ({"routes.conf": "Z2FyYmFnZQ=="}, {"routes.conf"}),
    ],
)
async def test_a_spoilt_secret_is_put_right_and_the_server_started_with_it(
    here: World, broken: dict[str, str | None], changed: set[str]
) -> None:
    """Only what cannot be used is made anew, and an event tells of it."""
    operator = here.operator("--no-lease")
    await write(here)
    operator.start()
    await eventually(lambda: started_with(here))
    former = texts(await secret(here))
    await here.kube.merge(kind("Secret"), here.namespace, f"{SERVER}-auth", {"data": broken})

    async def are_told() -> bool:
        events, _ = await here.kube.list(kind("Event"), here.namespace)
        return any(f"Secret {SERVER}-auth" in str(each.get("message")) for each in events)

    await eventually(are_told, what="an event")
    held = await eventually(lambda: serves(here, ""), what="a server")

    assert held.keys() == former.keys()
    assert {key for key in held if held[key] != former[key]} == changed


async def test_a_secret_that_somebody_else_made_is_left_as_it_is(here: World) -> None:
    """Whoever looks after Secrets would change it back; what it lacks is said."""
    theirs: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{SERVER}-auth", "namespace": here.namespace},
        "data": {"operator-user": "b3BlcmF0b3I="},
    }
    made = await here.kube.create(theirs)
    operator = here.operator("--no-lease")
    await write(here)
    operator.start()

    async def is_named() -> bool:
        resource = await here.resource()
        conditions = ((resource or {}).get("status") or {}).get("conditions") or []
        return any("has no key operator-password" in each["message"] for each in conditions)

    await eventually(is_named, what="the Secret is named")
    found = await secret(here)
    assert found is not None
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_servers_of_a_cluster_are_started_again_together(here: World) -> None:
    """One after the other, the first would find no other that lets it in, and never be ready."""
    operator = here.operator("--no-lease")
    await write(here, replicas=3)
    operator.start()
    before = await eventually(lambda: started_with(here))

    async def servers(users: str) -> int:
        selector = f"app.kubernetes.io/component=nats,app.kubernetes.io/instance={NAME}"
        found, _ = await here.kube.list(kind("Pod"), here.namespace, selector)
        return sum(pod["metadata"]["annotations"].get(USERS_ANNOTATION) == users for pod in found)

    async def all_are(users: str) -> bool:
        return await servers(users) == 3

    await eventually(lambda: all_are(before), what="three servers")
    await delete(here, await secret(here))

    async def all_are_new() -> bool:
        users = await started_with(here)
        return users not in ("", before) and await all_are(users)

    await eventually(all_are_new, what="three servers with other users")


@pytest.mark.parametrize("was_there", [False, True])
async def test_a_server_gets_accounts_and_tls_only_where_it_began_with_them(
    here: World, was_there: bool
) -> None:
    """A volume of a server without accounts holds streams that one with accounts does not find, and
    sidecars that were there before TLS know nothing of it.
    """
    if was_there:
        labels = {"app.kubernetes.io/component": "nats", "logpipeline.dev/pipeline": NAME}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": f"data-{SERVER}-0",
                "namespace": here.namespace,
                "labels": labels,
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
            },
        }
        await here.kube.create(claim)
    operator = here.operator("--no-lease")
    await write(here)
    operator.start()
    await eventually(lambda: started_with(here))
    first = here.looks()
    await eventually(lambda: here.looks() > first + 2, what="more looks")
    server = await here.kube.get(kind("StatefulSet"), here.namespace, SERVER)
    config = await here.kube.get(kind("ConfigMap"), here.namespace, SERVER)

    assert server is not None
    assert config is not None
    assert ("NODES" in config["data"]["nats.conf"]) is not was_there
    assert ("tls: {" in config["data"]["nats.conf"]) is not was_there
    assert (await secret(here, f"{SERVER}-tls") is None) is was_there
    assert server["metadata"]["generation"] == 1
