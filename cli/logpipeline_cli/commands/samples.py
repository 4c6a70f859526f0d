"""``logpipeline samples``: a resource to start from, without a checkout."""

from __future__ import annotations

import argparse
import sys

from logpipeline_cli.errors import CliError
from logpipeline_cli.exits import EXIT_OK
from logpipeline_cli.output import table
from logpipeline_cli.samples import find, samples


def run(args: argparse.Namespace) -> int:
    """List the samples, or print the one that the words name."""
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
