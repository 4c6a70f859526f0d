"""A codec is known by the end of a file's name, and undoes what it did."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from typing import get_args, get_type_hints

import pytest
import zstandard

from logpipeline.codecs import CODECS, PACKED_IN, Codec, codec_of, unpacked
from logpipeline.spec.components import Collectors

CONTENT = b"".join(b"%d\n" % number for number in range(100_000))
PACK = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


@every_codec
def test_a_name_tells_the_codec(codec: Codec) -> None:
    """Only at its end."""
    assert codec_of(f"app.log.1{codec.suffix}") is codec
    assert unpacked(f"app.log.1{codec.suffix}") == "app.log.1"
    assert codec_of(f"app{codec.suffix}.log") is None
    assert unpacked(f"app{codec.suffix}.log") == f"app{codec.suffix}.log"


@every_codec
def test_what_another_program_packed_is_opened(codec: Codec) -> None:
    """Also where it consists of two members."""
    half = len(CONTENT) // 2
    pack = PACK[codec.name]
    packed = io.BytesIO(pack(CONTENT[:half]) + pack(CONTENT[half:]))

    content = codec.open(packed)

    assert b"".join(iter(lambda: content.read(4096), b"")) == CONTENT


@pytest.mark.parametrize("name", PACKED_IN)
def test_what_a_collector_packs_is_opened(name: str) -> None:
    """In pieces, as it packs."""
    codec = PACKED_IN[name]
    assert codec.packer is not None
    packer = codec.packer()
    packed = packer.compress(CONTENT[:1000]) + packer.compress(CONTENT[1000:]) + packer.flush()

    assert len(packed) < len(CONTENT) / 2
    assert codec.open(io.BytesIO(packed)).read(len(CONTENT) + 1) == CONTENT


def test_a_resource_can_ask_for_each_codec_in_which_a_collector_packs() -> None:
    """And for no other."""
    assert set(get_args(get_type_hints(Collectors)["compression"])) == {*PACKED_IN, "none"}
