"""Reading without asyncio, for scripts and notebooks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar

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
        # The call for the next batch during which this thread was interrupted.
        self._interrupted: _Call[Batch | None] | None = None

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
        self._wait_for_interrupted()
        if self._interrupted is None:
            self._interrupted = _Call(self._reader.next(), self._loop)
        call = self._interrupted
        try:
            batch = call.result()
        except BaseException as error:
            if call.raised(error):
                self._interrupted = None
            raise
        self._interrupted = None
        return batch

    def settle(self) -> None:
        """Do now what the outcome of the last batch asks for; see `Reader.settle`."""
        self._wait_for_interrupted()
        # A batch that came with an interrupt was not returned yet: it has no outcome.
        if self._interrupted is None:
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

    def _wait_for_interrupted(self) -> None:
        """Wait for the end of a call that was interrupted, and keep it if it brought something: its
        batch is ours already, and would be acknowledged without having been returned.
        """
        if self._interrupted is not None and self._interrupted.brings_nothing():
            self._interrupted = None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _result(work, self._loop)


async def _called(function: Callable[[], T]) -> T:
    return function()


def _result(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Return the result of *work*, done in *loop*; an interrupt of this thread cancels it.

    Raises:
        ConsumeError: the reader is closed, and so its loop.
    """
    return _Call(work, loop).result()


class _Call(Generic[T]):
    """Some *work* in *loop*, for which another thread waits.

    Raises:
        ConsumeError: the reader is closed, and so its loop.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        if loop.is_closed():
            work.close()
            raise ConsumeError(CLOSED)
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._is_cancelled = False
        self._done = asyncio.run_coroutine_threadsafe(self._run(work), loop)

    def result(self) -> T:
        """Return the result; an interrupt cancels the work, which may bring a result all the same:
        ask again.
        """
        try:
            return self._done.result()
        except BaseException:
            if not self._done.done():
                # Not the future: that one would be over at once, whatever comes of the work.
                self._loop.call_soon_threadsafe(self._cancel)
            raise

    def brings_nothing(self) -> bool:
        """Wait for the end, and return whether the work was cancelled before it brought a result or
        an error.
        """
        wait([self._done])
        return self._done.cancelled()

    def raised(self, error: BaseException) -> bool:
        """Return whether *error* is what the work ended with, and no interrupt of this thread."""
        is_over = self._done.done() and not self._done.cancelled()
        return is_over and self._done.exception() is error

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.create_task(work)
        if self._is_cancelled:
            self._task.cancel()
        return await self._task

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()


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
