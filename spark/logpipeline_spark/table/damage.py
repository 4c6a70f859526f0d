"""How it is said that a table is not what was written."""

from __future__ import annotations

from logpipeline_spark.errors import Refused


class Damaged(Refused):
    """A file of a table is missing, or is not what was written."""
