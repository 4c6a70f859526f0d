"""Writes the table of reasons into the page about operations, so that the two never differ."""

from __future__ import annotations

from logpipeline_operator.status.reasons import Reason

BEGIN = "<!-- Made by `make generate`; change the code. -->\n"
END = "<!-- End of what is made. -->\n"


def markdown() -> str:
    """Return the table of all reasons."""
    rows = [f"| `{r.word}` | {r.value.description} | {r.value.do} |" for r in Reason]
    return "\n".join(["| Reason | What it says | What to do |", "|---|---|---|", *rows]) + "\n"


def with_reasons(page: str) -> str:
    """Return *page* with the table of all reasons between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{head}{begin}{markdown()}{end}{tail}"
