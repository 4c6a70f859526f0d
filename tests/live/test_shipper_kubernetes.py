"""The pod_cache of pods stays level with the API server through whatever befalls the watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from components.kube_api import NAMESPACES, PODS, KubeApi, kube_api
from logpipeline_shipper.kubernetes import client, pods
from logpipeline_shipper.kubernetes.client import Access
from logpipeline_shipper.kubernetes.pods import (
    ChosenNamespaces,
    PodCache,
    Reflector,
    collections_of,
)
from waiting import eventually


class Following:
    """Both watches of a node, in this loop."""

    def __init__(self, access: Access) -> None:
        self.pod_cache = PodCache()
        self.pods, self.namespaces = (
            Reflector(access, each) for each in collections_of("node-a", self.pod_cache)
        )

    def labels(self, uid: str) -> dict[str, str] | None:
        """Return the labels of a pod."""
        pod = self.pod_cache.pods.get(uid)
        return None if pod is None else dict(pod.labels)


@asynccontextmanager
async def following_api(access: Access) -> AsyncIterator[Following]:
    both = Following(access)
    tasks = [asyncio.create_task(each.run()) for each in (both.pods, both.namespaces)]
    try:
        yield both
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "BACKOFF_FIRST_S", 0.02)


async def until_watching(api: KubeApi) -> None:
    await eventually(lambda: api.watches == 2, what="two watches")


async def test_the_watch_asks_for_this_node_and_for_metadata_alone() -> None:
    """A DaemonSet must cost the API server little: from its cache, one node, no specs."""
    async with kube_api() as api, following_api(api.access()):
        await until_watching(api)
        listed, watched = [request for request in api.requests if request[0] == PODS]

    assert listed[1] == {"fieldSelector": "spec.nodeName=node-a", "resourceVersion": "0"}
    assert "as=PartialObjectMetadataList" in listed[2]["Accept"]
    assert watched[1]["resourceVersion"] == "100"
    assert watched[1]["allowWatchBookmarks"] == "true"


async def test_who_reads_one_namespace_asks_for_its_pods_alone() -> None:
    """Shippers with a right in their own namespace make no request that would be refused, and wait
    for nothing that never comes.
    """
    async with kube_api() as api:
        path = "/api/v1/namespaces/shop/pods"
        api.objects[path] = {}
        api.put(path, "web", namespace="shop", labels={"app": "web"})
        pod_cache = PodCache()
        [of_pods] = collections_of("node-a", pod_cache, "shop")
        following_it = asyncio.create_task(Reflector(api.access(), of_pods).run())
        await eventually(lambda: "web" in pod_cache.pods)
        following_it.cancel()
        asked = {request[0] for request in api.requests}

    assert pod_cache.are_namespaces_known
    assert asked == {path}


async def test_namespaces_that_are_chosen_are_followed_each_by_itself() -> None:
    """One more costs one more watch, one less ends its own: what is known of others stays."""
    paths = {name: f"/api/v1/namespaces/{name}/pods" for name in ("bank", "shop")}
    async with kube_api() as api, asyncio.TaskGroup() as tasks:
        for name, path in paths.items():
            api.objects[path] = {}
            api.put(path, f"{name}-1", namespace=name, labels={"app": name})
        pod_cache = PodCache()
        chosen = ChosenNamespaces(api.access(), "node-a", pod_cache, tasks.create_task)
        chosen.choose({"shop"})
        await eventually(lambda: set(pod_cache.pods) == {"shop-1"} and api.watches == 1)
        chosen.choose({"bank", "shop"})
        await eventually(lambda: set(pod_cache.pods) == {"bank-1", "shop-1"} and api.watches == 2)
        chosen.choose({"bank"})
        left = set(pod_cache.pods)
        await eventually(lambda: api.watches == 1)
        chosen.choose(set())

    assert left == {"bank-1"}
    assert {request[0] for request in api.requests} == set(paths.values())


@pytest.mark.parametrize("piece_bytes", [1, 7, 65536])
async def test_events_arrive_however_they_are_cut(piece_bytes: int) -> None:
    """A chunk of HTTP is no event: it may hold a part of one, or several."""
    async with kube_api() as api:
        api.piece_bytes = piece_bytes
        api.put(PODS, "old", namespace="shop", labels={"app": "é\n"})
        async with following_api(api.access()) as both:
            await until_watching(api)
            api.put(PODS, "new", namespace="shop", labels={"app": "web"})
            api.put(NAMESPACES, "shop", exclude=True)
            await eventually(lambda: both.labels("new") and both.pod_cache.excluded == {"shop"})

            assert both.labels("old") == {"app": "é\n"}
            assert both.labels("new") == {"app": "web"}


async def test_two_events_may_end_in_one_piece() -> None:
    """The end of the one before does not hide the next one."""
    made: list[dict[str, object]] = [
        {"metadata": {"name": name, "uid": name, "labels": {}, "resourceVersion": "200"}}
        for name in ("first-with-a-long-name", "second")
    ]
    lines = [json.dumps({"type": "ADDED", "object": each}).encode() + b"\n" for each in made]
    async with kube_api() as api, following_api(api.access()) as both:
        await until_watching(api)
        api.send(PODS, lines[0][:-1])
        api.send(PODS, lines[0][-1:] + lines[1])

        await eventually(lambda: both.labels("second") == {})
        assert both.labels("first-with-a-long-name") == {}


async def test_a_version_that_is_gone_is_listed_anew() -> None:
    """From the store this time: the cache may be as old; what went meanwhile is noticed."""
    async with kube_api() as api, following_api(api.access()) as both:
        await until_watching(api)
        api.put(PODS, "old", namespace="shop", labels={})
        await eventually(lambda: both.labels("old") is not None)
        api.objects[PODS].clear()
        api.tell(PODS, "ERROR", {"code": 410, "message": "too old resource version"})
        await eventually(lambda: both.pods.lists == 2 and api.watches == 2)
        lists = [q for path, q, _ in api.requests if path == PODS and "watch" not in q]

        assert both.labels("old") is None
        assert "resourceVersion" not in lists[1]


async def test_a_watch_that_broke_goes_on_where_it_was() -> None:
    """From the version that was seen last; nothing is listed again."""
    async with kube_api() as api, following_api(api.access()) as both:
        await until_watching(api)
        api.put(PODS, "first", namespace="shop", labels={})
        await eventually(lambda: both.pods.events == 1)
        await api.stop()
        await eventually(lambda: both.pods.problem is not None)
        await api.start()
        await until_watching(api)
        last = [query for path, query, _ in api.requests if path == PODS][-1]

    assert last["resourceVersion"] == "101"
    assert both.pods.lists == 1


async def test_the_token_is_read_for_each_request(tmp_path: Path) -> None:
    """Tokens of pods live an hour, and the file has the next one in time."""
    token = tmp_path / "token"
    token.write_text("one\n")
    async with kube_api() as api, following_api(api.access(token)):
        await until_watching(api)
        token.write_text("two\n")
        await api.stop()
        await api.start()
        await until_watching(api)
        used = [headers["Authorization"] for _, _, headers in api.requests]

    assert (used[0], used[-1]) == ("Bearer one", "Bearer two")


async def test_a_silent_watch_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that died without a word is not waited on for ever."""
    monkeypatch.setattr(client, "SILENCE_S", 0.05)
    async with kube_api() as api, following_api(api.access()):
        await eventually(lambda: sum("watch" in query for _, query, _ in api.requests) >= 4)


async def test_who_may_not_read_namespaces_reads_pods() -> None:
    """Then pods alone are excluded, and none waits for what never comes."""
    async with kube_api() as api:
        api.refuse = 403
        async with following_api(api.access()) as both:
            await eventually(lambda: both.pod_cache.are_namespaces_known)
            problem = both.namespaces.problem
            api.refuse = None
            await eventually(lambda: both.namespaces.problem is None)

    assert problem is not None
    assert "403" in problem


@pytest.mark.parametrize(
    "data",
    [b"no json\n", b'{"type":"ADDED"}\n', b"[1]\n", b"x" * 5000, None],
    ids=["no JSON", "no object", "a list", "no end", "nothing at all"],
)
async def test_nonsense_ends_the_watch_and_not_the_shipper(
    data: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a proxy in between makes of it, the next watch is asked for, with a pause."""
    monkeypatch.setattr(client, "OBJECT_BYTES_MAX", 4000)
    async with kube_api() as api, following_api(api.access()) as both:
        await until_watching(api)
        api.send(PODS, data)
        await eventually(lambda: sum("watch" in query for _, query, _ in api.requests) >= 3)
        await until_watching(api)
        api.put(PODS, "new", namespace="shop", labels={"app": "web"})

        await eventually(lambda: both.labels("new") == {"app": "web"})
