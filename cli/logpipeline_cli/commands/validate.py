"""``logpipeline validate``: find the mistakes of resources without a server."""

from __future__ import annotations

import argparse
import glob
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from logpipeline.layout import default_data
from logpipeline.spec import LogPipeline, SpecError, expand_local, parse
from logpipeline.spec.api import KIND
from logpipeline.spec.documents import Document, Place, documents_of
from logpipeline_cli.errors import EXIT_FAILED, EXIT_OK, CliError
from logpipeline_cli.output import print_json

STDIN = "-"
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Remark:
    """A mistake, or with *is_error* False a warning, about *path* at a place in *file*."""

    file: str
    line: int
    column: int
    is_error: bool
    path: str
    message: str

    def __str__(self) -> str:
        what = "error" if self.is_error else "warning"
        about = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}:{self.column}: {what}: {about}{self.message}"


def run(args: argparse.Namespace) -> int:
    """Print each mistake and warning; exit 1 if there is a mistake."""
    remarks: list[Remark] = []
    checked = 0
    for name, raw, is_given in _sources(args.file):
        found = list(_resources(name, raw, is_given=is_given, remarks=remarks))
        checked += len(found)
        for document in found:
            remarks += _of_resource(name, document)
    if args.output == "json":
        print_json({"checked": checked, "remarks": [asdict(each) for each in remarks]})
    else:
        for each in remarks:
            print(each)
        print(
            f"{checked} LogPipelines, {_count(remarks, is_error=True)} mistakes, "
            f"{_count(remarks, is_error=False)} warnings"
        )
    return EXIT_FAILED if any(each.is_error for each in remarks) else EXIT_OK


def _count(remarks: list[Remark], *, is_error: bool) -> int:
    return sum(each.is_error is is_error for each in remarks)


def _sources(names: list[str]) -> Iterator[tuple[str, bytes, bool]]:
    """Yield each file's name and content, and whether it was named itself, and not its folder."""
    for name in names:
        if name == STDIN:
            yield "<stdin>", sys.stdin.buffer.read(), True
            continue
        path = Path(name)
        if not path.is_dir():
            yield name, path.read_bytes(), True
            continue
        found = (each for each in path.rglob("*") if each.suffix in ENDINGS)
        files = sorted(each for each in found if each.is_file())
        if not files:
            raise CliError(f"{name} holds no file that ends in {', '.join(ENDINGS)}")
        for file in files:
            yield str(file), file.read_bytes(), False


def _resources(
    name: str, raw: bytes, *, is_given: bool, remarks: list[Remark]
) -> Iterator[Document]:
    """Yield the LogPipelines in *raw*; of a file that was found in a folder other kinds are left
    out, in whatever dialect of YAML they are written.
    """
    if not is_given and KIND.encode() not in raw:
        return
    try:
        documents = documents_of(raw)
    except SpecError as error:
        remarks += [Remark(name, 1, 1, True, each.path, each.message) for each in error.mistakes]
        return
    if not documents and is_given:
        remarks.append(Remark(name, 1, 1, True, "", "is empty; it must hold a LogPipeline"))
    for document in documents:
        kind = document.content.get("kind") if isinstance(document.content, dict) else None
        if is_given or kind == KIND:
            yield document


def _of_resource(name: str, document: Document) -> Iterator[Remark]:
    def remark(path: str, message: str, *, is_error: bool) -> Remark:
        place: Place = document.place(path)
        return Remark(name, place.line, place.column, is_error, path, message)

    try:
        pipeline = parse(document.content)
    except SpecError as error:
        yield from (remark(each.path, each.message, is_error=True) for each in error.mistakes)
        return
    for path, message in _warnings(pipeline, document.content):
        yield remark(path, message, is_error=False)


def _warnings(pipeline: LogPipeline, content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield warnings about correct fields that are probably a mistake, each with its path."""
    data = default_data(pipeline.namespace, pipeline.name)
    expanded = expand_local(pipeline, data).spec.local.shippers
    for number, (shipper, real) in enumerate(
        zip(pipeline.spec.local.shippers, expanded, strict=True)
    ):
        for entry, (files, known) in enumerate(zip(shipper.files, real.files, strict=True)):
            path = f"spec.local.shippers[{number}].files[{entry}].include"
            for index, (written, pattern) in enumerate(
                zip(files.include, known.include, strict=True)
            ):
                yield from _of_pattern(f"{path}[{index}]", written, pattern)
    for entry, host_files in enumerate(pipeline.spec.shippers.host_files):
        for index, written in enumerate(host_files.include):
            yield from _of_text(f"spec.shippers.hostFiles[{entry}].include[{index}]", written)


def _of_pattern(path: str, written: str, pattern: str) -> Iterator[tuple[str, str]]:
    yield from _of_text(path, written)
    if written.startswith("~"):
        home = Path.home()
        yield path, f"~ is the home folder of the user that runs `up`: {home} for you"
    if next(glob.iglob(pattern, recursive=True, include_hidden=True), None) is None:
        yield path, f"no file of this machine matches {pattern} now"


def _of_text(path: str, written: str) -> Iterator[tuple[str, str]]:
    if "[" in written:
        yield path, "[…] stands for one of several characters; for a bracket write [[]"
