"""Reading files through processes beside them, as `kubectl exec` starts them: also where streams
break off, and where nothing is there to be started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.partition_files import Writer, opened
from descendants import below
from logpipeline_cli.cluster import agent_client
from logpipeline_cli.cluster.agent_client import AgentPod, PodFiles
from logpipeline_cli.errors import CliError
from logpipeline_cli.file_entries import turns

BLOCK = b"".join(b"line %07d\n" % number for number in range(50_000))
# A shell that ends the program's stream after so many bytes.
CUT_BYTES = 200_000
CUTTING = ("sh", "-c", f'"$@" | head -c {CUT_BYTES}', "sh")


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called python3 in a pod is our own here, and no try waits for a pod."""
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(agent_client, "RETRY_S", 0.0)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Two collectors, to the second of which the host moved."""
    made = {name: tmp_path / name for name in ("c-1", "c-0")}
    for name, folder in made.items():
        writer = Writer(opened(folder))
        writer.take(name.encode() + b"\n" + BLOCK)
        writer.commit()
        writer.partition.close()
    return made


def files_of(folders: dict[str, Path], command: tuple[str, ...] = ("env",)) -> PodFiles:
    """What is read of *folders* by programs that *command* starts."""
    ends = [AgentPod(n, command, {"folders": {n: str(f)}}) for n, f in sorted(folders.items())]
    return PodFiles(ends, "main", "h")


def content(files: PodFiles) -> Iterator[bytes]:
    """All that is read, chunk by chunk."""
    for turn in turns(files.entries()):
        for file in files.contents(turn):
            yield from file


def test_a_host_that_moved_is_one_text(folders: dict[str, Path]) -> None:
    """What the former collector has comes first, though the other one is called first."""
    assert b"".join(content(files_of(folders))) == b"c-1\n" + BLOCK + b"c-0\n" + BLOCK


def test_streams_that_break_off_again_and_again_lose_and_repeat_nothing(
    folders: dict[str, Path],
) -> None:
    """As with a pod that is replaced, or a terminal that shows one page a minute."""
    read = b"".join(content(files_of(folders, CUTTING)))

    assert len(read) > 5 * CUT_BYTES
    assert read == b"c-1\n" + BLOCK + b"c-0\n" + BLOCK


def test_memory_does_not_grow_with_the_files(folders: dict[str, Path]) -> None:
    """Files come in chunks, of which one is there at a time."""
    assert max(map(len, content(files_of(folders)))) <= 64 * 1024


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("sh", "-c", "exit 1"), "printed no message"),
        (("sh", "-c", "echo 'pods \"x\" is forbidden: Forbidden' >&2; exit 1"), "pods/exec"),
        (("sh", "-c", "echo 'No module named logpipeline_cli' >&2; exit 1"), "same version"),
        (("sh", "-c", "echo 'pods \"c-0\" not found' >&2; exit 1"), "not found"),
    ],
)
def test_why_nothing_can_be_read_is_told(
    folders: dict[str, Path], command: tuple[str, ...], message: str
) -> None:
    """With the place, and with what to do where that is known."""
    with pytest.raises(CliError, match=message) as raised:
        files_of(folders, command).entries()
    assert "c-0" in str(raised.value)


def test_whoever_stops_reading_leaves_no_program_behind(folders: dict[str, Path]) -> None:
    """`files cat | head` ends what it began."""
    files = files_of(folders)
    [turn, _] = turns(files.entries())
    before = set(below(os.getpid()))
    contents = files.contents(turn)
    next(next(contents))
    assert set(below(os.getpid())) > before
    contents.close()  # type: ignore[attr-defined]  # it is a generator

    assert set(below(os.getpid())) <= before
