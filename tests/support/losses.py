"""What was lost, measured from the ledger in bytes of the files: to hold what the pipeline reports
against it.
"""

from __future__ import annotations

from logpipeline_demo.expected import Expected
from logpipeline_demo.lines import SourceKey
from logpipeline_demo.verdict import Kind, Verdict


def lost_bytes(expected: Expected, verdict: Verdict) -> dict[SourceKey, int]:
    """Return how many bytes of their files each source's lost lines had, prefixes included."""
    lost: dict[SourceKey, int] = {}
    for source in verdict.sources:
        if source.key is None or not source.lost:
            continue
        told = [offence for offence in source.offences if offence.kind is Kind.LOST]
        numbers = [n for o in told for n in range(o.first or 0, o.end or 0)]
        assert len(numbers) == source.lost, "the oracle names too few places to add them up"
        lines = expected.sources[source.key]
        lost[source.key] = sum(
            len(lines.line(n)) + 1 if lines.maker.kind == "plain" else len(lines.fragments(n))
            for n in numbers
        )
    return lost
