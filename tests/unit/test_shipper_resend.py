"""What may have been sent already is sent in the same pieces again, and marked; nothing else is."""

from __future__ import annotations

from logpipeline.checksum import NOTHING
from logpipeline.wire import Checksums
from logpipeline_shipper.checkpoint import Intent
from logpipeline_shipper.files.chain import Chunk
from logpipeline_shipper.resend import EarlierSends, Piece

G = "0123456789abcdef"


def chunk_of(start: int, data: bytes, generation: str = G) -> Chunk:
    return Chunk(
        generation=generation,
        start=start,
        end=start + len(data),
        data=data,
        lines=data.count(b"\n"),
        first_time_ns=0,
        last_time_ns=0,
        previous=None,
        checksums=Checksums.around(data, NOTHING),
        starts_inside_line=False,
        ends_inside_line=False,
    )


def ranges(pieces: list[Piece]) -> list[tuple[int, int, str, bool]]:
    return [(p.chunk.start, p.chunk.end, p.attempt, p.resend) for p in pieces]


def test_a_restart_repeats_the_very_ranges_that_were_noted() -> None:
    """The server knows a message again only by its exact range."""
    earlier = EarlierSends([Intent(G, 4, 8), Intent(G, 8, 12)], is_in_doubt=False)

    pieces = earlier.pieces(chunk_of(4, b"one\ntwo\nthree\n"), "plain")

    assert ranges(pieces) == [(4, 8, "", True), (8, 12, "", True), (12, 18, "", False)]


def test_a_range_that_goes_on_beyond_what_was_read_is_left_for_the_next_read() -> None:
    """Sent up to where this read happens to end, it would be another message than before."""
    earlier = EarlierSends([Intent(G, 0, 4), Intent(G, 4, 18)], is_in_doubt=False)

    assert ranges(earlier.pieces(chunk_of(0, b"one\ntwo\n"), "plain")) == [(0, 4, "", True)]
    assert ranges(earlier.pieces(chunk_of(4, b"two\n"), "plain")) == [(4, 8, "", True)]


def test_new_bytes_are_not_marked() -> None:
    """The mark costs readers a look: what is certainly new does not carry it."""
    earlier = EarlierSends([Intent(G, 0, 4)], is_in_doubt=False)

    assert ranges(earlier.pieces(chunk_of(4, b"two\n"), "plain")) == [(4, 8, "", False)]
    assert ranges(earlier.pieces(chunk_of(0, b"1\n", "f" * 16), "plain")) == [(0, 2, "", False)]


def test_the_last_word_on_a_start_counts() -> None:
    """A batch that turned out too large was sent in smaller ones: those are repeated."""
    earlier = EarlierSends([Intent(G, 0, 8), Intent(G, 0, 4), Intent(G, 4, 8)], is_in_doubt=False)

    assert ranges(earlier.pieces(chunk_of(0, b"one\ntwo\n"), "plain")) == [
        (0, 4, "", True),
        (4, 8, "", True),
    ]


def test_without_a_record_all_that_stands_in_the_files_is_marked() -> None:
    """Nobody knows what was sent before the state was lost."""
    earlier = EarlierSends([], is_in_doubt=True)

    before = earlier.pieces(chunk_of(0, b"one\n"), "plain")
    earlier.read_all()
    after = earlier.pieces(chunk_of(4, b"two\n"), "plain")

    assert ranges(before) == [(0, 4, "", True)]
    assert ranges(after) == [(4, 8, "", False)]


def test_a_repeated_attempt_keeps_its_id() -> None:
    """A shipper killed while it healed repeats the ids of its last life."""
    earlier = EarlierSends([Intent(G, 0, 4, "feed")], is_in_doubt=False)

    assert ranges(earlier.pieces(chunk_of(0, b"one\n"), "plain")) == [(0, 4, "feed", True)]


def test_a_first_start_marks_what_it_finds_as_unsure() -> None:
    """Readers look whether it came before, and nobody says that it was sent again; what an intent
    tells of was.
    """
    earlier = EarlierSends([Intent(G, 0, 4)], is_in_doubt=True)

    pieces = earlier.pieces(chunk_of(0, b"one\ntwo\n"), "plain")
    earlier.read_all()
    later = earlier.pieces(chunk_of(8, b"three\n"), "plain")

    assert [(p.resend, p.is_unsure) for p in pieces] == [(True, False), (True, True)]
    assert [(p.resend, p.is_unsure) for p in later] == [(False, False)]


def test_what_is_acknowledged_is_not_repeated() -> None:
    """Of this generation, and up to there. That all of it may have been sent stays known."""
    other = "f" * 16
    intents = [Intent(G, 0, 4), Intent(G, 4, 8), Intent(G, 8, 12), Intent(other, 0, 4)]
    earlier = EarlierSends(intents, is_in_doubt=False)
    earlier.acknowledged(chunk_of(0, b"one\ntwo\n"))

    assert earlier.noted == (Intent(G, 8, 12), Intent(other, 0, 4))
    assert ranges(earlier.pieces(chunk_of(4, b"two\n"), "plain")) == [(4, 8, "", True)]


def test_a_batch_that_was_sent_in_smaller_ones_was_sent_to_its_end() -> None:
    """Whichever was noted last."""
    earlier = EarlierSends([Intent(G, 0, 12), Intent(G, 0, 4)], is_in_doubt=False)

    assert ranges(earlier.pieces(chunk_of(0, b"one\ntwo\nend\n"), "plain")) == [
        (0, 4, "", True),
        (4, 12, "", True),
    ]


def test_what_was_noted_is_forgotten_when_all_files_were_read() -> None:
    """What follows was never sent."""
    earlier = EarlierSends([Intent(G, 0, 4, "feed")], is_in_doubt=True)
    earlier.read_all()

    assert earlier.noted == ()
    assert ranges(earlier.pieces(chunk_of(0, b"one\n"), "plain")) == [(0, 4, "", False)]


def test_an_intent_that_is_no_range_is_sent_as_one_with_what_follows() -> None:
    """As a torn record could have it."""
    earlier = EarlierSends([Intent(G, 4, 4, "feed")], is_in_doubt=False)

    assert ranges(earlier.pieces(chunk_of(4, b"two\n"), "plain")) == [(4, 8, "", False)]
