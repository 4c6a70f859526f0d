"""``logpipeline samples``: the resources of `deploy/samples`, of a wheel or of a checkout."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from logpipeline_cli.errors import EXIT_OK, CliError
from logpipeline_cli.output import table

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


def run(args: argparse.Namespace) -> int:
    """List the samples, or print the given one."""
    if args.name is None:
        rows = [
            (sample.name, sample.about, ", ".join(path.name for path in sample.files))
            for sample in samples()
        ]
        print(table(("NAME", "WHAT IT SHOWS", "FILES"), rows))
        return EXIT_OK
    path = find(args.name)
    if path is None:
        raise CliError(f"there is no sample {args.name!r}; `logpipeline samples` lists them")
    sys.stdout.write(path.read_text(encoding="utf-8"))
    return EXIT_OK


def folder() -> Path:
    """Return the folder of all samples."""
    # The build copies deploy/samples to this place (see [tool.hatch.build] in pyproject.toml). An
    # editable install has no copy: what it would find is the package's own folder in the checkout.
    installed = Path(str(files("logpipeline_cli"))) / "_samples"
    if installed.is_dir():
        return installed
    return Path(__file__).parents[3] / "deploy" / "samples"


def samples() -> list[Sample]:
    """Return all samples: single resources first, then the use cases."""
    single = [Sample(path.stem, path) for path in sorted(folder().glob("*.yaml"))]
    return [*single, *_use_cases()]


def find(name: str) -> Path | None:
    """Return the file of the sample *name*, or FOLDER/FILE of a use case."""
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
