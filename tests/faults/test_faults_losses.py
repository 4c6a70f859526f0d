"""What cannot be delivered any more is counted and named: reported loss equals measured loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from faults.losses import lost_bytes, reported_bytes
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from logpipeline.subjects import ControlSubjects
from logpipeline_demo.expected import Expected
from logpipeline_demo.verdict import Verdict
from waiting import eventually

SHIPPER = "shipper-0"
# Hardly anything of a deleted file is kept in mind, so that deleting loses something.
FORGETFUL = {"shippers": {"deletedFiles": {"maxBytes": "1Ki", "maxAge": "1s"}, "rescan": "200ms"}}
SELDOM = 1 << 40
NAMED = "files are deleted before they are read: named"


async def test_bytes_that_vanish_while_the_server_is_away_are_counted_exactly(
    tmp_path: Path, seed: int, say: Callable[[str], None]
) -> None:
    """Deleted beyond the limit of what is held open: the shipper's and the collectors' missing
    bytes are what the oracle finds missing.
    """
    # Each source loses the rest of one file. Of the file before one that is lost as a whole, only
    # the shipper knows the length.
    shape = Shape(seed=seed, spec=FORGETFUL, rotate_bytes=SELDOM)
    async with PipelineUnderTest(tmp_path, shape) as pipeline:
        await pipeline.run()
        await pipeline.write(1500)
        shipper = pipeline.components[SHIPPER]
        pipeline.server.kill()
        await pipeline.write(1500)
        await _backlog_is_seen(pipeline)
        pipeline.writers.rotate()
        await _backlog_is_seen(pipeline)
        with pipeline.writers.held():
            _delete_rotated(pipeline.root_of(SHIPPER))

        async def is_given_up() -> bool:
            return (await shipper.metrics())["missing_bytes_total"] > 0

        await eventually(is_given_up, what="something is given up")
        await pipeline.server.start()
        await pipeline.write(500)
        await pipeline.quiet()
        told = {by: await reported_bytes(pipeline, by) for by in ("shipper", "collector")}
        counted = (await shipper.metrics())["missing_bytes_total"]
        verdict = await pipeline.settle(is_enough=_is_exact_but_for_losses, reason=NAMED)

    measured = lost_bytes(Expected.read(pipeline.writers.ledger_path), verdict)
    say(f"measured as lost: {sum(measured.values())} bytes of {verdict.lost} lines; reported so")
    assert measured
    assert told["shipper"] == measured
    assert told["collector"] == measured
    assert counted == sum(measured.values())


async def test_files_that_vanish_while_the_shipper_is_down_are_named(
    tmp_path: Path, seed: int
) -> None:
    """Nobody can know what stood in them; but each source that lost lines says that files are
    missing, and no other one does.
    """
    async with PipelineUnderTest(tmp_path, Shape(seed=seed)) as pipeline:
        await pipeline.run()
        # At the usual pace: a shipper that dies when it has read all there is has nothing by which
        # it would notice that files came and went meanwhile.
        await pipeline.write(1500, hurried=False)
        pipeline.components[SHIPPER].kill()
        pipeline.writers.rotate(3)
        with pipeline.writers.held():
            _delete_rotated(pipeline.root_of(SHIPPER) / _first_host(pipeline))
        pipeline.components[SHIPPER].start()
        await pipeline.write(500, hurried=False)
        await pipeline.quiet()
        # What is gone is given up some listings later, which may be after all else was delivered.
        named = await eventually(lambda: _named(pipeline), what="a file is named")
        verdict = await pipeline.settle(is_enough=_is_exact_but_for_losses, reason=NAMED)

    assert verdict.lost > 0
    assert named == {source.key.host for source in verdict.sources if source.key and source.lost}


def _is_exact_but_for_losses(verdict: Verdict) -> bool:
    return not (verdict.twice or verdict.out_of_order or verdict.corrupt or verdict.invented)


def _delete_rotated(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file() and path.name not in ("0.log", "app.log"):
            path.unlink()


def _first_host(pipeline: PipelineUnderTest) -> str:
    return min(path.name for path in pipeline.root_of(SHIPPER).iterdir())


async def _backlog_is_seen(pipeline: PipelineUnderTest) -> None:
    """Return when the shipper has seen every byte that is in the files now."""
    shipper = pipeline.components[SHIPPER]
    files = [path for path in pipeline.root_of(SHIPPER).rglob("*") if not path.is_symlink()]
    with pipeline.writers.held():
        written = sum(path.stat().st_size for path in files if path.is_file())

        async def is_seen() -> bool:
            metrics = await shipper.metrics()
            assert metrics["acked_bytes_total"] + metrics.get("backlog_bytes", 0) == written
            return True

        await eventually(is_seen, what=f"all {written} bytes are seen")


async def _named(pipeline: PipelineUnderTest) -> set[str]:
    """Return the hosts of which the shipper says now that something is missing."""
    subject = ControlSubjects(pipeline.pipeline.names.control_subject).status("shipper")
    answer = await pipeline.js.connection.request(subject, b"", timeout_s=5)
    return {
        source["host"]
        for source in json.loads(answer.data)["sources"]
        if source["missing_bytes"] or source["unseen_generations"]
    }
