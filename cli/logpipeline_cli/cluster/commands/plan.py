"""``kubectl logpipeline plan``: what the operator would change in JetStream, and nothing else; or
what its class does not allow.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from logpipeline.spec import LogPipeline, load
from logpipeline.spec.api import API_VERSION, CLASS_PLURAL
from logpipeline.spec.choices import REFUSALS_MAX, class_name, refusals
from logpipeline.spec.classes import parse_class
from logpipeline_cli.cluster.api import Api, Forbidden, NotFound
from logpipeline_cli.cluster.nats import reached
from logpipeline_cli.cluster.session import Found, find, session
from logpipeline_cli.commands import plan
from logpipeline_cli.errors import CliError
from logpipeline_operator.children.nats_conf import managed_storage_bytes


def check(api: Api, pipeline: LogPipeline) -> None:
    """Return where its class allows *pipeline*, or may not be seen, which is said.

    Raises:
        CliError: it does not, or is not there.
        SpecError: the class has mistakes.
    """
    name = class_name(pipeline)
    try:
        resource = api.get(f"/apis/{API_VERSION}/{CLASS_PLURAL}/{quote(name, safe='')}")
    except Forbidden as error:
        print(f"whether the class {name} allows it is not known: {error}", file=sys.stderr)
        return
    except NotFound:
        raise CliError(
            f"there is no LogPipelineClass {name}, so nothing is allowed; name another one in "
            "spec.className, or have an administrator make it (`kubectl get lpc` lists all)"
        ) from None
    refused = refusals(pipeline, parse_class(resource))
    if refused:
        lines = "\n".join(f"  {each}" for each in refused[:REFUSALS_MAX])
        raise CliError(
            f"the operator would not carry it out:\n{lines}\nchoose what the class allows, name "
            "another one in spec.className, or have an administrator allow it"
        )


def run(args: argparse.Namespace) -> int:
    """Print the plan; exit 0 without changes, 2 with some."""
    given = load(Path(args.file)) if args.file is not None else None
    with session(args) as cluster:
        found = find(cluster, args.pipeline or (given.name if given else None))
        pipeline = _as_applied(given, found) if given else found.pipeline
        check(cluster.api, pipeline)
        with reached(found, args.nats, pipeline, only_looks=True) as target:
            return plan.show(
                target,
                as_json=args.output == "json",
                installation=_installation(cluster.api),
                storage_bytes=managed_storage_bytes(pipeline),
            )


def _as_applied(given: LogPipeline, found: Found) -> LogPipeline:
    """Return *given* as it would be in place of the pipeline that is there."""
    there = found.pipeline
    if given.name != there.name:
        raise CliError(f"the file has the LogPipeline {given.name}, and not {there.name}")
    return replace(given, namespace=there.namespace, uid=there.uid)


def _installation(api: Api) -> str:
    """Return what tells this cluster's streams from others', as the operator does; one that may
    not see it tells them by names alone.
    """
    try:
        return str(api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
    except Forbidden:
        return ""
