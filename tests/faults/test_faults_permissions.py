"""Files and folders that the shipper's user may not read, for a while, and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from faults import unprivileged
from faults.pipeline_under_test import PipelineUnderTest
from faults.shape import Shape
from waiting import eventually

SHIPPER = "shipper-0"
# A folder that can be entered no more, since one above it cannot, has no event: it is noticed when
# its turn comes, and on a busy machine turns are rare.
TOLD_WITHIN_S = 120.0
# Without any permission; with names that can be read, and nothing else; and to be entered by those
# who know the names.
NONE, NAMES, ENTRY = 0o000, 0o644, 0o311


async def test_what_may_not_be_read_is_told_and_read_once_it_may_be(
    tmp_path: Path, seed: int
) -> None:
    """Files, and folders without each of their permissions, that were there before the shipper,
    and again while it runs: `status` names them all the time, and nothing is lost or comes twice.
    """
    # No rotation: what is forbidden stays the file that is written.
    pipeline = PipelineUnderTest(tmp_path, Shape(seed=seed, rotate_bytes=1 << 40))
    pipeline.targets[SHIPPER] = unprivileged.TARGET
    async with pipeline:
        await pipeline.run()
        await pipeline.write(500)
        denied = _chosen(pipeline)
        shipper = pipeline.components[SHIPPER]
        shipper.kill()
        with _forbidden(denied):
            shipper.start()
            await pipeline.write(500)
            await _told(pipeline, set(denied))
        await _told(pipeline, set())
        folders = {path: mode for path, mode in denied.items() if path.is_dir()}
        with _forbidden(folders):
            await pipeline.write(500)
            await _told(pipeline, set(folders))
        await _told(pipeline, set())
        await pipeline.write(300)
        pipeline.rounds = 2
        starts = shipper.starts
        verdict = await pipeline.settle()

    assert starts == 2, "it ended by itself"
    assert verdict.is_clean, verdict.explain()


def _chosen(pipeline: PipelineUnderTest) -> Mapping[Path, int]:
    """Return what is forbidden, each on another host, with its mode meanwhile."""
    root = pipeline.root_of(SHIPPER)
    hosts: dict[str, dict[str, Path]] = {}
    for source in pipeline.writers.sources:
        hosts.setdefault(source.host, {})[source.kind] = source.live_path(root)
    plain, cri, folder, names, entry = [hosts[name] for name in sorted(hosts)]
    return {
        plain["plain"]: NONE,
        cri["cri"]: NONE,
        folder["plain"].parent: NONE,
        names["plain"].parents[1]: NAMES,
        entry["cri"].parent: ENTRY,
    }


@contextmanager
def _forbidden(denied: Mapping[Path, int]) -> Iterator[None]:
    """Let the paths of *denied* have other modes inside the block."""
    former = {path: path.stat().st_mode for path in denied}
    for path, mode in denied.items():
        path.chmod(mode)
    try:
        yield
    finally:
        for path, mode in former.items():
            path.chmod(mode)


async def _told(pipeline: PipelineUnderTest, paths: set[Path]) -> None:
    """Return when `status` names something at or below each of *paths* as what cannot be read, and
    nothing else.
    """

    async def are_told() -> bool:
        answers = (await pipeline.status())["shippers"]
        assert len(answers) == 1
        told = [Path(each["path"]) for each in answers[0]["unreadable"]]
        why = [next((p for p in paths if path.is_relative_to(p)), path) for path in told]
        assert set(why) == paths
        assert answers[0]["unreadable_total"] == len(told)
        # A shipper that is too busy to answer one of both is asked again.
        denied = [each for each in await pipeline.problems() if "permission denied" in each]
        assert len(denied) == bool(paths), denied
        return True

    await eventually(are_told, within_s=TOLD_WITHIN_S, what=f"{len(paths)} paths are told")
