"""Specifications of LogPipelines under test, put together from parts."""

from __future__ import annotations

from typing import Any

# A disk that is nearly full must not look like lost lines: no rotated file is deleted to make room.
KEEPS_ALL: dict[str, Any] = {"collectors": {"retention": {"minFreePercent": 0}}}


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return *base* with the values of *over*, folder by folder."""
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        both = isinstance(inner, dict) and isinstance(value, dict)
        result[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return result
