"""Errors as users see them: one sentence that says what happened and what to do, also where Spark
wraps it into a Java trace of hundreds of lines.
"""

from __future__ import annotations

import re

SENTENCE_CHARS_MAX = 1000

# An exception of a Python worker reaches the driver as the text of its traceback.
_OURS = re.compile(r"^(?:.*\s)?(logpipeline_spark(?:\.\w+)+): ([^\r\n]+)", re.MULTILINE)


class Refused(Exception):
    """Something that cannot go on as it is. The text is one sentence that says what to do."""

    def __init__(self, sentence: str) -> None:
        # Only the first line survives the way through a traceback.
        super().__init__(" ".join(sentence.split())[:SENTENCE_CHARS_MAX])

    def __reduce__(self) -> tuple[type[Refused], tuple[str]]:
        return Refused, (str(self),)


def sentence_of(error: BaseException) -> str:
    """Return the sentence of the `Refused` that *error* is, was caused by, or holds in its text;
    else the first line of its own text.
    """
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, Refused):
            return str(link)
    for link in chain:
        names = _names(Refused)
        if found := [said for name, said in _OURS.findall(str(link)) if name in names]:
            # The causes stand above it in a trace.
            return str(found[-1])
    lines = str(error).strip().splitlines()
    return lines[0][:SENTENCE_CHARS_MAX] if lines else type(error).__name__


def _names(kind: type[Refused]) -> set[str]:
    """Return the names of *kind* and its subclasses as tracebacks show them."""
    mine = {f"{kind.__module__}.{kind.__qualname__}"}
    return mine.union(*(_names(more) for more in kind.__subclasses__()))


def _chain(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in links:
        links.append(current)
        current = current.__cause__ or current.__context__
    return links


class Damaged(Refused):
    """A file of a table is missing, or its content is not what was written."""
