"""The commands of ``kubectl logpipeline`` that ask the API server and NATS: ``status``, ``top``,
``console``, ``losses``, ``dlq``, ``tail`` and ``plan``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from logpipeline.spec import LogPipeline, load
from logpipeline.spec.api import API_VERSION, CLASS_PLURAL
from logpipeline.spec.choices import REFUSALS_MAX, class_name, refusals
from logpipeline.spec.classes import parse_class
from logpipeline.spec.crd import UNCHECKED_AFTER_S
from logpipeline_cli.cluster.api import Api, Forbidden, NotFound
from logpipeline_cli.cluster.nats import READER_TOKEN_S, reached
from logpipeline_cli.cluster.session import Found, find, session
from logpipeline_cli.commands import dlq as local_dlq
from logpipeline_cli.commands import losses as local_losses
from logpipeline_cli.commands import status as local_status
from logpipeline_cli.commands import tail as local_tail
from logpipeline_cli.commands.plan import show_plan
from logpipeline_cli.errors import EXIT_OK, CliError, explain
from logpipeline_cli.output import print_json, seconds_text
from logpipeline_operator.children.nats_conf import managed_storage_bytes

# Then the server is asked with a new token; pages that are open ask again by themselves.
RENEW_S = READER_TOKEN_S / 2


def losses(args: argparse.Namespace) -> int:
    """List losses, or acknowledge them."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with reached(found, args.nats, only_looks=not args.acknowledge) as target:
            return asyncio.run(local_losses.show(target, args))


def dlq(args: argparse.Namespace) -> int:
    """List dead letters, show one, send them again, or delete them."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with reached(found, args.nats) as target:
            return local_dlq.act(target, args)


def tail(args: argparse.Namespace) -> int:
    """Print lines, as many as asked for, or until Ctrl-C."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with reached(found, args.nats, only_looks=True) as target:
            return local_tail.show(target, args)


def top(args: argparse.Namespace) -> int:
    """Show the pipeline on the terminal until it is left."""
    # Its optional packages are no part of the other commands.
    from logpipeline_cli.commands import top as local_top

    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        with reached(found, args.nats, only_looks=True) as target:
            return local_top.show(target)


def console(args: argparse.Namespace) -> int:
    """Serve the page of the pipeline until Ctrl-C."""
    from logpipeline_cli.commands import console as local_console

    page = local_console.Page(args)
    while True:
        with session(args) as cluster:
            found = find(cluster, args.pipeline)
            with reached(found, args.nats, only_looks=True) as target:
                # A page stays open for days, and a reader's token does not.
                page.show(target, span_s=RENEW_S)


def plan(args: argparse.Namespace) -> int:
    """Print the plan; exit 0 without changes, 2 with some."""
    given = load(Path(args.file)) if args.file is not None else None
    with session(args) as cluster:
        found = find(cluster, args.pipeline or (given.name if given else None))
        pipeline = _as_applied(given, found) if given else found.pipeline
        check_class(cluster.api, pipeline)
        with reached(found, args.nats, pipeline, only_looks=True) as target:
            return show_plan(
                target,
                as_json=args.output == "json",
                installation=_installation(cluster.api),
                storage_bytes=managed_storage_bytes(pipeline),
            )


def check_class(api: Api, pipeline: LogPipeline) -> None:
    """Check that the class of *pipeline* allows it; where the user may not see the class, print so.

    Raises:
        CliError: the class does not allow it, or does not exist.
        SpecError: the class has mistakes.
    """
    name = class_name(pipeline)
    try:
        resource = api.get(f"/apis/{API_VERSION}/{CLASS_PLURAL}/{quote(name, safe='')}")
    except Forbidden as error:
        print(f"not checked against the class {name}: {error}", file=sys.stderr)
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


def _as_applied(given: LogPipeline, found: Found) -> LogPipeline:
    """Return *given* as it would be in place of the pipeline in the cluster."""
    there = found.pipeline
    if given.name != there.name:
        raise CliError(f"the file has the LogPipeline {given.name}, and not {there.name}")
    return replace(given, namespace=there.namespace, uid=there.uid)


def _installation(api: Api) -> str:
    """Return the id by which the operator distinguishes this cluster's streams from others', empty
    where the user may not see it: then streams are distinguished by their names only.
    """
    try:
        return str(api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
    except Forbidden:
        return ""


def status(args: argparse.Namespace) -> int:
    """Print the status once, or each second with --watch; with --check its problems."""
    with session(args) as cluster:
        found = find(cluster, args.pipeline)
        is_json = args.output == "json"
        try:
            with reached(found, args.nats, only_looks=True) as target:
                if args.check:
                    known = [overdue] if (overdue := unchecked(found.resource, _now())) else []
                    return asyncio.run(local_status.check(target, as_json=is_json, known=known))
                more = _watched(found) if args.watch else lambda: _known(found.resource)
                asyncio.run(local_status.show(target, as_json=is_json, watch=args.watch, more=more))
        except Exception as error:
            # Where NATS does not answer, the operator's findings are the most useful.
            if explain(error) is not None:
                _print(_known(found.resource), is_json=is_json)
            raise
    return EXIT_OK


def checked_text(resource: dict[str, Any], now: datetime) -> str:
    """Return when the pipeline was last checked, and by which operator, as text."""
    age_s, by = _age_s(resource, now), _operator(resource)
    if age_s is None:
        return "no operator has checked it yet"
    return f"last checked {seconds_text(max(age_s, 0.0))} ago by {by}"


def unchecked(resource: dict[str, Any], now: datetime) -> str | None:
    """Return a warning, with what to do, if no operator has checked the pipeline for too long; else
    None.
    """
    age_s, by = _age_s(resource, now), _operator(resource)
    metadata = resource["metadata"]
    if age_s is None:
        # A pipeline that was just created is not overdue.
        age_s = (now - _time(metadata["creationTimestamp"])).total_seconds()
        by = "its operator"
    if age_s <= UNCHECKED_AFTER_S:
        return None
    what = f"no operator has checked it for {seconds_text(age_s)}: the conditions are out of date"
    if "deletionTimestamp" in metadata and metadata.get("finalizers"):
        held = ", ".join(metadata["finalizers"])
        return (
            f"{what}, and it is being deleted and waits for {held}; start {by}, or take the "
            f"finalizer off: kubectl -n {metadata['namespace']} patch logpipeline "
            f'{metadata["name"]} --type=merge -p \'{{"metadata":{{"finalizers":null}}}}\''
        )
    return f"{what}; look at the pods of {by}"


def _age_s(resource: dict[str, Any], now: datetime) -> float | None:
    written = (resource.get("status") or {}).get("lastChecked")
    return (now - _time(written)).total_seconds() if written else None


def _operator(resource: dict[str, Any]) -> str:
    return str((resource.get("status") or {}).get("checkedBy") or "its operator")


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _watched(found: Found) -> local_status.More:
    return lambda: _known(found.refresh())


def _known(resource: dict[str, Any]) -> dict[str, Any]:
    """Return the operator's findings, as `status` prints them in JSON."""
    seen = resource.get("status") or {}
    overdue = unchecked(resource, _now())
    return {
        "checked": checked_text(resource, _now()),
        **({"unchecked": overdue} if overdue else {}),
        "conditions": seen.get("conditions") or [],
        "generation": resource["metadata"].get("generation"),
        "observedGeneration": seen.get("observedGeneration"),
        **({"table": seen["table"]} if "table" in seen else {}),
    }


def _now() -> datetime:
    return datetime.now(UTC)


def _print(known: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(known)
    else:
        warning = [f"Warning: {known['unchecked']}"] if "unchecked" in known else []
        lines = [known["checked"], *warning, *local_status.conditions_text(known["conditions"])]
        print("\n".join(lines))
    sys.stdout.flush()
