"""Lets a search stop the product's own code before each of its effects, and go on from there in
several ways.

A process is a program that asks for effects, and the results that it got so far. To take a step, it
is run again from its beginning with these results, up to the first effect that has none yet. So
code that keeps its state in objects and stacks becomes a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

Do = Callable[..., Any]
Program = Callable[[Do], Any]


class Request(NamedTuple):
    """An effect that a program asks for."""

    name: str
    arguments: tuple[Any, ...]


class Raised(NamedTuple):
    """The result of an effect that fails."""

    kind: type[Exception]
    text: str = ""


class Ended(NamedTuple):
    """The end of a program, with its result or its error."""

    result: Any = None
    error: str = ""


class _Unanswered(BaseException):
    """The program waits for the result of *request*. No handler of errors is to catch it."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.request = request


def next_effect(program: Program, results: tuple[Hashable, ...]) -> Request | Ended:
    """Return the effect that *program* asks for after it got *results*, or its end."""
    answered = iter(results)

    def do(name: str, *arguments: Any) -> Any:
        found = next(answered, _Unanswered)
        if found is _Unanswered:
            raise _Unanswered(Request(name, arguments))
        if isinstance(found, Raised):
            raise found.kind(found.text)
        return found

    try:
        return Ended(program(do))
    except _Unanswered as waiting:
        return waiting.request
    except Exception as error:  # noqa: BLE001  # the model decides whether a program may end so
        return Ended(error=f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What processes ask for next. It depends on their results alone, so it is worked out once."""

    known: dict[tuple[int, tuple[Hashable, ...]], Request | Ended] = field(default_factory=dict)

    def next_effect(
        self, number: int, program: Program, results: tuple[Hashable, ...]
    ) -> Request | Ended:
        """Return what the process *number*, which runs *program*, asks for after *results*."""
        found = self.known.get((number, results))
        if found is None:
            found = self.known[number, results] = next_effect(program, results)
        return found


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of *work*, whose effects are all asked for by a program's *do*: then it
    never waits for an event loop.
    """
    with _without_waiting():
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value
        finally:
            work.close()
    raise AssertionError("a coroutine waits for something that is no effect of the model")


@contextmanager
def _without_waiting() -> Iterator[None]:
    async def at_once(*_: Any) -> None:
        return None

    with patch.object(asyncio, "sleep", at_once):
        yield
