"""The pictures of README.md are made from real output; PICTURES=docs/images keeps them there."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from components.pipeline_up import PipelineUp
from logpipeline_cli.main import main
from pictures import browser, folder, made_up_table, screenshot, terminal_svg
from waiting import eventually

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
BYTES_MAX = 200_000
PARTITIONS = 6
# Longer than any picture takes; it is ended before.
BUSY_S = 60
pytestmark = pytest.mark.long

PNG = b"\x89PNG\r\n\x1a\n"


async def test_the_picture_of_status_shows_a_running_pipeline(tmp_path: Path) -> None:
    """Two collectors share the partitions of a busy application, and each has committed lines."""
    busy = tmp_path / "busy"
    busy.mkdir()
    shippers = [{"name": "busy", "hostsBelow": str(busy)}]
    pipeline = PipelineUp(
        tmp_path / "up",
        name="prod",
        partitions=PARTITIONS,
        collectors={"replicas": 2},
        local={"shippers": shippers},
    )
    async with pipeline as up:
        words = ["-m", "logpipeline_demo.application", "--root", str(busy)]
        words += ["--seconds", str(BUSY_S)]
        words += ["--ledger", str(tmp_path / "ledger"), "--hosts", "24"]
        application = subprocess.Popen([sys.executable, *words])
        try:

            async def all_committed() -> bool:
                partitions = (await up.json("status"))["partitions"]
                return len({entry["owner"] for entry in partitions}) == 2 and all(
                    entry["committed"] > 20 for entry in partitions
                )

            await eventually(all_committed, within_s=60, what="commits on every partition")

            async def all_answer() -> str:
                said = (await up.run("status")).stdout
                assert "does not answer" not in said, said
                return said

            text = await eventually(all_answer, what="each part answers one question in time")
        finally:
            application.terminate()
            application.wait()
    # The port differs each time, and says nothing.
    text = text.replace(text.split(" on ")[1].split(": ")[0], "nats://127.0.0.1:4222")

    svg = terminal_svg(text.rstrip(), "logpipeline status -w")
    picture = folder(tmp_path) / "status.svg"
    picture.write_text(svg)

    shown = "".join(ET.fromstring(svg).itertext()).replace("\xa0", " ")
    for word in ("PARTITION", "OWNER", "collector-0", "collector-1", "SHIPPER", "busy"):
        assert word in shown
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert len(svg) < BYTES_MAX


@pytest.mark.optional_elsewhere("needs chromium")
def test_the_picture_of_the_report_is_drawn_by_a_browser(tmp_path: Path) -> None:
    """The page that `logpipeline report` writes shows its plots, without a network."""
    program = browser()
    if program is None:
        pytest.skip("no chromium here, which draws the page")
    lines = made_up_table(tmp_path / "table")
    resource = tmp_path / "logpipeline.yaml"
    spec = {"table": {"enabled": True, "path": str(tmp_path / "table")}}
    resource.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "logpipeline.dev/v1alpha1",
                "kind": "LogPipeline",
                "metadata": {"name": "prod"},
                "spec": spec,
            }
        )
    )
    page = tmp_path / "report.html"
    assert main(["report", "-f", str(resource), "--out", str(page)]) == 0
    # The title is the table's place, which differs each time.
    page.write_text(page.read_text().replace(f"{tmp_path}/table", "s3://logs/prod"))
    assert f"{lines:,} lines" in page.read_text()

    screenshot(program, page, tmp_path / "drawn.png", tmp_path / "profile")
    drawn = (tmp_path / "drawn.png").read_bytes()
    (folder(tmp_path) / "report.png").write_bytes(drawn)

    assert drawn.startswith(PNG)
    # An empty page of this size has a tenth of that.
    assert 30_000 < len(drawn) < BYTES_MAX


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    """A clone stays small, and no picture is missing on the first page."""
    readme = (ROOT / "README.md").read_text()

    for name in ("status.svg", "console-light.png", "report.png"):
        assert f"(docs/images/{name})" in readme
        assert (IMAGES / name).stat().st_size < BYTES_MAX
