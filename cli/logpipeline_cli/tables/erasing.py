"""``logpipeline table erase``: ask for confirmation, erase lines, and print a proof."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.output import agreed, bytes_text, escaped_name, print_json
from logpipeline_cli.time_arguments import moment
from logpipeline_spark.formats.log import Former, Logs
from logpipeline_spark.table.erasure import Condition, Erasure, Plan, Proof
from logpipeline_spark.table.files import FileEntry
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.upkeep import Upkeep

UNTOUCHED = (
    "Counts stay: they hold no text. Streams, collectors' files and lines that are not in the "
    "table yet are not changed: docs/consuming.md, Privacy, says how to erase these."
)


def erase(args: argparse.Namespace, storage: Storage, logs: Logs) -> int:
    """Erase the lines that *args* choose, after confirmation; print the proof.

    Raises:
        CliError: the arguments are incomplete.
        Refused: the table or its storage does not allow it.
    """
    if args.output == "json" and not (args.yes or args.dry_run):
        raise CliError("-o json cannot ask for confirmation: give --dry-run first, then --yes")
    now = datetime.now(UTC)
    condition = Condition(
        host=args.host,
        namespace=args.pod_namespace,
        pod=args.pod,
        container=args.container,
        source=args.source,
        since=moment(args.since, now=now),
        until=moment(args.until, now=now),
    )
    erasure = Erasure(storage, logs, condition)
    if args.dry_run or not args.yes:
        plan = erasure.plan()
        if args.output == "json":
            print_json(_plan_data(plan, storage, condition))
        else:
            print("\n".join(_plan_sentences(plan, storage, condition)))
        if args.dry_run:
            return EXIT_OK
        # With nothing to erase, only the usual clean-up of former files follows.
        is_asked = bool(plan.files) or args.without_grace
        if is_asked and not agreed(f"Erase {plan.lines} lines for good?", yes=False):
            print("Nothing was erased.")
            return EXIT_FAILED
    now = datetime.now(UTC)
    # Where no job runs, no other clean-up removes former files that are due.
    Upkeep(storage, logs).clean(now)
    proof = erasure.erase(now, has_grace=not args.without_grace)
    if args.output == "json":
        print_json(_proof_data(proof))
    else:
        print("\n".join(_proof_sentences(proof)))
    return EXIT_OK


def _plan_sentences(plan: Plan, storage: Storage, condition: Condition) -> list[str]:
    said = [f"Table {storage.url}, version {plan.version}: lines with {_said(condition)}."]
    if not plan.files:
        return [*said, _NOTHING]
    said.append(
        f"{plan.lines} lines with {bytes_text(plan.text_bytes)} of text would be erased, from "
        f"{len(plan.files)} files, which would be written again without them:"
    )
    said += [
        f"  {found.entry.path}: {found.lines} of {found.entry.rows} lines" for found in plan.files
    ]
    return [*said, UNTOUCHED]


_NOTHING = (
    "The table holds no such lines; names are found with "
    '`logpipeline query "SELECT DISTINCT host, source FROM lines"`.'
)


def _proof_sentences(proof: Proof) -> list[str]:
    said = [f"Table {proof.table}: lines with {_said(proof.condition)}, at {_time(proof.time)}."]
    if proof.replaced:
        said.append(
            f"{proof.lines} lines with {bytes_text(proof.text_bytes)} of text were erased: version "
            f"{proof.version_before} was read, and version {proof.version_after} is without them. "
            f"{len(proof.replaced)} files left the table:"
        )
    else:
        said.append(_NOTHING)
    for each in proof.replaced:
        by = ", ".join(f"{entry.path} ({entry.rows} lines)" for entry in each.by) or "nothing"
        found = each.found
        said.append(f"  {found.entry.path}: {found.lines} of {found.entry.rows} lines; now {by}")
    if proof.dropped:
        said.append(f"{len(proof.dropped)} files that held such lines were removed for good:")
        said += [f"  {path}" for path in proof.dropped]
    if proof.gone_by is not None:
        said.append(
            f"{len(proof.remaining)} files of former versions hold such lines until "
            f"{_time(proof.gone_by)}; the next clean-up after that removes them: the job's, each "
            "half hour, or this command's, once more. Until then former versions can be read."
        )
        said += [f"  {former.path}: until {_time(former.goes_at)}" for former in proof.remaining]
    else:
        said.append("No file of a former version that the log knows holds such lines.")
    return [*said, UNTOUCHED]


def _said(condition: Condition) -> str:
    return escaped_name(", ".join(f"{k} {v}" for k, v in condition.data().items()))


def _plan_data(plan: Plan, storage: Storage, condition: Condition) -> dict[str, Any]:
    return {
        "table": storage.url,
        "version": plan.version,
        "condition": condition.data(),
        "lines": plan.lines,
        "text_bytes": plan.text_bytes,
        "files": [
            {**_entry(found.entry), "lines": found.lines, "text_bytes": found.text_bytes}
            for found in plan.files
        ],
    }


def _proof_data(proof: Proof) -> dict[str, Any]:
    return {
        "table": proof.table,
        "time": _time(proof.time),
        "condition": proof.condition.data(),
        "version_before": proof.version_before,
        "version_after": proof.version_after,
        "lines": proof.lines,
        "text_bytes": proof.text_bytes,
        "files": [
            {
                **_entry(each.found.entry),
                "lines": each.found.lines,
                "text_bytes": each.found.text_bytes,
                "replaced_by": _entries(each.by),
            }
            for each in proof.replaced
        ],
        "removed_for_good": list(proof.dropped),
        "remaining": _remaining(proof.remaining),
        "gone_by": _time(proof.gone_by) if proof.gone_by is not None else None,
    }


def _entry(entry: FileEntry) -> dict[str, Any]:
    return {"path": entry.path, "rows": entry.rows, "bytes": entry.bytes}


def _entries(entries: Sequence[FileEntry]) -> list[dict[str, Any]]:
    return [_entry(entry) for entry in entries]


def _remaining(remaining: Iterable[Former]) -> list[dict[str, Any]]:
    return [{"path": former.path, "until": _time(former.goes_at)} for former in remaining]


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")
