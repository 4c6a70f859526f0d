"""What is waited for when a line is sent: the nearest word wins, and none is lost by a typo."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline.spec.components import Match, PodSelector
from logpipeline.spec.streams import Acknowledge
from logpipeline_shipper.files.listing import ChainFile, HostSources, Listing, SourceId
from logpipeline_shipper.files.source_filter import (
    Container,
    Metadata,
    Rules,
    Ship,
    SourceFilter,
    decide,
    decide_by_path,
)
from logpipeline_shipper.kubernetes.pods import PodCache

WEB = Container(namespace="shop", pod="web-1", uid="u1", name="app")
AUDIT = Match(select=PodSelector(labels={"tier": "audit"}), ack="each")
NOISE = Match(select=PodSelector(namespaces=("shop",)), ack="none")
REST = Match(select=PodSelector())
GENERATIONS = ("a" * 16, "b" * 16)


@pytest.mark.parametrize(
    ("matches", "annotation", "labels", "ack"),
    [
        ((), None, {}, "batch"),
        ((REST,), None, {}, "batch"),
        ((AUDIT, NOISE), None, {"tier": "audit"}, "each"),
        ((AUDIT, NOISE), None, {}, "none"),
        ((NOISE, AUDIT), None, {"tier": "audit"}, "none"),
        ((AUDIT, NOISE), "none", {"tier": "audit"}, "none"),
        ((NOISE,), "each", {}, "each"),
        ((NOISE,), "batch", {}, "batch"),
    ],
)
def test_the_nearest_word_wins(
    matches: tuple[Match, ...], annotation: str | None, labels: dict[str, str], ack: Acknowledge
) -> None:
    """The pod's annotation, then the first entry that fits, then the pipeline."""
    decision = decide(WEB, Metadata(labels=labels, ack=annotation), Rules(matches=matches))

    assert decision == Ship(ack=ack)


@pytest.mark.parametrize(
    ("matches", "taken"), [((), "batch"), ((NOISE,), "batch"), ((AUDIT,), "each")]
)
def test_an_unknown_word_never_makes_lines_less_safe(
    matches: tuple[Match, ...], taken: Acknowledge
) -> None:
    """It is left aside and named; what no entry makes safer is acknowledged in batches."""
    metadata = Metadata(labels={"tier": "audit"}, ack="eahc")

    assert decide(WEB, metadata, Rules(matches=matches)) == Ship(ack=taken, refused="eahc")


def test_a_pod_that_stays_unknown_is_shipped_as_the_strictest_entry_says() -> None:
    """An audit log is one also while the API server is away."""
    assert decide_by_path(WEB, Rules(matches=(AUDIT, NOISE))) == Ship(ack="each")
    assert decide_by_path(WEB, Rules(matches=(NOISE,), ack="each")) == Ship(ack="none")


class Told:
    """What a gate let through."""

    def __init__(self, *files: HostSources, pod_cache: PodCache | None = None) -> None:
        self.taken: list[Ship] = []
        self.source_filter = SourceFilter(
            Rules(), pod_cache, files=files, on_ship=self._take, on_skip=lambda id: None,
            clock=lambda: 0.0,
        )  # fmt: skip
        if pod_cache is not None:
            pod_cache.listeners.pod = self.source_filter.changed

    def _take(self, listing: Listing, how: Ship) -> None:
        self.taken.append(how)


def plain(path: str, *rotated: str) -> Listing:
    found = tuple(ChainFile(Path(each), 1, 1, 1, 0, None) for each in (path, *rotated))
    return Listing(SourceId(host="n", source=path, format="plain"), found)


def test_the_first_entry_of_files_that_fits_decides() -> None:
    """Also where patterns overlap, and where one names rotated files alone."""
    audit = "/var/log/audit"
    told = Told(
        HostSources(host="n", include=(f"{audit}/*",), exclude=(f"{audit}/x",), ack="each"),
        HostSources(host="n", include=("/var/log/**",)),
        HostSources(host="n", include=("/var/log/a.log", "/srv/b.log.*"), ack="none"),
    )  # fmt: skip
    for listing in (
        plain("/var/log/audit/log"),
        plain("/var/log/audit/x"),
        plain("/var/log/a.log"),
        plain("/srv/b.log", "/srv/b.log.1"),
    ):
        told.source_filter.update(listing)

    assert [how.ack for how in told.taken] == ["each", "batch", "batch", "none"]


def test_an_annotation_that_changes_is_heeded_and_a_wrong_one_counted_once() -> None:
    """The source goes on in the new mode, without being listed again."""
    pod_cache = PodCache()
    pod_cache.do_without_namespaces()
    told = Told(pod_cache=pod_cache)
    id = SourceId(
        host="n", source="shop/web-1/u1/app/0", format="cri", namespace="shop", pod="web-1",
        container="app",
    )  # fmt: skip

    def annotate(ack: object) -> None:
        metadata = {"uid": "u1", "annotations": {"logpipeline.dev/ack": ack}}
        pod_cache.put_pod({"metadata": metadata})

    annotate("each")
    told.source_filter.update(Listing(id, plain("/0.log").files))
    for word in ("none", "nOne", "nOne", 7, "batch"):
        annotate(word)

    assert [how.ack for how in told.taken] == ["each", "none", "batch", "batch", "batch"]
    assert told.source_filter.refused_acks == 2
