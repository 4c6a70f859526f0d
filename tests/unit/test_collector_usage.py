"""What a collector keeps on its disk is one sum over all of its partitions."""

from __future__ import annotations

from logpipeline_collector.files.output import Usage


def test_owners_keep_to_the_folders_limit_together() -> None:
    """Each knows what all keep, and who has the oldest file."""
    usage = Usage()
    usage.report("p0", size=10, oldest_ns=500)
    usage.report("p1", size=7, oldest_ns=300)
    usage.report("p2", size=5, oldest_ns=None)

    assert usage.size == 22
    assert (usage.oldest_of_others("p0"), usage.oldest_of_others("p1")) == (300, 500)
    usage.forget("p1")
    assert (usage.size, usage.oldest_of_others("p0")) == (15, float("inf"))
