"""Expressions by whose groups lines are taken apart (`spec.table.parse`).

They are RE2's, as everywhere: readers compile them here, and tables by Arrow, which has RE2, too.
Python's own compiler is no judge of them. It knows another language, and takes seconds for some
expressions: the author of a resource would stop the operator, which reads the resources of all.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import re2

# What Arrow gives RE2. With less an expression is slower, not wrong.
MEMORY_BYTES_MAX = 8 * 2**20
# With less is tried whether an expression can be used: what is large takes long to compile (0.1 s
# with 8 MiB, and a resource has 16 of them).
TRIED_MEMORY_BYTES_MAX = 2 * 2**20


class Tried(NamedTuple):
    """The names of the *groups* of an expression, or *why* it cannot be used."""

    groups: tuple[str, ...] = ()
    why: str = ""


# The operator reads the same resources again and again.
@lru_cache(maxsize=1024)
def tried(pattern: str) -> Tried:
    """Return the groups of *pattern*, or why lines cannot be taken apart by it."""
    try:
        found = _made(pattern, TRIED_MEMORY_BYTES_MAX)
    except re2.error as error:
        (why,) = error.args
        return Tried(why=f"is not an expression of RE2: {why.decode(errors='replace')}")
    except UnicodeEncodeError:
        return Tried(why="is not text: it has a half of a surrogate pair")
    if not found.groups:
        return Tried(why="has no named group, such as (?P<status>[0-9]+)")
    # Arrow takes no other groups.
    if found.groups != len(found.groupindex):
        return Tried(
            why="has a group without a name of its own: name it, or write (?:…) if it only "
            "holds things together"
        )
    return Tried(tuple(found.groupindex))


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Any:
    """Return *pattern*, which has been tried, to look for in lines."""
    return _made(pattern, MEMORY_BYTES_MAX)


def _made(pattern: str, memory_bytes_max: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory_bytes_max
    return re2.compile(pattern, options=options)
