"""The streams of a pipeline are found by their numbers, and none is left out silently."""

from __future__ import annotations

from typing import Any, cast

import pytest

from logpipeline.streamstate import StreamState
from logpipeline_spark.errors import Refused
from logpipeline_spark.source import planning
from logpipeline_spark.source.client import Client
from logpipeline_spark.source.options import parse

OPTIONS = parse({"servers": "nats://localhost", "pipeline": "logging/prod", "format": "messages"})


class Server:
    """Answers whether a stream is there; *added* are there from the second question on."""

    servers = "nats://localhost"

    def __init__(self, *numbers: int, added: tuple[int, ...] = ()) -> None:
        self._there = {f"{OPTIONS.base}_{number}" for number in numbers}
        self._added = {f"{OPTIONS.base}_{number}" for number in added}

    def find(self, stream: str) -> StreamState | None:
        is_there = stream in self._there
        if stream in self._added or not is_there:
            self._there |= self._added
        return cast(StreamState, object()) if is_there else None


def found(server: Any) -> list[str]:
    return list(planning.look(cast(Client, server), OPTIONS))


def test_a_missing_stream_between_others_is_an_error() -> None:
    """Lines of all later streams would be left out."""
    with pytest.raises(Refused, match=f"{OPTIONS.base}_2 does not exist"):
        found(Server(0, 1, 3, 4))


def test_streams_that_are_added_meanwhile_are_found() -> None:
    """They may come between two questions."""
    assert found(Server(0, 1, added=(2, 3))) == [f"{OPTIONS.base}_{n}" for n in range(4)]
