"""The pods in which an agent can read a pipeline's files: those of running collectors, pods that
are created to read the volumes of collectors that are gone, and those of shippers.
"""

from __future__ import annotations

import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from logpipeline.observe.logs import printable
from logpipeline.spec import LogPipeline
from logpipeline.spec.api import (
    API_VERSION,
    COMPONENT_LABEL,
    EXCLUDE_ANNOTATION,
    KIND,
    PIPELINE_LABEL,
)
from logpipeline.spec.components import Persistence
from logpipeline_cli.cluster.agent_client import AgentPod
from logpipeline_cli.cluster.api import Forbidden, path
from logpipeline_cli.cluster.session import Found
from logpipeline_cli.errors import CliError
from logpipeline_operator.children import config, names, pods
from logpipeline_operator.children.collectors import CLAIM, data_folder
from logpipeline_operator.children.model import INSTANCE_LABEL, MANAGED_BY_LABEL, NAME, NAME_LABEL
from logpipeline_operator.children.shippers import DATA

COMPONENT = "files"
MANAGED_BY = "kubectl-logpipeline"
FOLDER = "/data"
# Pods that are created at the same time.
READERS_MAX = 64
# A created pod ends by itself, also if the command that created it was killed.
LIFE_S = 6 * 3600
READY_WITHIN_S = 120.0
LOOK_EVERY_S = 0.5
# States of a container, such as a missing image, in which waiting does not help.
HOPELESS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
     "CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)  # fmt: skip
RESOURCES = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"memory": "256Mi"},
}
_TAKEN_FROM_COLLECTORS = ("imagePullSecrets", "nodeSelector", "tolerations", "priorityClassName")


def manifest(
    pipeline: LogPipeline, uid: str, place: Claimed, template: Manifest, suffix: str
) -> Manifest:
    """Return the pod that reads *place*, with the image and the nodes of collectors' *template*.

    It conforms to Pod Security `restricted`, has no token, and is deleted with the pipeline of this
    *uid*.
    """
    spec = template["spec"]
    collector = next(c for c in spec["containers"] if c["name"] == "collector")
    chosen = {name: spec[name] for name in _TAKEN_FROM_COLLECTORS if name in spec}
    if place.node:
        # The volume is attached to this node already.
        chosen["nodeName"] = place.node
    elif place.is_shared:
        chosen["affinity"] = _near_collectors(pipeline.name)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{pipeline.name}-files-{suffix}",
            "namespace": pipeline.namespace,
            "labels": {
                NAME_LABEL: NAME,
                INSTANCE_LABEL: pipeline.name,
                COMPONENT_LABEL: COMPONENT,
                MANAGED_BY_LABEL: MANAGED_BY,
                PIPELINE_LABEL: pipeline.name,
            },
            "annotations": {EXCLUDE_ANNOTATION: "true"},
            "ownerReferences": [_owner(pipeline, uid)],
        },
        "spec": {
            **chosen,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LIFE_S,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": spec.get("securityContext") or pods.RESTRICTED_POD,
            "containers": [
                {
                    "name": "collector",
                    "image": collector["image"],
                    "imagePullPolicy": collector.get("imagePullPolicy", "IfNotPresent"),
                    "command": ["python3", "-c", f"import time; time.sleep({LIFE_S})"],
                    "resources": RESOURCES,
                    "securityContext": pods.RESTRICTED_CONTAINER,
                    "volumeMounts": [
                        # Not read-only: a collector that was killed left a log beside its state,
                        # and SQLite reads it only where it can also write locks.
                        {"name": "data", "mountPath": FOLDER},
                        {"name": "tmp", "mountPath": "/tmp"},
                    ],
                }
            ],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": place.claim}},
                {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
            ],
        },
    }


@contextmanager
def readers(found: Found, claimed: Sequence[Claimed]) -> Iterator[dict[Claimed, str]]:
    """Run a pod for each of *claimed*, and yield their names; they are deleted at the end.

    Raises:
        CliError: they cannot be created, or do not start.
    """
    if len(claimed) > READERS_MAX:
        raise CliError(
            f"{len(claimed)} collectors are gone, and {READERS_MAX} can be read at once; delete "
            "claims that are not needed any more, or give --running"
        )
    made: dict[Claimed, str] = {}
    where = path("v1", "pods", found.pipeline.namespace)
    try:
        if claimed:
            template = _template(found)
            for place in claimed:
                uid = found.resource["metadata"]["uid"]
                pod = manifest(found.pipeline, uid, place, template, secrets.token_hex(4))
                # Noted before the request: its answer may be lost.
                made[place] = pod["metadata"]["name"]
                _create(found, where, pod)
            for place, name in made.items():
                _wait(lambda name=name: found.cluster.api.get(f"{where}/{name}"), place)  # type: ignore[misc]
        yield made
    finally:
        for name in made.values():
            _remove(found, f"{where}/{name}", name)


def _template(found: Found) -> Manifest:
    name, namespace = names.collector(found.pipeline), found.pipeline.namespace
    stateful_set = found.cluster.api.get(path("apps/v1", "statefulsets", namespace, name))
    template: Manifest = stateful_set["spec"]["template"]
    return template


def _create(found: Found, where: str, pod: Manifest) -> None:
    try:
        found.cluster.api.create(where, pod)
    except Forbidden as error:
        raise CliError(
            f"reading the files of a collector that is gone needs the right to create and delete "
            f"pods in namespace {found.pipeline.namespace} ({error}); give --running for the files "
            "of running collectors alone"
        ) from error


def _remove(found: Found, where: str, name: str) -> None:
    try:
        found.cluster.api.delete(where)
    except CliError as error:
        print(
            f"pod {name} could not be deleted ({error}); run `kubectl delete pod {name}`",
            file=sys.stderr,
        )


def _wait(look: Callable[[], Manifest], place: Claimed) -> None:
    until = time.monotonic() + READY_WITHIN_S
    while True:
        pod = look()
        why, is_hopeless = waiting_for(pod)
        if why is None:
            return
        if is_hopeless or time.monotonic() > until:
            name = pod["metadata"]["name"]
            raise CliError(
                f"claim {place.claim} of {place.member} cannot be read: pod {name} does not "
                f"start: {why}; give --running for the files of running collectors alone"
            )
        time.sleep(LOOK_EVERY_S)


def waiting_for(pod: Manifest) -> tuple[str | None, bool]:
    """Return the reason why *pod* does not run, None when it runs; and whether waiting is
    useless.
    """
    status: dict[str, Any] = pod.get("status") or {}
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        if "running" in state:
            return None, False
        if waiting := state.get("waiting"):
            reason = waiting.get("reason", "")
            return f"{reason} {waiting.get('message', '')}".strip(), reason in HOPELESS
    if status.get("phase") in ("Failed", "Succeeded"):
        return f"{status.get('reason', 'it ended')} {status.get('message', '')}".strip(), True
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason")), False
    return "it is not started yet", False


def _owner(pipeline: LogPipeline, uid: str) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": KIND, "name": pipeline.name, "uid": uid}


def _near_collectors(name: str) -> Manifest:
    """Prefer nodes on which collectors run: some volumes can be attached to one node at a time."""
    labels = {NAME_LABEL: NAME, INSTANCE_LABEL: name, COMPONENT_LABEL: "collector"}
    term = {
        "labelSelector": {"matchLabels": labels},
        "topologyKey": pods.HOSTNAME_TOPOLOGY,
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


@contextmanager
def collectors_of(found: Found, *, only_running: bool) -> Iterator[list[AgentPod]]:
    """Yield the pods that together have all files of the pipeline's collectors.

    Raises:
        CliError: there are none.
    """
    seen = _places(found, only_running=only_running)
    for text in seen.notes:
        note(text)
    with _ends(found, seen) as ends:
        yield ends


def shippers_of(found: Found) -> list[AgentPod]:
    """Return the pods that have the log files of nodes: the running shippers.

    Raises:
        CliError: there are none.
    """
    folders = {
        "file": str(config.FOLDER / config.FILE),
        "name": config.NODE_SHIPPER,
        "data": DATA,
    }
    kubectl, pipeline = found.cluster.kubectl, found.pipeline
    pods = [pod for pod in found.objects("pods", "shipper") if is_running(pod, "shipper")]
    ends = []
    for pod in sorted(pods, key=lambda pod: str(pod["spec"].get("nodeName"))):
        name = str(pod["metadata"]["name"])
        where = f"{pod['spec'].get('nodeName')} (pod {name})"
        words = kubectl.exec_words(pipeline.namespace, name, "shipper")
        ends.append(AgentPod(where, words, folders))
    if not ends:
        raise CliError(
            f"no shipper of {pipeline.name} runs on a node, and log files are read in shippers' "
            "pods; files that sidecars ship cannot be compared"
        )
    return ends


def note(text: str) -> None:
    """Print a remark to standard error."""
    print(printable(text), file=sys.stderr)


def _places(found: Found, *, only_running: bool) -> Places:
    pods = found.objects("pods", "collector")
    claims = [] if only_running else found.objects("persistentvolumeclaims", "collector")
    seen = places(found.pipeline, pods, claims)
    if only_running:
        seen = Places(seen.running, (), seen.notes)
    if not seen.running and not seen.claimed:
        name = found.pipeline.name
        raise CliError(
            f"no collector of {name} runs, and no volume of an earlier one can be read; see "
            f"`kubectl describe logpipeline {name} -n {found.pipeline.namespace}`"
        )
    return seen


@contextmanager
def _ends(found: Found, seen: Places) -> Iterator[list[AgentPod]]:
    kubectl, namespace = found.cluster.kubectl, found.pipeline.namespace
    prefix = f"{names.collector(found.pipeline)}-"
    members = [place.pod for place in seen.running]
    ends = []
    for place in seen.running:
        folders: dict[str, Any] = {"folders": {place.pod: place.folder}}
        if place.lost_below:
            below = {"folder": place.lost_below, "prefix": prefix, "without": members}
            folders["shared"] = below
        ends.append(AgentPod(place.pod, kubectl.exec_words(namespace, place.pod), folders))
    if seen.claimed:
        note(f"starting {len(seen.claimed)} pods to read the volumes of collectors that are gone")
    with readers(found, seen.claimed) as made:
        for claimed, pod in made.items():
            folders = _folders(claimed, prefix, members)
            where = f"{claimed.claim} (by pod {pod})"
            ends.append(AgentPod(where, kubectl.exec_words(namespace, pod), folders))
        yield ends


def _folders(claimed: Claimed, prefix: str, members: list[str]) -> dict[str, Any]:
    if not claimed.is_shared:
        return {"folders": {claimed.member: FOLDER}}
    return {"folders": {}, "shared": {"folder": FOLDER, "prefix": prefix, "without": members}}


Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Running:
    """A running collector. Below *lost_below* there may be folders of earlier collectors."""

    pod: str
    folder: str
    lost_below: str = ""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A volume claim that no running collector uses; *node* is the node of a pod that has it, but
    does not run. It holds the folder of *member*, or, if *is_shared*, those of all collectors.
    """

    claim: str
    member: str
    node: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """The places of files; *notes* are remarks on files that cannot be reached."""

    running: tuple[Running, ...]
    claimed: tuple[Claimed, ...]
    notes: tuple[str, ...] = ()


def places(pipeline: LogPipeline, pods: Sequence[Manifest], claims: Sequence[Manifest]) -> Places:
    """Return the places of the files of *pipeline*, given its collectors' *pods* and *claims*."""
    volume = pipeline.spec.collectors.persistence or Persistence()
    running = [_running(pipeline, volume, pod) for pod in _sorted(pods) if is_running(pod)]
    waiting = {_name(pod): pod for pod in pods if not is_running(pod)}
    seen = {place.pod for place in running}
    if volume.existing_claim:
        return _shared(pipeline, volume.existing_claim, running, waiting)
    if volume.host_path or volume.empty_dir is not None:
        return Places(tuple(running), (), _unreachable(waiting, volume))
    claimed, notes = [], []
    for claim in sorted(map(_name, claims), key=_number):
        member = claim.removeprefix(f"{CLAIM}-")
        if member in seen or not _is_member(pipeline, member):
            continue
        pod = waiting.get(member)
        node = str(pod["spec"].get("nodeName") or "") if pod is not None else ""
        if pod is not None and not node:
            notes.append(f"{member} has no node yet; its files are left out")
        else:
            claimed.append(Claimed(claim, member, node))
    return Places(tuple(running), tuple(claimed), tuple(notes))


def is_running(pod: Manifest, container: str = "collector") -> bool:
    """Return whether the pod's *container* runs, so that a program can be started in it."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return any(
        status.get("name") == container and "running" in (status.get("state") or {})
        for status in statuses
    )


def _running(pipeline: LogPipeline, volume: Persistence, pod: Manifest) -> Running:
    # The pod sees the whole folder of the node, also with folders of other collectors.
    root = pipeline.spec.collectors.directory.rstrip("/") or "/"
    below = root if volume.host_path else ""
    return Running(_name(pod), data_folder(pipeline, _name(pod)), below)


def _shared(
    pipeline: LogPipeline, claim: str, running: list[Running], waiting: dict[str, Manifest]
) -> Places:
    """Return the places in a claim that all collectors share: their pods see their own folders
    only.
    """
    holders = (str(pod["spec"].get("nodeName") or "") for pod in waiting.values())
    node = next((holder for holder in holders if holder), "")
    return Places(tuple(running), (Claimed(claim, names.collector(pipeline), node, True),))


def _unreachable(waiting: Iterable[str], volume: Persistence) -> tuple[str, ...]:
    kind = "spec.collectors.persistence.hostPath" if volume.host_path else "emptyDir"
    return tuple(f"{member} does not run; its files ({kind}) are left out" for member in waiting)


def _is_member(pipeline: LogPipeline, name: str) -> bool:
    return re.fullmatch(re.escape(names.collector(pipeline)) + r"-\d+", name) is not None


def _sorted(pods: Sequence[Manifest]) -> list[Manifest]:
    return sorted(pods, key=lambda pod: _number(_name(pod)))


def _number(name: str) -> tuple[int, str]:
    number = name.rpartition("-")[2]
    return (int(number) if number.isdecimal() else -1, name)


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
