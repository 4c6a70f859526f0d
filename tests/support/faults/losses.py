"""What was lost, measured from the ledger in bytes of the files, and what the pipeline's own status
says of it: the two must be the same.
"""

from __future__ import annotations

from collections import Counter

from faults.pipeline_under_test import PipelineUnderTest
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


async def reported_bytes(pipeline: PipelineUnderTest, by: str) -> dict[SourceKey, int]:
    """Return what `logpipeline status` says that shippers missed, or that collectors were told of
    as lost (*by*).
    """
    status = await pipeline.status()
    rows = [row for row in status["missing"] if row["toldBy"] == by]
    found: Counter[SourceKey] = Counter()
    for row in rows + (status["lost"] if by == "collector" else []):
        found[_key(pipeline, row["host"], row["source"])] += row["bytes"]
    return dict(found)


def _key(pipeline: PipelineUnderTest, host: str, source: str) -> SourceKey:
    """Return the key of the wire's *source*: a file's path, or a container's name with its ids."""
    for known in pipeline.writers.sources:
        name = f"{known.namespace}/{known.pod}/{known.pod_uid}/{known.container}/0"
        is_this = source.endswith(f"/{known.file}") if known.kind == "plain" else source == name
        if known.host == host and is_this:
            return known.key
    raise AssertionError(f"nobody wrote {source} on {host}")
