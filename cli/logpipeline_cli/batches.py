"""Batches of a reader are handed to a function, one after the other, until no more are wanted: what
`consume` and `sink` do alike.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from logpipeline.consuming.message import Batch, Message, Outcome
from logpipeline.consuming.options import ConsumeOptions
from logpipeline.consuming.reader import SETTLE_S, Reader, reset
from logpipeline.nats.jetstream import JetStream
from logpipeline_cli.output import agreed
from logpipeline_cli.target import Target
from logpipeline_collector.files.render import render_json

# Given the batch, and a task that ends when it is time to stop.
Process = Callable[[Batch, asyncio.Task[bool]], Awaitable[Outcome]]


def stop_by_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def json_lines(message: Message) -> list[bytes]:
    """Return the lines of *message* as JSON objects without event times, and without newlines.

    Raises:
        BadMessage: it cannot be decoded.
    """
    batch = message.read.batch
    is_cri = batch is not None and batch.format == "cri"
    return render_json(message.origin, is_cri, message.data, message.time_ns).split(b"\n")[:-1]


async def may_begin(
    js: JetStream, target: Target, options: ConsumeOptions, args: argparse.Namespace, what: str
) -> bool:
    """Forget the position of *what*, such as ``consumer``, if `--reset` asks for it; return False
    where the person does not agree.
    """
    if not args.reset:
        return True
    question = f"Forget the position of {what} {options.name}, and begin again?"
    if not agreed(question, yes=args.yes):
        print("Nothing was changed.")
        return False
    await reset(js, target.pipeline, options)
    return True


async def process_batches(reader: Reader, process: Process, stop: asyncio.Event) -> None:
    """Have *process* handle batches until *stop* is set or the reader is at its end. The batch in
    hand is finished; a server that is away then, and cannot note it, is waited for a while only.

    Raises:
        ConsumeError: the reader cannot go on.
    """
    stopping = asyncio.create_task(stop.wait())
    try:
        while not stop.is_set() and (batch := await _next(reader, stopping)) is not None:
            batch.outcome = await process(batch, stopping)
            await _settle(reader, stopping)
    finally:
        stopping.cancel()


async def _settle(reader: Reader, stopping: asyncio.Task[bool]) -> None:
    settling = asyncio.create_task(reader.settle())
    try:
        await asyncio.wait({settling, stopping}, return_when=asyncio.FIRST_COMPLETED)
        # It is time to stop, maybe since before.
        await asyncio.wait([settling], timeout=SETTLE_S)
        if settling.done():
            settling.result()
    finally:
        settling.cancel()
        await asyncio.wait([settling])


async def _next(reader: Reader, stopping: asyncio.Task[bool]) -> Batch | None:
    waiting = asyncio.create_task(reader.next())
    try:
        await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return waiting.result() if waiting.done() else None
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


def counted(reader: Reader) -> str:
    """Return how many messages *reader* had, by what became of them."""
    counts = {name: count for name, count in asdict(reader.counts).items() if count}
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items()) or (
        "nothing was processed"
    )
