"""Which lines of some modules a piece of work reaches. It cannot notice a change elsewhere."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any


def lines_reached(work: Callable[[], Any], modules: Iterable[str]) -> list[tuple[str, int]]:
    """Do *work*, and return each line of *modules* that it reached, as (module, line)."""
    names = {str(importlib.import_module(name).__file__): name for name in modules}
    found: set[tuple[str, int]] = set()

    def enter(frame: FrameType, event: str, _: Any) -> Any:
        return step if frame.f_code.co_filename in names else None

    def step(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            found.add((names[frame.f_code.co_filename], frame.f_lineno))
        return step

    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(None)
    return sorted(found)
