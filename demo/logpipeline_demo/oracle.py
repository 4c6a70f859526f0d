"""Checks that what was written is collected, each line once, intact and in order:

    python -m logpipeline_demo.oracle --ledger FILE --outputs DIR...

It knows the generator's ledger and the collectors' final files, and nothing of what is between.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from logpipeline_demo.expected import Expected, ExpectedSource, LedgerBroken
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.matching import ChainFindings, ChainJudge, Heads, Output, match
from logpipeline_demo.outputs import ChainStream, OutputChain, find_chains
from logpipeline_demo.realfiles import RealFile, check_real_files
from logpipeline_demo.settle import settle
from logpipeline_demo.sources import is_place_of
from logpipeline_demo.verdict import LeftOut, Verdict

IsPlaceOf = Callable[[SourceKey, str], bool]
EXPLAIN_LIMIT_DEFAULT = 20


def check(
    expected: Expected,
    outputs: Sequence[Path],
    *,
    real_files: Sequence[RealFile] = (),
    output: Output = "raw",
    allow_late: Collection[SourceKey] = (),
    is_place: IsPlaceOf = is_place_of,
    is_ignored: Callable[[str], bool] = lambda place: False,
    on_progress: Callable[[int, int], None] = lambda checked, logs: None,
) -> Verdict:
    """Check the collectors' folders *outputs* against what is *expected*.

    *is_place* says which collected file a source belongs into; by default that of the default
    paths. Files for which *is_ignored* holds are not looked at; any other file that is no source's
    is invented. *on_progress* is called with how many collected logs are checked, and of how many.
    """
    chains = [chain for chain in find_chains(outputs) if not is_ignored(chain.place)]
    verdict, heads = Verdict(), Heads(expected.sources)
    real_places = {file.place for file in real_files}
    found = []
    for number, chain in enumerate(chains):
        on_progress(number, len(chains))
        if chain.place not in real_places:
            homes = [
                source for key, source in expected.sources.items() if is_place(key, chain.place)
            ]
            found.append(_read(chain, homes, heads, output, verdict))
    verdict.banners = sum(findings.banners for findings in found)
    verdict.sources = settle(expected, found, allow_late=allow_late)
    check_real_files(real_files, chains, verdict)
    return verdict


def _read(
    chain: OutputChain,
    homes: Sequence[ExpectedSource],
    heads: Heads,
    output: Output,
    verdict: Verdict,
) -> ChainFindings:
    stream = ChainStream(chain)
    findings = match(stream, ChainJudge(chain, homes), homes, heads, output)
    verdict.damaged += [LeftOut(path, reason) for path, reason in stream.damaged]
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a check and return its exit code: 0 clean, 1 not, 2 nothing could be checked."""
    options = _parser().parse_args(arguments)
    try:
        expected = Expected.read(options.ledger)
        verdict = check(expected, options.outputs, output=options.output)
    except (LedgerBroken, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if explanation := verdict.explain(options.limit):
        print(explanation)
    print(verdict.summary())
    if not verdict.lines:
        print("nothing was expected: the ledger tells of no written line", file=sys.stderr)
        return 2
    return 0 if verdict.is_clean else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="logpipeline_demo.oracle",
        description="Check that what the generator wrote is collected, once, intact, in order.",
    )
    parser.add_argument("--ledger", type=Path, required=True, help="the generator's ledger")
    parser.add_argument(
        "--outputs", type=Path, nargs="+", required=True, help="data folders of the collectors"
    )
    parser.add_argument("--output", choices=("raw", "cri"), default="raw")
    parser.add_argument(
        "--limit", type=int, default=EXPLAIN_LIMIT_DEFAULT, help="how many places to name"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
