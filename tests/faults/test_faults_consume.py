"""A group of readers that loses its members at random: with its state in the key-value bucket each
line is processed once, as the checker of the collectors sees it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from components.consuming import Streams
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline.nats.jetstream import JetStream
from logpipeline.origin import Origin
from logpipeline_collector.files.naming import Template
from logpipeline_demo.expected import Expected
from logpipeline_demo.oracle import check
from waiting import eventually

KILLS = 12
MEMBERS = 3
# A result appears under the name of its batch in one step.
STORE = 'cat > "$OUT/.$$" && mv "$OUT/.$$" "$OUT/$LOGPIPELINE_BATCH"'
WORDS = ("--group", "--state", "kv", "--batch", "20", "-o", "json", "--exec", STORE)
PODS = Template("{host}/{namespace}/{pod}/{container}.log", cluster="", partition=0)
FILES = Template("{host}/_files/{path}", cluster="", partition=0)


async def test_a_group_that_loses_members_processes_each_line_once(
    tmp_path: Path, seed: int, say: Callable[[str], None]
) -> None:
    """Killed at any moment, a batch in hand or not; others and new members go on."""
    dice = random.Random(seed)
    out = tmp_path / "out"
    out.mkdir()
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        streams = Streams(pipeline.server, tmp_path, pipeline.resource, pipeline.js)
        try:
            living = [streams.read("mine", *WORDS, OUT=str(out)) for _ in range(MEMBERS)]
            await eventually(lambda: len(results(out)) > MEMBERS, within_s=60)
            for _ in range(KILLS):
                await pipeline.write(dice.randrange(100, 600))
                living.pop(dice.randrange(MEMBERS)).kill()
                living.append(streams.read("mine", *WORDS, OUT=str(out)))
            await pipeline.quiet()
            await eventually(lambda: is_done(pipeline.js), within_s=90)
            expected = Expected.read(pipeline.writers.ledger_path)
        finally:
            for reading in streams.readers:
                reading.kill()
        collected = await pipeline.settle()
    folder = await asyncio.to_thread(assembled, out, tmp_path / "assembled")
    verdict = check(expected, [folder])
    say(f"{KILLS} members killed; of the group: {verdict.summary()}")
    assert verdict.is_clean, verdict.explain()
    assert collected.is_clean, collected.explain()


async def is_done(js: JetStream) -> bool:
    """Whether the consumers have nothing left."""
    found = []
    for number in range(Shape(seed=0).partitions):
        names = (await js.call("STREAM.NAMES"))["streams"]
        stream = next(name for name in names if name.endswith(f"_{number}"))
        found.append(await js.call(f"CONSUMER.INFO.{stream}.mine"))
    return not any(one["num_pending"] + one["num_ack_pending"] for one in found)


def results(folder: Path) -> list[Path]:
    """The batches' results, in the order of their streams."""
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return sorted(files, key=lambda path: (path.name.split("-")[0], int(path.name.split("-")[1])))


def assembled(out: Path, folder: Path) -> Path:
    """Put the lines of all results into files where collectors would have them."""
    for result in results(out):
        for place, data in placed(result):
            path = folder / "logs" / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(data)
    return folder


def placed(result: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the bytes of each line."""
    for text in result.read_bytes().splitlines():
        line = json.loads(text)
        names = (line["host"], line["namespace"], line["pod"], line["container"], line["source"])
        template = PODS if line["pod"] else FILES
        data = base64.b64decode(line["message_base64"]) if "message_base64" in line else None
        data = line["message"].encode() if data is None else data
        end = b"" if line.get("partial") else b"\n"
        yield template.place(Origin(*names), ""), data + end
