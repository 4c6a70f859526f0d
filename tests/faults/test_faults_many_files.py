"""Very many files on one node, each of which is written to twice, while all parts are killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from faults import settings
from faults.nemesis import Nemesis
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline_demo.outputs import find_chains, read_file
from logpipeline_demo.verdict import Verdict

FILES, FILES_SOAK = 1_000, 10_000
# Each part is killed while files are found, while they are written to once more, and in between.
KILLS = 8
# Collectors make a file for each, and sync it.
FILES_PER_SECOND_MIN = 50


def write(paths: list[Path], word: str) -> None:
    """Append a line to each of *paths*; no two are alike."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"{path.stem} of {path.parts[-4]} {word}\n")


def is_one(place: str) -> bool:
    """Return whether the collected file at *place* is one of many."""
    return "/many/" in place


class ManyFiles:
    """Files below the hosts of *pipeline*, beside those of its writers."""

    def __init__(self, pipeline: PipelineUnderTest, count: int) -> None:
        self._pipeline = pipeline
        root = pipeline.root_of("shipper-0")
        hosts = sorted({source.host for source in pipeline.writers.sources})
        folders = [root / host / "files" / "many" for host in hosts]
        self.paths = [folders[n % len(folders)] / f"{n}.log" for n in range(count)]

    def collected(self) -> Counter[str]:
        """Return how often each line was collected."""
        chains = [each for each in find_chains(self._pipeline.outputs()) if is_one(each.place)]
        text = b"".join(
            part for chain in chains for file in chain.files for part in read_file(file)
        )
        return Counter(text.decode().splitlines())

    def expected(self) -> Counter[str]:
        """Return each line that was written, once."""
        return Counter(line for path in self.paths for line in path.read_text().splitlines())


async def test_very_many_files_are_collected_once_whatever_is_killed(
    tmp_path: Path, seed: int, say: Callable[[str], None]
) -> None:
    """Half of them are there before the shipper starts; all grow once more."""
    count = FILES_SOAK if settings.is_soak() else FILES
    async with PipelineUnderTest(tmp_path, Shape(seed=seed, lines_per_second=200)) as pipeline:
        files, nemesis = ManyFiles(pipeline, count), Nemesis(pipeline, random.Random(seed))
        half = count // 2
        write(files.paths[:half], "first")
        await pipeline.run()

        def go_on() -> None:
            write(files.paths[half:], "first")
            write(files.paths, "second")

        await asyncio.gather(asyncio.to_thread(go_on), nemesis.run(counted=KILLS))
        pipeline.rounds = nemesis.rounds

        def is_enough(seen: Verdict) -> bool:
            return seen.is_clean and files.collected() == files.expected()

        verdict = await pipeline.settle(
            within_s=60.0 + count / FILES_PER_SECOND_MIN,
            is_enough=is_enough,
            is_ignored=is_one,
        )
        collected, expected = files.collected(), files.expected()

    say(f"{count} files, {nemesis.report()}; {verdict.summary()}")
    assert verdict.is_clean, verdict.explain()
    assert expected.total() == 2 * count
    assert not expected - collected, f"lost: {list(expected - collected)[:5]}"
    assert not collected - expected, (
        f"there twice, or never written: {list(collected - expected)[:5]}"
    )
