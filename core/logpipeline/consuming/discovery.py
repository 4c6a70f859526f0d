"""A pipeline as its streams on a server show it, for readers that have no resource."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from logpipeline.layout import NoPipeline
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.options import NatsOptions
from logpipeline.plan.model import PARTITIONS_KEY
from logpipeline.plan.observe import stream_names
from logpipeline.spec import LogPipeline, parse
from logpipeline.spec.api import API_VERSION, KIND
from logpipeline.subjects import root_of


def server_without_resource(nats: NatsOptions | str | None) -> NatsOptions:
    """Return how to reach the server *nats*, else that of ``NATS_URL``.

    Raises:
        NoPipeline: neither is given.
    """
    if isinstance(nats, NatsOptions):
        return nats
    if given := nats or os.environ.get("NATS_URL"):
        return NatsOptions(servers=tuple(given.split(",")))
    raise NoPipeline("no NATS server is known: give nats=URL, or set NATS_URL")


async def pipeline_of_streams(js: JetStream, base: str) -> LogPipeline:
    """Return a resource for the streams *base*``_0``, *base*``_1`` and so on, or for the one stream
    *base*; what only a resource says is as by default.

    Raises:
        NoPipeline: there are no such streams, or they are not those of a pipeline.
        NotSent, OutcomeUnknown, ApiError: the server could not be asked.
    """
    names = await stream_names(js)
    info = await js.stream_info(base) if base in names else None
    # One partition's stream must not pass for all of them.
    is_single = info is not None and PARTITIONS_KEY in (info["config"].get("metadata") or {})
    # A reader of one stream need not know how many partitions it holds.
    partitions = 0 if is_single else count_of(base, names)
    first = base if is_single else f"{base}_0"
    info = info if is_single else await js.stream_info(first)
    subjects = info["config"].get("subjects", []) if info else []
    roots = {root_of(subject) for subject in subjects}
    root = roots.pop() if len(roots) == 1 else None
    if root is None:
        raise NoPipeline(
            f"stream {first} stores {', '.join(subjects) or 'no subjects'}, and a pipeline's "
            "would store <subject>.p0.>: give the resource with pipeline=FILE"
        )
    name = re.sub(r"[^a-z0-9]+", "-", base.lower()).strip("-") or "streams"
    stream = {"name": base, **({"layout": "single"} if is_single else {})}
    spec = {"subject": root, "partitions": partitions, "stream": stream}
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}}
    return parse({**head, "spec": spec})


def count_of(base: str, names: Sequence[str]) -> int:
    """Return how many of the streams *names* are those of the partitions of *base*.

    Raises:
        NoPipeline: none is, or one is missing between others.
    """
    found = (re.fullmatch(re.escape(base) + r"_(0|[1-9][0-9]*)", name) for name in names)
    numbers = sorted(int(each[1]) for each in found if each)
    if not numbers:
        there = ", ".join(names) or "none"
        raise NoPipeline(f"there are no streams {base}_0, {base}_1 and so on; there are: {there}")
    missing = sorted({*range(numbers[-1])} - {*numbers})
    if missing:
        # Without it, the partition that hosts belong to would be another one.
        raise NoPipeline(
            f"stream {base}_{missing[0]} is missing, and {base}_{numbers[-1]} is there: see "
            "`logpipeline plan`, or give the resource with pipeline=FILE"
        )
    return len(numbers)
