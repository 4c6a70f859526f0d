"""Containers of a node: the right ones are shipped, with what is known of their pods, to their last
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from components.kube_api import NAMESPACES, PODS, KubeApi, kube_api
from components.shipping import (
    HOST,
    append,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    read_once,
    shipping,
    stored,
    until,
    until_stored,
)
from components.shipping import arrived as arrived_of
from logpipeline import statefile, wire
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.jetstream import JetStream
from logpipeline.spec.components import Match, PodSelector
from logpipeline_shipper import service, source_manager
from logpipeline_shipper.config import ShipperConfig
from logpipeline_shipper.files import source_filter
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.open_file import DescriptorBudget
from logpipeline_shipper.files.source_filter import Rules
from waiting import eventually


def container(folder: Path, pod: str, name: str = "app", namespace: str = "shop") -> Path:
    """Return the live log of a container, as kubelet would place it; the pod's uid is its name."""
    return folder / "pods" / f"{namespace}_{pod}_{pod}" / name / "0.log"


def log_lines(path: Path, first: int, end: int) -> bytes:
    """Write numbered lines as containerd does, and return them."""
    lines = b"".join(
        b"2026-11-21T10:00:00.%09dZ stdout F line %d\n" % (number, number)
        for number in range(first, end)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(lines)
    return lines


def node(tmp_path: Path, server: EmbeddedServer, api: KubeApi | None, **changes: Any) -> Any:
    """Return the configuration of a node's shipper."""
    rules = changes.pop("rules", {})
    return config_of(
        tmp_path,
        server.url,
        hosts=(HostSources(host=HOST, pods_dir=tmp_path / "pods"),),
        rules=Rules(namespace="logging", pipeline="prod", **rules),
        kubernetes=api.access() if api else None,
        node=HOST,
        **changes,
    )


async def arrived(js: JetStream) -> dict[str, bytes]:
    """Return what arrived, by pod and container."""
    found = read_once(await stored(js))
    return {source.split("/", 1)[1].rsplit("/", 1)[0]: data for (_, source), data in found.items()}


async def until_arrived(js: JetStream, expected: dict[str, bytes]) -> None:
    """Return when exactly *expected* has arrived, by ``<pod>/<container>``."""
    wanted = {f"{pod.split('/')[0]}/{pod}": data for pod, data in expected.items()}

    async def is_it() -> bool:
        return await arrived(js) == wanted

    await until(is_it, what=f"{sorted(wanted)}")


async def batches(js: JetStream) -> list[wire.Batch]:
    return [batch_of(message) for message in await stored(js)]


async def test_the_resource_and_the_annotations_choose(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """By namespace, label, container and annotation; lines carry the labels that were asked for."""
    matches = (
        Match(exclude=PodSelector(labels={"tier": "test"})),
        Match(select=PodSelector(namespaces=("shop",), container_names=("app",))),
    )
    (tmp_path / "pods").mkdir()
    async with kube_api() as api, jetstream(nats_server) as js:
        await make_stream(js)
        api.put(NAMESPACES, "shop")
        api.put(NAMESPACES, "secret", exclude=True)
        api.put(PODS, "web", namespace="shop", labels={"app": "web", "tier": "front"})
        api.put(PODS, "test", namespace="shop", labels={"tier": "test"})
        api.put(PODS, "quiet", namespace="shop", labels={}, exclude=True)
        api.put(PODS, "prod-collector-0", namespace="shop", labels={})
        for pod in ("test", "quiet"):
            log_lines(container(tmp_path, pod), 0, 3)
        log_lines(container(tmp_path, "web", "helper"), 0, 3)
        log_lines(container(tmp_path, "hidden", namespace="secret"), 0, 3)
        log_lines(container(tmp_path, "other", namespace="bank"), 0, 3)
        expected = log_lines(container(tmp_path, "web"), 0, 5)
        config = node(
            tmp_path, nats_server, api, rules={"matches": matches, "labels": ("app", "none")}
        )
        async with shipping(config):
            await until_arrived(js, {"web/app": expected})
            (first, *_) = await batches(js)
            more = log_lines(container(tmp_path, "prod-collector-0"), 0, 2)
            await until_arrived(js, {"web/app": expected, "prod-collector-0/app": more})

    assert first.labels == (("app", "web"),)
    assert (first.namespace, first.pod, first.container) == ("shop", "web", "app")


async def test_an_exclusion_comes_and_goes(nats_server: EmbeddedServer, tmp_path: Path) -> None:
    """What was sent stays; nothing is read meanwhile, and afterwards it goes on where it was."""
    async with kube_api() as api, jetstream(nats_server) as js:
        await make_stream(js)
        api.put(PODS, "web", namespace="shop", labels={})
        path, other = container(tmp_path, "web"), container(tmp_path, "other")
        api.put(PODS, "other", namespace="shop", labels={})
        sent = log_lines(path, 0, 5)
        config = node(tmp_path, nats_server, api)
        async with shipping(config):
            await until_arrived(js, {"web/app": sent})
            api.put(NAMESPACES, "shop", exclude=True)
            api.put(NAMESPACES, "bank")
            witness = log_lines(container(tmp_path, "sign", namespace="bank"), 0, 1)
            api.put(PODS, "sign", namespace="bank", labels={})
            await until_arrived(js, {"web/app": sent, "sign/app": witness})
            hidden = log_lines(path, 5, 9)
            witness += log_lines(container(tmp_path, "sign", namespace="bank"), 1, 2)
            await until_arrived(js, {"web/app": sent, "sign/app": witness})
            api.put(NAMESPACES, "shop")

            await until_arrived(js, {"web/app": sent + hidden, "sign/app": witness})
    assert not other.exists()


def unseen(tmp_path: Path) -> int:
    """Return how many files the shipper has saved as never seen."""
    data = statefile.read_state(tmp_path / "data" / "positions", "positions", 3)
    assert data is not None
    return int(data["unseen"][0])


async def test_an_exclusion_during_a_restart_is_no_loss(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The excluded log is rotated meanwhile; the one of a pod that is gone does count."""
    async with kube_api() as api, jetstream(nats_server) as js:
        await make_stream(js)
        for pod in ("web", "gone"):
            api.put(PODS, pod, namespace="shop", labels={})
        web, gone = container(tmp_path, "web"), container(tmp_path, "gone")
        expected = {"web/app": log_lines(web, 0, 5), "gone/app": log_lines(gone, 0, 5)}
        config = node(tmp_path, nats_server, api)
        async with shipping(config):
            await until_arrived(js, expected)
        api.put(PODS, "web", namespace="shop", labels={}, exclude=True)
        shutil.rmtree(gone.parents[1])
        web.rename(web.with_name("0.log.20261121-100000"))
        hidden = log_lines(web, 5, 9)
        async with shipping(config):
            await eventually(lambda: unseen(tmp_path) == 1)
            api.put(PODS, "web", namespace="shop", labels={})

            await until_arrived(js, expected | {"web/app": expected["web/app"] + hidden})
    assert unseen(tmp_path) == 1


async def test_without_the_api_server_lines_flow(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bounded wait the path decides; when the server is back, labels follow."""
    monkeypatch.setattr(source_filter, "METADATA_WAIT_S", 0.5)
    async with kube_api() as api, jetstream(nats_server) as js:
        await make_stream(js)
        config = node(tmp_path, nats_server, api, rules={"labels": ("app",)})
        await api.stop()
        lines = log_lines(container(tmp_path, "web"), 0, 5)
        async with shipping(config):
            await until_arrived(js, {"web/app": lines})
            api.put(PODS, "web", namespace="shop", labels={"app": "web"})
            await api.start()

            async def is_labelled() -> bool:
                log_lines(container(tmp_path, "web"), 5, 6)
                return (await batches(js))[-1].labels == (("app", "web"),)

            await until(is_labelled)


async def test_the_last_lines_of_a_deleted_pod_arrive(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """kubelet removes a pod's files, then its folders, soon after the last line was written."""
    async with jetstream(nats_server) as js:
        await make_stream(js)
        path = container(tmp_path, "web")
        lines = log_lines(path, 0, 1000)
        async with shipping(node(tmp_path, nats_server, None)):
            await until_arrived(js, {"web/app": lines})
            lines += log_lines(path, 1000, 1100)
            await asyncio.sleep(0.05)  # what kubelet takes at least between the last line and this
            path.unlink()
            shutil.rmtree(path.parents[1])

            await until_arrived(js, {"web/app": lines})


async def test_pods_that_go_while_the_server_is_away_lose_nothing(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files are held open, also of those whose turn to be read has not come."""
    monkeypatch.setattr(source_manager, "WARM_S", 0.1)
    monkeypatch.setattr(service, "TICK_S", 0.1)
    (tmp_path / "pods").mkdir()
    pods = [f"web-{number}" for number in range(20)]
    # As on a node with many more logs.
    monkeypatch.setattr(DescriptorBudget, "has_room_for_idle", lambda self: False)
    config: ShipperConfig = node(
        tmp_path, nats_server, None, in_flight_bytes_max=8 * 1024, idle_close_s=0.1, rescan_s=30.0
    )
    async with shipping(config):
        async with jetstream(nats_server) as js:
            await make_stream(js)
            expected = {f"{pod}/app": log_lines(container(tmp_path, pod), 0, 10) for pod in pods}
            await until_arrived(js, expected)
        await eventually(lambda: not open_logs(tmp_path), what="idle files are closed")
        await nats_server.stop()
        await asyncio.sleep(0.3)
        for pod in pods:
            # One after the other: the first ones take all of the bytes that may be in flight.
            expected[f"{pod}/app"] += log_lines(container(tmp_path, pod), 10, 20)
            await asyncio.sleep(0.03)
        await eventually(lambda: len(open_logs(tmp_path)) == 20, what="files with lines are open")
        for pod in pods:
            shutil.rmtree(container(tmp_path, pod).parents[1])
        await asyncio.sleep(0.3)
        await nats_server.start()

        async with jetstream(nats_server) as js:
            await until_arrived(js, expected)


def open_logs(folder: Path) -> list[str]:
    """Return which logs this process has open."""
    targets = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(str(link.readlink()))
    return [target for target in targets if target.startswith(f"{folder}/pods/")]


async def test_a_sidecar_ships_the_last_byte_before_it_ends(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """It stops after everybody else: a line without its newline will not grow any more, and a file
    that was never seen is read as well.
    """
    logs, late = tmp_path / "logs", tmp_path / "late"
    hosts = (HostSources(host=HOST, include=(f"{logs}/*.log", f"{late}/*.log")),)
    config = config_of(tmp_path, nats_server.url, hosts=hosts, read_out_s=10.0, rescan_s=30.0)
    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config) as shipper:
            first = lines_of(0, 3000)
            append(logs / "app.log", first)
            await until_stored(js, logs / "app.log", first)
            append(logs / "app.log", b"the end")
            append(late / "late.log", b"only this")
            await shipper.stop()

        assert await arrived_of(js, logs / "app.log") == first + b"the end"
        assert await arrived_of(js, late / "late.log") == b"only this"


async def test_a_sidecar_does_not_wait_for_ever(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Where the server is away, a pod ends nevertheless."""
    config = config_of(tmp_path, nats_server.url, read_out_s=0.3, drain_s=0.2)
    async with shipping(config) as shipper:
        await nats_server.stop()
        append(tmp_path / "logs" / "app.log", b"a line\n")
        async with asyncio.timeout(5):
            code = await shipper.stop()

    assert code == 0
