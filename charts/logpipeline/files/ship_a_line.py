"""What `helm test` runs: it prints a line, and finds it in the collectors' files, once.

It uses a LogPipeline that is there, or makes one that collects this container alone and removes it
afterwards. Only a pod whose output is collected can tell that the way from end to end is open.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.stream import WsApiClient

GROUP, VERSION, PLURAL = "logpipeline.dev", "v1alpha1", "logpipelines"
POLL_S = 2.0
CLEANUP_S = 120.0
# Only files that were changed recently are searched: the collectors' files may hold terabytes.
FRESH_S = 1800
# Python is the one program in a collector's image. A file that is rotated meanwhile is found later.
COUNT = """
import contextlib, pathlib, sys, time
folder, marker, fresh_s = sys.argv[1], sys.argv[2].encode(), float(sys.argv[3])
found = 0
for file in pathlib.Path(folder).rglob("*"):
    with contextlib.suppress(FileNotFoundError):
        if file.is_file() and time.time() - file.stat().st_mtime < fresh_s:
            with file.open("rb") as lines:
                found += sum(line.count(marker) for line in lines)
print(found)
"""

Resource = dict[str, Any]


class Failed(Exception):
    """The test failed; the message says at what."""


class Trial:
    """One run of the test with the LogPipeline *namespace*/*name*."""

    def __init__(self, api: client.ApiClient, exec_api: WsApiClient) -> None:
        self.namespace = os.environ["TEST_NAMESPACE"]
        self.name = os.environ["TEST_PIPELINE"]
        # As the client declares them, half of the fields that every object has may be missing.
        self._pipelines: Any = client.CustomObjectsApi(api)
        self._core: Any = client.CoreV1Api(api)
        self._inside: Any = client.CoreV1Api(exec_api)
        self._where = (GROUP, VERSION, self.namespace, PLURAL)

    async def create(self, spec: Resource) -> None:
        """Make the LogPipeline, in the place of one that an earlier run left."""
        await self.remove()
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "LogPipeline",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
        }
        await self._pipelines.create_namespaced_custom_object(*self._where, body)
        say(f"made LogPipeline {self.namespace}/{self.name}")

    async def remove(self) -> None:
        """Delete the LogPipeline, and the volumes that it leaves for whoever comes back."""
        try:
            await self._pipelines.delete_namespaced_custom_object(*self._where, self.name)
            await until(self._is_gone, f"LogPipeline {self.name} to be gone")
        except ApiException as error:
            if error.status != 404:
                raise
        selector = f"{GROUP}/pipeline={self.name}"
        claims = await self._core.list_namespaced_persistent_volume_claim(
            self.namespace, label_selector=selector
        )
        for claim in claims.items:
            await self._core.delete_namespaced_persistent_volume_claim(
                claim.metadata.name, self.namespace
            )

    async def is_ready(self) -> bool:
        """Return whether the LogPipeline works, and tell when it says something new."""
        condition = next(
            (c for c in (await self._status()).get("conditions", ()) if c["type"] == "Ready"), None
        )
        if condition is None:
            return False
        say(f"Ready is {condition['status']}: {condition['reason']}: {condition['message']}")
        return bool(condition["status"] == "True")

    async def count(self, marker: str) -> int:
        """Return how often *marker* stands in the files of all collectors."""
        resource = await self._pipelines.get_namespaced_custom_object(*self._where, self.name)
        folder = resource["spec"].get("collectors", {}).get("directory", "/data")
        labels = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=collector"
        pods = await self._core.list_namespaced_pod(self.namespace, label_selector=labels)
        command = ["python3", "-c", COUNT, folder, marker, str(FRESH_S)]
        found = 0
        for pod in pods.items:
            try:
                answer = await self._inside.connect_get_namespaced_pod_exec(
                    pod.metadata.name, self.namespace, command=command,
                    container="collector", stdout=True, stderr=True, stdin=False, tty=False,
                )  # fmt: skip
                found += int(answer)
            except Exception as error:  # noqa: BLE001  # it starts anew, or hands over: ask again
                say(f"{pod.metadata.name} cannot be asked: {error!r}")
        return found

    async def _status(self) -> Resource:
        resource = await self._pipelines.get_namespaced_custom_object(*self._where, self.name)
        return dict(resource.get("status") or {})

    async def _is_gone(self) -> bool:
        try:
            await self._pipelines.get_namespaced_custom_object(*self._where, self.name)
        except ApiException as error:
            if error.status == 404:
                return True
            raise
        return False


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until *holds* returns true; the limit is that of the whole test."""
    say(f"waiting for {what}")
    while not await holds():  # noqa: ASYNC110  # what is awaited is elsewhere, and has no event
        await asyncio.sleep(POLL_S)


_last_said = ""


def say(text: str) -> None:
    """Print *text*, unless it was the last thing said."""
    global _last_said  # noqa: PLW0603  # what is printed waits for nobody to hand it around
    if text != _last_said:
        print(text, flush=True)
        _last_said = text


async def ship_a_line(trial: Trial) -> None:
    """Print a line, and wait until it is found once."""
    await until(trial.is_ready, f"LogPipeline {trial.namespace}/{trial.name} to be ready")
    # Printed once, and never again: whatever this container prints is shipped.
    marker = f"a line of helm test {uuid.uuid4()}"
    print(marker, flush=True)

    async def is_there() -> bool:
        return await trial.count(marker) > 0

    await until(is_there, "the line to stand in a collector's file")
    found = await trial.count(marker)
    if found != 1:
        raise Failed(f"the line was found {found} times, and was printed once")
    say("the line was found, once")


async def run() -> None:
    """Do the test within its time, and clean up in every case."""
    config.load_incluster_config()
    spec = json.loads(os.environ.get("TEST_SPEC") or "null")
    seconds = float(os.environ["TEST_TIMEOUT_SECONDS"])
    async with client.ApiClient() as api, WsApiClient() as exec_api:
        trial = Trial(api, exec_api)
        try:
            async with asyncio.timeout(seconds):
                if spec is not None:
                    await trial.create(spec)
                await ship_a_line(trial)
        except TimeoutError as error:
            raise Failed(f"not within {seconds:.0f} s; above is what it waited for") from error
        finally:
            if spec is not None:
                async with asyncio.timeout(CLEANUP_S):
                    await trial.remove()


async def main() -> int:
    """Return the exit code; a pod that is deleted cleans up as well."""
    task = asyncio.create_task(run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await task
    except (Failed, ApiException, asyncio.CancelledError) as error:
        print(f"failed: {str(error) or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
