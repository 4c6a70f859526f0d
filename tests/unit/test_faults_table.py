"""The table that `make faults` prints: its rows, and the two sums below them."""

from __future__ import annotations

from faults.table import Settled, rendered


def test_what_was_lost_for_a_reason_is_summed_apart() -> None:
    text = rendered(
        [
            ("b", Settled(2, 200, 0, 0, 0, 1.5)),
            ("c", Settled(1, 100, 70, 0, 0, 2.0, "retention")),
            ("a", Settled(3, 300, 1, 2, 3, 4.0)),
        ]
    )

    _, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert rows == [
        ["`a`", "3", "300", "1", "2", "3", "4.0", ""],
        ["`b`", "2", "200", "0", "0", "0", "1.5", ""],
        ["`c`", "1", "100", "70", "0", "0", "2.0", "retention"],
        ["all without a reason", "5", "500", "1", "2", "3", "5.5", ""],
        ["all with a reason", "1", "100", "70", "0", "0", "2.0", ""],
    ]
