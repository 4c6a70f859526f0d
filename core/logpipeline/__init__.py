"""The part that all components share: wire contract, specification, NATS and observation. For
programs of users it has `consume`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["consume"]


def __getattr__(name: str) -> Any:
    # Imported at the first use: most importers of this package never read a stream.
    if name == "consume":
        from logpipeline.consuming import consume

        return consume
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
