"""What can happen to a pipeline in a cluster, by the names that docs/faults.md has it under."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cluster.frozen import processes_of
from cluster.healing.site import NAME, Site, until
from cluster.installed_operator import Operator
from faults.healing.one_machine import empty
from logpipeline.plan.observe import consumers_of

SERVER, COLLECTOR, SHIPPER = f"{NAME}-nats", f"{NAME}-collector", f"{NAME}-shipper"
LOGINS, CALLOUT = f"{SERVER}-auth", f"{SERVER}-auth-callout"
BY_HAND = "DriftCorrected"
# By which a nats-server that starts, or refuses somebody, is told of.
SERVER_AWAY = (
    "NatsNotReady", "NatsUnreachable", "NatsSilent", "NatsCredentialsRefused", "NoEndpoints",
)  # fmt: skip
AWAY_COLLECTORS = ("CollectorsNotReady", "PartitionsMoving")
AWAY_SHIPPERS = ("ShippersNotReady", "NoNodes")
Object = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Where faults are made: a *site*, and the *operator* that looks after it."""

    site: Site
    operator: Operator


Action = Callable[[Trouble], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: *begin* makes it, and returns when the thing that it was made on is as it should
    be again. *says* are reasons, one of which an event has to give. *is_telling*: it is tried in
    each run, the others in full runs. *ends_operator*: nothing else is to be tried meanwhile.
    """

    name: str
    begin: Action
    says: tuple[str, ...] = ()
    is_telling: bool = False
    ends_operator: bool = False


async def _delete(trouble: Trouble, objects: Sequence[Object], words: Sequence[str] = ()) -> None:
    """Delete *objects*, and wait until there are others of their names."""
    site = trouble.site
    before = {each: site.uid(*each) for each in objects}
    assert all(before.values()), before
    names = [f"{kind}/{name}" for kind, name in objects]
    site.pipeline.kubectl("delete", "--wait=false", *words, *names)

    def are_new() -> bool:
        return all(site.uid(*each) not in ("", former) for each, former in before.items())

    await until(are_new, f"new {', '.join(names)}")


async def _delete_logins(trouble: Trouble, secret: str) -> None:
    """Delete a Secret of users, and have all log in with what was made in its place."""
    await _delete(trouble, [("secret", secret)])
    await _all_log_in(trouble)


async def _change_logins(trouble: Trouble) -> None:
    """Write other passwords into the Secret, and leave what else stands there as it is."""
    site, word = trouble.site, "of-another-server-0123"
    keys = [key for key in site.there("secret", LOGINS)["data"] if key.endswith("-password")]
    patch = json.dumps({"stringData": dict.fromkeys(keys, word)})
    site.pipeline.kubectl("patch", f"secret/{LOGINS}", "--type=merge", "--patch", patch)
    await _all_log_in(trouble)


async def _all_log_in(trouble: Trouble) -> None:
    """Replace who logs in: only then it shows whether anybody still can."""
    await _delete(trouble, [("pod", f"{COLLECTOR}-0")])
    shippers = trouble.site.pipeline.pods("shipper")
    trouble.site.pipeline.kubectl("delete", "pod", "--wait=false", *shippers)

    def are_new() -> bool:
        now = trouble.site.pipeline.pods("shipper")
        return len(now) == len(shippers) and not now.keys() & shippers.keys()

    await until(are_new, "new shippers")


async def _patch(trouble: Trouble, target: str, change: object, is_right: Action) -> None:
    words = ("--type=merge", "--patch", json.dumps(change))
    trouble.site.pipeline.kubectl("patch", target, *words)
    await is_right(trouble)


async def _leads_astray(trouble: Trouble) -> None:
    """A label that no pod has: the Service leads to none."""
    change = {"spec": {"selector": {"track": "canary"}}}
    await _patch(trouble, f"service/{SERVER}", change, _leads_right)


async def _leads_right(trouble: Trouble) -> None:
    site = trouble.site

    def is_right() -> bool:
        return "track" not in site.there("service", SERVER)["spec"]["selector"]

    await until(is_right, "the selector is as it was")


async def _nowhere(trouble: Trouble) -> None:
    site = trouble.site
    change = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "fast"}}}}}

    async def has_its_nodes(trouble: Trouble) -> None:
        def is_right() -> bool:
            there = site.there("daemonset", SHIPPER)
            selector = there["spec"]["template"]["spec"].get("nodeSelector", {})
            return "disk" not in selector

        await until(is_right, "the shippers' nodes are as they were")

    await _patch(trouble, f"daemonset/{SHIPPER}", change, has_its_nodes)


async def _lose_volume(trouble: Trouble, pod: str) -> None:
    """Delete the claim of a pod with the pod: the next one begins with an empty volume."""
    await _delete(trouble, [("persistentvolumeclaim", f"data-{pod}"), ("pod", pod)])


async def _empty_volume(trouble: Trouble) -> None:
    """Remove the server's files, and end it at once: it finds nothing at its next start."""
    site, pod = trouble.site, f"{SERVER}-0"
    folder = site.volume_of(f"data-{pod}")
    # Until it is gone it would write some of them again.
    found = processes_of(site.uid("pod", pod), "nats-server")
    assert found, "no nats-server runs"
    _signal(found, signal.SIGSTOP)
    empty(folder)
    _signal(found, signal.SIGKILL)


async def _empty_under_it(trouble: Trouble) -> None:
    """Remove the server's files, and let it go on."""
    site, pod = trouble.site, f"{SERVER}-0"
    started = _restarts(site, pod)
    empty(site.volume_of(f"data-{pod}"))
    await until(lambda: _restarts(site, pod) > started, "the server is started again")


async def _freeze(trouble: Trouble) -> None:
    """Stop the server where it stands: only its probes tell."""
    site, pod = trouble.site, f"{SERVER}-0"
    started = _restarts(site, pod)
    _signal(processes_of(site.uid("pod", pod), "nats-server"), signal.SIGSTOP)
    await until(lambda: _restarts(site, pod) > started, "the server is started again")


async def _freeze_and_delete(trouble: Trouble) -> None:
    """A server that hangs, whose pod is deleted: Kubernetes says for up to a minute that the pod is
    ready, and leads nobody to it.
    """
    site, pod = trouble.site, f"{SERVER}-0"
    _signal(processes_of(site.uid("pod", pod), "nats-server"), signal.SIGSTOP)
    await _delete(trouble, [("pod", pod)])


def _restarts(site: Site, pod: str) -> int:
    statuses = site.there("pod", pod).get("status", {}).get("containerStatuses", [])
    return sum(each["restartCount"] for each in statuses if each["name"] != "callout")


def _signal(processes: Sequence[int], number: int) -> None:
    for process in processes:
        os.kill(process, number)


async def _delete_streams(trouble: Trouble, which: str) -> None:
    async with trouble.site.jetstream() as (js, resource):
        names = resource.names
        logs = [names.stream(n) for n in range(resource.spec.partitions)]
        state = f"KV_{names.state_bucket}"
        every = [*logs, state, names.snapshot_stream, names.dead_letter_stream]
        chosen = {"one": logs[:1], "state": [state], "all": every}[which]
        created = {name: (await js.call(f"STREAM.INFO.{name}"))["created"] for name in chosen}
        for name in chosen:
            await js.call(f"STREAM.DELETE.{name}")

        async def are_new() -> bool:
            there = [await js.stream_info(name) for name in chosen]
            assert all(
                info and info["created"] != created[name]
                for name, info in zip(chosen, there, strict=True)
            ), there
            return True

        await until(are_new, f"new streams {', '.join(chosen)}")


async def _delete_consumers(trouble: Trouble) -> None:
    async with trouble.site.jetstream() as (js, resource):
        partitions = resource.spec.partitions
        for n in range(partitions):
            stream = resource.names.stream(n)
            for consumer in await consumers_of(js, stream):
                await js.consumer_delete(stream, consumer["name"])

        async def are_there() -> bool:
            return all(
                [await consumers_of(js, resource.names.stream(n)) for n in range(partitions)]
            )

        await until(are_there, "new consumers")


def _kill_operator(trouble: Trouble) -> None:
    here = f"--namespace={trouble.operator.namespace}"
    pods = [f"pod/{name}" for name in trouble.operator.pods()]
    trouble.site.cluster.kubectl("delete", here, "--force", "--grace-period=0", *pods)


async def _operator_in_the_middle(trouble: Trouble) -> None:
    """What is to be made anew is half done, and who does it dies."""
    objects = [("statefulset", SERVER), ("statefulset", COLLECTOR), ("daemonset", SHIPPER)]
    site = trouble.site
    before = {each: site.uid(*each) for each in objects}
    site.pipeline.kubectl("delete", "--wait=false", *(f"{k}/{n}" for k, n in objects))
    # The first of them is there again, or is about to be.
    await until(lambda: site.uid(*objects[0]) != before[objects[0]], "the first goes")
    _kill_operator(trouble)

    def are_new() -> bool:
        return all(site.uid(*each) not in ("", former) for each, former in before.items())

    await until(are_new, "all of them anew")


async def _everything(trouble: Trouble) -> None:
    """All that the operator made, the server's volume, and the operator itself."""
    objects = [
        ("secret", LOGINS), ("configmap", SERVER), ("configmap", COLLECTOR),
        ("service", SERVER), ("service", f"{SERVER}-headless"), ("service", COLLECTOR),
        ("statefulset", SERVER), ("statefulset", COLLECTOR), ("daemonset", SHIPPER),
        ("persistentvolumeclaim", f"data-{SERVER}-0"),
    ]  # fmt: skip
    _kill_operator(trouble)
    await _delete(trouble, objects)


FAULTS = [
    # The first needs streams that hold all that was ever collected.
    Fault(
        name="collector's claim and pod deleted",
        begin=partial(_lose_volume, pod=f"{COLLECTOR}-0"),
        says=("VolumeReread",),
        is_telling=True,
    ),
    Fault(
        name="users' Secret of the server deleted, all replaced who log in",
        begin=partial(_delete_logins, secret=LOGINS),
        says=SERVER_AWAY,
        is_telling=True,
    ),
    Fault(name="nats-server frozen for ever", begin=_freeze, says=SERVER_AWAY),
    Fault(
        name="nats-server frozen, its pod deleted", begin=_freeze_and_delete, says=SERVER_AWAY
    ),
    Fault(
        name="nodes chosen for shippers by hand, of which there are none",
        begin=_nowhere,
        says=(BY_HAND,),
        is_telling=True,
    ),
    Fault(
        name="the server's Service led astray by a label",
        begin=_leads_astray,
        says=(BY_HAND,),
        is_telling=True,
    ),
    Fault(
        name="the server's claim and pod deleted: an empty store",
        begin=partial(_lose_volume, pod=f"{SERVER}-0"),
        says=SERVER_AWAY,
    ),
    Fault(
        name="all of it at once: children, Secret, store, operator",
        begin=_everything,
        says=SERVER_AWAY,
        is_telling=True,
        ends_operator=True,
    ),
    Fault(
        name="other passwords written into the users' Secret",
        begin=_change_logins,
        says=SERVER_AWAY,
    ),
    Fault(
        name="callout's Secret deleted, all replaced who log in",
        begin=partial(_delete_logins, secret=CALLOUT),
        says=SERVER_AWAY,
    ),
    Fault(
        name="operator killed while it makes workloads anew",
        begin=_operator_in_the_middle,
        # Of whatever is not back yet when the next operator looks.
        says=(*SERVER_AWAY, *AWAY_COLLECTORS, *AWAY_SHIPPERS),
        ends_operator=True,
    ),
    Fault(
        name="nats-server killed, its volume emptied",
        begin=_empty_volume,
        # It is back within a second or two, and those that used it tell for longer.
        says=(*SERVER_AWAY, *AWAY_COLLECTORS, *AWAY_SHIPPERS),
    ),
    Fault(name="nats-server's volume emptied while it runs", begin=_empty_under_it),
    *(
        Fault(name=name, begin=partial(_delete, objects=objects, words=words), says=says)
        for name, objects, words, says in (
            ("nats-server's pod deleted", [("pod", f"{SERVER}-0")], (), SERVER_AWAY),
            (
                "the server's ConfigMap and pod deleted",
                [("configmap", SERVER), ("pod", f"{SERVER}-0")], (), SERVER_AWAY,
            ),
            ("the server's StatefulSet deleted", [("statefulset", SERVER)], (), SERVER_AWAY),
            (
                "the server's StatefulSet deleted, its pod left",
                [("statefulset", SERVER)], ("--cascade=orphan",), (),
            ),
            (
                "the server's Services deleted",
                [("service", SERVER), ("service", f"{SERVER}-headless")], (), ("NoEndpoints",),
            ),
            (
                "collectors' StatefulSet deleted",
                [("statefulset", COLLECTOR)], (), AWAY_COLLECTORS,
            ),
            (
                "collector's pod killed", [("pod", f"{COLLECTOR}-0")],
                ("--force", "--grace-period=0"), AWAY_COLLECTORS,
            ),
            ("shippers' DaemonSet deleted", [("daemonset", SHIPPER)], (), AWAY_SHIPPERS),
        )
    ),
    *(
        Fault(name=f"{name} deleted", begin=partial(_delete_streams, which=which))
        for name, which in (
            ("one log stream", "one"), ("the bucket of states", "state"),
            ("all streams and buckets", "all"),
        )
    ),
    Fault(name="consumers of collectors deleted", begin=_delete_consumers),
]  # fmt: skip
