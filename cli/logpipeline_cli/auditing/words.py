"""How questions and answers of an audit travel: a question as one line of JSON, an answer as some.
Keys are written in hexadecimal digits.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from logpipeline_cli.auditing.comparing import Left, Line
from logpipeline_cli.auditing.sides import Counts, Survey, Where
from logpipeline_shipper.checkpoint import Key
from logpipeline_shipper.files.listing import SourceId

Row = Mapping[str, Any]


def of_counts(counts: Counts) -> dict[str, int]:
    """Return *counts* as JSON has them."""
    return {key.hex(): times for key, times in counts.items()}


def counts(row: Mapping[str, int]) -> dict[bytes, int]:
    """Return what `of_counts` made."""
    return {bytes.fromhex(key): times for key, times in row.items()}


def of_survey(survey: Survey) -> Row:
    """Return *survey* as JSON has it."""
    return {
        **survey._asdict(),
        "id": asdict(survey.id),
        "blocks": of_counts(survey.blocks),
        "troubles": dict(survey.troubles),
    }


def survey(row: Row) -> Survey:
    """Return what `of_survey` made."""
    return Survey(**{**row, "id": SourceId(**row["id"]), "blocks": counts(row["blocks"])})


def of_left(left: Left) -> Row:
    """Return *left* as JSON has it."""
    rows = [
        (key.hex(), line.times, line.size, base64.b64encode(line.first).decode())
        for key, line in left.lines.items()
    ]
    return {"lines": rows, "untold": left.untold}


def left(row: Row) -> Left:
    """Return what `of_left` made."""
    lines = {
        bytes.fromhex(key): Line(times, size, base64.b64decode(first))
        for key, times, size, first in row["lines"]
    }
    return Left(lines, row["untold"])


def of_groups(groups: Sequence[tuple[Sequence[Key], Counts]]) -> list[Any]:
    """Return *groups* of sources, with what both sides have, as JSON has them."""
    return [([tuple(key) for key in keys], of_counts(same)) for keys, same in groups]


def groups(rows: Sequence[Any]) -> list[tuple[list[Key], Counts]]:
    """Return what `of_groups` made."""
    return [([Key(*key) for key in keys], counts(same)) for keys, same in rows]


def of_places(places: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return *places*, each a `Where` with some counts, as JSON has them."""
    return [(tuple(where), *map(of_counts, more)) for where, *more in places]


def places(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return what `of_places` made."""
    return [(Where(*where), *map(counts, more)) for where, *more in rows]
