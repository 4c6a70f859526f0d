"""The samples of `deploy/samples`, where an installed wheel or a checkout has them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from logpipeline_cli.parser import Command

USE_CASES = "use-cases"
RESOURCE = "logpipeline.yaml"
_FIRST_SENTENCE = re.compile(r"(.+?)[.:](?:\s|$)")


@dataclass(frozen=True, slots=True)
class Sample:
    """A resource to start from; *files* are those of its folder, if it has one of its own."""

    name: str
    path: Path
    files: tuple[Path, ...] = ()

    @property
    def about(self) -> str:
        """The first sentence of the resource's leading comment."""
        comment = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            comment.append(line.lstrip("# "))
        sentence = _FIRST_SENTENCE.match(" ".join(comment))
        return sentence[1] if sentence else " ".join(comment)


def folder() -> Path:
    """Return the folder of all samples."""
    # Not at the top: help and completion load this module, and this import takes 14 ms.
    from importlib.resources import files

    # The build copies deploy/samples to this place (see [tool.hatch.build] in pyproject.toml). An
    # editable install has no copy: what it would find is the package's own folder in the checkout.
    installed = Path(str(files("logpipeline_cli"))) / "_samples"
    if installed.is_dir():
        return installed
    return Path(__file__).parents[2] / "deploy" / "samples"


def samples() -> list[Sample]:
    """Return all samples: single resources first, then the use cases."""
    single = [Sample(path.stem, path) for path in sorted(folder().glob("*.yaml"))]
    return [*single, *_use_cases()]


def find(name: str) -> Path | None:
    """Return the file that *name* means: a sample, or FOLDER/FILE of a use case."""
    for sample in samples():
        if name == sample.name:
            return sample.path
        for path in sample.files:
            if name == f"{sample.name}/{path.name}":
                return path
    return None


def _use_cases() -> Iterator[Sample]:
    for path in sorted((folder() / USE_CASES).glob(f"*/{RESOURCE}")):
        yield Sample(path.parent.name, path, tuple(sorted(path.parent.iterdir())))


def _words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="print this sample, or with NAME/FILE one file of a use case (default: list them)",
    )


COMMANDS = (
    Command(
        "samples",
        "list the sample resources, or print one",
        "List the sample resources that come with logpipeline, or print one to start from.",
        "logpipeline samples minimal > logpipeline.yaml",
        _words,
    ),
)
