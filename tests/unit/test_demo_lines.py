"""Lines are what the ledger's readers compute again: each the same for ever, each different."""

from __future__ import annotations

import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import get_args

import pytest

from logpipeline import cri
from logpipeline.partition import partition_of
from logpipeline_demo.lines import PERIOD, Kind, LineMaker, SourceKey, cri_time, payloads
from logpipeline_demo.sources import host_names, is_place_of, sources_of

KEY = SourceKey("node-a", "shop/cart-1/cart")
KINDS: tuple[Kind, ...] = get_args(Kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_carries_its_origin_its_number_and_its_checksum(kind: Kind) -> None:
    """Any single line can be checked by itself, whatever became of the others."""
    maker = LineMaker(5, KEY, kind)
    for seq in range(PERIOD):
        if maker.is_blank(seq):
            continue
        host, name, number, crc, text = maker.line(seq).split(b" ", 4)

        assert (host.decode(), name.decode(), int(number)) == (*KEY, seq)
        assert int(crc, 16) == zlib.crc32(b"%b%d %b" % (maker.head, seq, text), 5)


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_lines_are_equal(kind: Kind) -> None:
    """Lines of another number, source or run differ, though their payloads repeat."""
    makers = [
        LineMaker(seed, SourceKey("node-a", name), kind) for seed in (1, 2) for name in ("x", "y")
    ]
    lines = [maker.line(seq) for maker in makers for seq in range(2 * PERIOD)]
    full = [line for line in lines if line]

    assert len(set(full)) == len(full)


def test_lines_are_the_same_for_ever() -> None:
    """An old ledger stays readable: changing a line needs a new version of the ledger."""
    crcs = [zlib.crc32(LineMaker(1, KEY, kind).lines(0, PERIOD)) for kind in KINDS]

    assert crcs == [2611693028, 1853667114]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_made_at_once_are_those_made_one_by_one(kind: Kind) -> None:
    """The fast way, across the end of the table of payloads, and the plain way agree."""
    maker = LineMaker(1, KEY, kind)

    one_by_one = b"".join(maker.line(seq) + b"\n" for seq in range(PERIOD + 10))
    assert maker.lines(0, PERIOD + 10) == one_by_one


def test_the_hostile_bytes_are_there() -> None:
    """Both kinds of logs hold what breaks readers; plain ones also empty lines, two in a row."""
    for kind in KINDS:
        text = b"\n".join(payload.text or b"" for payload in payloads(1, kind))
        for hostile in (b"\x00", b"\xff\xfe", b"\r", b"\x1b[", b"\x1b]0;", b"\xe2\x80\xa8"):
            assert hostile in text
        assert max(map(len, text.split(b"\n"))) > 60_000
    assert b"\n\n\n" in LineMaker(1, KEY, "plain").lines(0, 2 * PERIOD)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_containers_lines_come_out_of_the_runtimes_format_in_order(seed: int) -> None:
    """Fragments of both streams, interleaved too, are joined to the very lines."""
    maker = LineMaker(seed, KEY, "cri")
    written = maker.written(0, PERIOD, 1_795_258_304_000_000_001)
    joined = list(cri.join(written))

    assert [line.text for line in joined] == [maker.line(seq) for seq in range(PERIOD)]
    assert all(line.whole for line in joined)
    tags = [tuple(line.split(b" ", 3)[1:3]) for line in written.splitlines() if b" std" in line]
    both = [(b"stdout", b"P"), (b"stderr", b"P"), (b"stdout", b"P"), (b"stdout", b"F")]
    assert any(tags[at : at + 4] == both for at in range(len(tags)))


def test_the_time_of_a_line_has_nanoseconds() -> None:
    """The format of the container runtimes, digit by digit."""
    at = int(datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC).timestamp()) * 10**9 + 123_456_789

    assert cri_time(at) == b"2026-11-21T10:00:00.123456789Z"
    assert cri.time_ns(cri_time(at) + b" stdout F x") == at


def test_fifty_hosts_keep_every_partition_busy() -> None:
    """No partition is idle, none has more hosts than another, and no host is there twice."""
    hosts = host_names(50, seed=3)
    load = Counter(partition_of(host, 10) for host in hosts)

    assert sorted(load.items()) == [(number, 5) for number in range(10)]
    assert len(set(hosts)) == 50


def test_each_source_has_one_place_in_the_files() -> None:
    """No two sources of a busy application share a collected file."""
    sources = sources_of(host_names(50, seed=3), seed=3)
    keys = [source.key for source in sources]
    assert len(set(keys)) == len(keys) >= 100
    for source in sources:
        place = f"{source.host}/{source.namespace}/{source.pod}/{source.container}.log"
        if source.kind == "plain":
            place = f"{source.host}/_files/var/log/app.log"

        assert [key for key in keys if is_place_of(key, place)] == [source.key]
