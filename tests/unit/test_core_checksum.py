"""The running checksum is the published one, and can be continued anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.checksum import NOTHING, Checksum, decode, encode, extend


def test_it_is_the_published_one() -> None:
    """The catalogue's check value of CRC-64/XZ: shippers in other languages compute the same."""
    assert encode(extend(NOTHING, b"123456789")) == "995dc9bbdf1939fa"
    assert extend(NOTHING, b"") == NOTHING


@given(st.lists(st.binary(max_size=50)))
def test_pieces_give_what_the_whole_gives(pieces: list[bytes]) -> None:
    """Wherever it is interrupted, it goes on from its value."""
    checksum = NOTHING
    for piece in pieces:
        checksum = decode(encode(extend(checksum, piece)))

    assert checksum == extend(NOTHING, b"".join(pieces))


@pytest.mark.parametrize("text", ["", "0", "995dc9bbdf1939fA", "995dc9bbdf1939fa0", "\u0661" * 16])
def test_what_is_none_is_refused(text: str) -> None:
    """It comes out of headers that anybody may write."""
    with pytest.raises(ValueError, match="16 hex digits"):
        decode(text)


def test_digits_are_always_sixteen() -> None:
    """Small ones too."""
    assert encode(Checksum(1)) == "0000000000000001"
