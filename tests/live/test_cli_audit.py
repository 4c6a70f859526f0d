"""What stands in log files is looked for in the collectors' files, whatever anybody says of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from components.pipeline_up import COMMAND, PipelineUp, run_command
from components.shipping import append, lines_of
from logpipeline.embedded import EmbeddedServer
from logpipeline.listing import files_below
from logpipeline.spec import load
from logpipeline_cli.auditing.remote import RemoteCollectorFiles, RemoteNode
from logpipeline_cli.cluster.agent_client import AgentPod
from logpipeline_cli.commands.audit import Audit, Result
from waiting import eventually

# Nine bytes and more each, and one that everybody writes again and again.
ROUNDS = 3
LINES_PER_ROUND = 400
ALWAYS = b"nothing happened\n"


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is called python3 in a pod is our own here."""
    folder = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


async def audit(up: PipelineUp, *words: str) -> tuple[int, dict[str, Any]]:
    told = ["-f", str(up.file), "--data", str(up.layout.data), "-o", "json", *words]
    done = await run_command("audit", *told)
    assert done.stdout, done.stderr
    return done.returncode or 0, json.loads(done.stdout)


async def until_compared(up: PipelineUp) -> None:
    """Return when all that stands in the files was collected, and looked for."""

    async def is_it() -> bool:
        _, result = await audit(up)
        return bool(result["bytes"] and result["comparedBytes"] == result["bytes"])

    await eventually(is_it, within_s=60, what="everything is compared")


async def write_and_rotate(up: PipelineUp) -> int:
    """Write to a file that is rotated and packed meanwhile; return how many bytes stand there."""
    live = up.logs / "app.log"
    for number in range(ROUNDS):
        first = number * LINES_PER_ROUND
        append(live, ALWAYS * 3 + lines_of(first, first + LINES_PER_ROUND) + ALWAYS)
        await until_compared(up)
        if number < ROUNDS - 1:
            live.rename(up.logs / f"app.log.{ROUNDS - number}")
    packed = up.logs / f"app.log.{ROUNDS}"
    packed.with_name(packed.name + ".gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    return len(lines_of(0, ROUNDS * LINES_PER_ROUND)) + ROUNDS * 4 * len(ALWAYS)


@pytest.mark.long
@pytest.mark.parametrize("output", ["raw", "json"])
async def test_a_line_that_is_missing_in_the_files_is_found(
    tmp_path: Path, nats_server: EmbeddedServer, output: str
) -> None:
    """Though shipper and collectors say that all is well, and an equal line stands elsewhere."""
    collectors = {"replicas": 1, "output": output, "compression": "none"}
    async with PipelineUp(tmp_path, "--nats", nats_server.url, collectors=collectors) as up:
        size = await write_and_rotate(up)
        await until_compared(up)
        clean = await audit(up)
        slow = await audit(up, "--rate", "1Mi")
        (collected,) = [p for p in files_below(up.layout.data) if p.name == "app.log"]
        lines = collected.read_bytes().splitlines(keepends=True)
        taken = [n for n, line in enumerate(lines) if ALWAYS.strip() in line][5]
        changed = taken - 9
        # As many bytes as before, so that nobody but a reader can see it.
        lines[taken] = _blank(lines[taken], output)
        lines[changed] = b"LINE".join(lines[changed].rsplit(b"line", 1))
        collected.write_bytes(b"".join(lines))
        code, result = await audit(up)
        by_programs = await asyncio.to_thread(audit_by_programs, up)

    (found,) = by_programs.findings
    assert (by_programs.compared, found.missing.lines) == (size, 2)
    assert found.missing.size == result["differingBytes"]
    assert clean[0] == slow[0] == 0
    assert (clean[1]["bytes"], clean[1]["files"]) == (size, ROUNDS)
    assert (clean[1]["comparedBytes"], clean[1]["differingBytes"]) == (size, 0)
    assert code == 1
    (finding,) = result["findings"]
    assert finding["lines"] == 2
    assert finding["first"].startswith(("line ", "nothing"))
    assert finding["bytes"] == result["differingBytes"] == len(ALWAYS) + len(b"line 399 of a log\n")


def audit_by_programs(up: PipelineUp) -> Result:
    """Compare as in a cluster: by programs that run where the files are."""
    pipeline = load(up.file)
    data = str(up.layout.shipper("web"))
    node = AgentPod("a node", ("env",), {"file": str(up.file), "name": "web", "data": data})
    ends = [
        AgentPod(f.name, ("env",), {"folders": {f.name: str(f)}}) for f in up.layout.collectors()
    ]
    output = pipeline.spec.collectors.output
    collectors = [RemoteCollectorFiles(end, "main", output, rate=0) for end in ends]
    kept_ns = pipeline.spec.collectors.retention.max_age_ns
    return Audit(pipeline, collectors).run([RemoteNode(node, 0, kept_ns)])


def _blank(line: bytes, output: str) -> bytes:
    empty = b'{"message":""}' if output == "json" else b""
    return empty.ljust(len(line) - 1) + b"\n"


async def test_paths_below_the_home_are_looked_at_and_each_result_comes_at_once(
    tmp_path: Path, nats_server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the resource has them, and though nobody is at a terminal; where no file is found, nothing
    was compared, and that is no success.
    """
    local = {
        "shippers": [{"name": "web", "host": "web1", "files": [{"include": ["~/logs/*.log"]}]}]
    }
    monkeypatch.setenv("HOME", str(tmp_path))
    up = PipelineUp(tmp_path, "--nats", nats_server.url, local=local)
    nothing = PipelineUp(tmp_path / "nothing", "--nats", nats_server.url, name="nothing")
    up.append_bytes(lines_of(0, 100))
    async with up:
        await until_compared(up)
        words = ["-f", str(up.file), "--data", str(up.layout.data)]
        auditing = await asyncio.create_subprocess_exec(
            *COMMAND, "audit", *words, "--every", "1h", stdout=asyncio.subprocess.PIPE
        )
        assert auditing.stdout is not None
        async with asyncio.timeout(60):
            first = await auditing.stdout.readline()
        auditing.terminate()
        await auditing.wait()
    async with nothing:
        code, result = await audit(nothing)

    assert b"(1 files of 1 sources), 0 B differ" in first
    assert (code, result["sources"]) == (1, 0)


@pytest.mark.long
async def test_container_logs_are_compared_by_the_programs_lines(
    tmp_path: Path, nats_server: EmbeddedServer
) -> None:
    """Fragments are joined, also across the files of a rotation; without the runtime's words."""
    pods = tmp_path / "pods"
    folder = pods / "shop_web-0_5f0c" / "nginx"
    folder.mkdir(parents=True)
    live = folder / "0.log"
    local = {"shippers": [{"name": "node", "host": "node1", "pods": str(pods)}]}
    async with PipelineUp(tmp_path, "--nats", nats_server.url, local=local) as up:
        append(live, cri_line("F", "begin") + cri_line("P", "one ") + cri_line("P", "line "))
        append(live, cri_line("F", "whole") + cri_line("F", "again") + cri_line("P", "cut "))
        live.rename(folder / "0.log.20261122-100000")
        append(live, cri_line("F", "in two") + cri_line("F", "again") + cri_line("F", "end"))
        await until_compared(up)
        code, clean = await audit(up)
        (collected,) = [p for p in files_below(up.layout.data) if p.name == "nginx.log"]
        written = collected.read_bytes()
        collected.write_bytes(written.replace(b"cut in two", b"cut in 2wo"))
        bad, result = await audit(up)

    assert written == b"begin\none line whole\nagain\ncut in two\nagain\nend\n"
    assert (code, clean["differingBytes"]) == (0, 0)
    assert bad == 1
    (finding,) = result["findings"]
    assert (finding["lines"], finding["first"]) == (1, "cut in two")
    assert finding["sources"] == ["shop/web-0/5f0c/nginx/0"]


def cri_line(tag: str, text: str) -> bytes:
    """Return one line as container runtimes write it."""
    return f"2026-11-22T10:00:00.000000000Z stdout {tag} {text}\n".encode()
