"""Reading without asyncio, for scripts and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, TypeVar

from logpipeline.consuming.message import Batch
from logpipeline.consuming.opening import ReaderArguments, open_reader, taking
from logpipeline.consuming.options import ConsumeError
from logpipeline.consuming.partition_reader import Counts
from logpipeline.consuming.reader import CLOSED, Reader
from logpipeline.lag import StreamLag

T = TypeVar("T")


class BlockingReader:
    """A `Reader` whose calls wait, instead of being awaited; an iterator of batches. One thread at
    a time may use it.
    """

    def __init__(self, reader: Reader, loop: asyncio.AbstractEventLoop) -> None:
        self._reader = reader
        self._loop = loop

    def __iter__(self) -> Iterator[Batch]:
        """Return the batches, as they come."""
        return self

    def __next__(self) -> Batch:
        """Settle the batch before, and return the next one; see `Reader.next`."""
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self) -> Batch | None:
        """Settle the batch before, and return the next one, None at the end; see `Reader.next`."""
        return self._wait(self._reader.next())

    def settle(self) -> None:
        """Do now what the outcome of the last batch asks for; see `Reader.settle`."""
        self._wait(self._reader.settle())

    def caught_up(self) -> bool:
        """Return whether nothing is left to read; see `Reader.caught_up`."""
        return self._wait(self._reader.caught_up())

    def lag(self) -> dict[int, StreamLag]:
        """Return what is left to process of each partition; see `Reader.lag`."""
        return self._wait(self._reader.lag())

    @property
    def assignment(self) -> tuple[int, ...]:
        """The partitions that this reader has now; see `Reader.assignment`."""
        return self._wait(_called(lambda: self._reader.assignment))

    @property
    def counts(self) -> Counts:
        """Outcomes of messages so far, of all partitions."""
        return self._wait(_called(lambda: self._reader.counts))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _result(work, self._loop)


async def _called(function: Callable[[], T]) -> T:
    return function()


def _result(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Return the result of *work*, done in *loop*; an interrupt of this thread cancels it.

    Raises:
        ConsumeError: the reader is closed, and so its loop.
    """
    if loop.is_closed():
        work.close()
        raise ConsumeError(CLOSED)
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


@taking(ReaderArguments)
def open_blocking_reader(*args: Any, **named: Any) -> AbstractContextManager[BlockingReader]:
    """Return a context in which a `BlockingReader` hands out batches to a program without asyncio,
    such as a script or a notebook. Arguments and errors are those of `open_reader`.

    The reader has a thread of its own. So it can be opened where an event loop runs, and it goes on
    showing that it is alive while a batch is processed, however long that takes.
    """
    return _blocking(open_reader(*args, **named))


@contextmanager
def _blocking(opened: AbstractAsyncContextManager[Reader]) -> Iterator[BlockingReader]:
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(
        target=asyncio.run,
        args=(_live(begun),),
        name="logpipeline-reader",
        # A program that ends without leaving the context does not wait for it.
        daemon=True,
    )
    thread.start()
    loop, over = begun.result()
    try:
        reader = _result(opened.__aenter__(), loop)
        try:
            yield BlockingReader(reader, loop)
        finally:
            _result(opened.__aexit__(None, None, None), loop)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


async def _live(begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    over = asyncio.Event()
    begun.set_result((asyncio.get_running_loop(), over))
    await over.wait()
