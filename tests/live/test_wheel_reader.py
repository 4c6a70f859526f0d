"""The small wheel for programs that only read, with what it names and nothing else."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from components.consuming import streams_on
from components.wheels import TIMEOUT_S, install
from logpipeline.embedded import EmbeddedServer

ROOT = Path(__file__).parents[2]
SIZE_BYTES_MAX = 10_000_000

PROGRAM = """
import asyncio, sys
import logpipeline

async def main(url):
    options = {"stream": "LOGS", "nats": url, "until_caught_up": True}
    async for batch in logpipeline.consume("billing", **options):
        for line in batch.lines:
            print(line.text.decode())

asyncio.run(main(sys.argv[1]))
"""

pytestmark = pytest.mark.long


class Reader:
    """The wheel and what it needs, in a folder with nothing else."""

    def __init__(self, folder: Path) -> None:
        self.target = install(ROOT / "core", folder)
        for needed in needs(metadata_of(self.target)):
            self.add(distribution(needed))
        compileall.compile_dir(self.target, quiet=2)

    def add(self, package: Distribution) -> None:
        """Copy an installed package, as if it were installed here."""
        for file in package.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                copied = self.target / file
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file.locate(), copied)

    @property
    def size_bytes(self) -> int:
        """What it takes on a disk, compiled."""
        return sum(path.stat().st_size for path in self.target.rglob("*") if path.is_file())

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run *program*, which finds this folder and Python's own library alone."""
        return subprocess.run(
            [getattr(sys, "_base_executable", sys.executable), "-S", "-P", "-c", program, *words],
            cwd=self.target.parent,
            env={
                "PYTHONPATH": str(self.target),
                "HOME": str(self.target.parent),
                "PATH": os.defpath,
            },
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """The reader's wheel of this checkout, built and installed without a network."""
    return Reader(tmp_path_factory.mktemp("reader"))


def metadata_of(target: Path) -> str:
    """Return the metadata of the wheel that is installed in *target*."""
    (metadata,) = target.glob("logpipeline_reader-*.dist-info/METADATA")
    return metadata.read_text()


def needs(metadata: str) -> list[str]:
    """Return the packages that are always installed with it on this Python."""
    found = re.findall(r"^Requires-Dist: ([\w.-]+)(.*)$", metadata, re.MULTILINE)
    is_old = sys.version_info < (3, 14)
    return [name for name, said in found if "extra ==" not in said and (is_old or "<" not in said)]


def test_a_reader_takes_less_than_ten_megabytes(reader: Reader) -> None:
    """With all that it needs, compiled."""
    assert needs(metadata_of(reader.target)) == [
        "backports-zstd", "fastcrc", "google-re2", "nats-py",
    ]  # fmt: skip
    assert reader.size_bytes < SIZE_BYTES_MAX


async def test_it_reads_the_streams_of_a_server(
    reader: Reader, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """By the name of the streams, each line once and in order."""
    async with streams_on(nats_server, tmp_path / "pipeline") as streams:
        await streams.write(3, lines=2)

        done = reader.run(PROGRAM, nats_server.url)

        assert done.returncode == 0, done.stderr
        found = done.stdout.splitlines()
        assert sorted(found) == sorted(streams.written)
        for host in {line.split()[0] for line in found}:
            numbers = [int(line.split()[1]) for line in found if line.startswith(f"{host} ")]
            assert numbers == sorted(numbers)


def test_a_resource_in_a_file_says_what_reads_it(reader: Reader, tmp_path: Path) -> None:
    """YAML is three megabytes that most readers do not need."""
    resource = tmp_path / "logpipeline.yaml"
    resource.write_text("kind: LogPipeline\n")
    program = f"import logpipeline.spec as s, pathlib; s.load(pathlib.Path({str(resource)!r}))"

    done = reader.run(program)

    last = done.stderr.splitlines()[-1]
    assert "needs yaml: pip install pyyaml, or name stream and server instead" in last
    assert str(resource) in last
