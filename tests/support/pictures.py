"""Makes the pictures of README.md from what the commands really print and write."""

from __future__ import annotations

import io
import math
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from logpipeline_spark.lines.schema import LINES
from logpipeline_spark.table.counts import by_minute, by_source, counted
from logpipeline_spark.table.files import ROLLUP_MINUTE, ROLLUP_SOURCE, FileName, Range
from logpipeline_spark.table.parquet import write_range
from logpipeline_spark.table.storage import LocalStorage
from tables.made import LIFE, STREAM, kept, opened

# Where a test puts the pictures, if it is to keep them.
FOLDER_VARIABLE = "PICTURES"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_WITHIN_S = 120
# The page's head and its first two plots.
WIDTH, HEIGHT = 1100, 825
# Some hours of a shop: a wave of lines, with a bad quarter of an hour in it.
MINUTES = 4 * 60
BAD = range(150, 165)
CONTAINERS = (
    ("node-a", "shop", "cart", 60),
    ("node-a", "shop", "checkout", 40),
    ("node-b", "shop", "search", 50),
    ("node-b", "payments", "ledger", 20),
    ("node-c", "ingress", "proxy", 90),
)
# As rich writes it, without the fonts that a viewer would fetch from elsewhere.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
  <style>
    .{unique_id}-matrix {{
      font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
      font-size: {char_height}px; line-height: {line_height}px }}
    .{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})"
     clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""


def folder(default: Path) -> Path:
    """Return where pictures are written: *default*, or where they are to be kept."""
    return Path(os.environ.get(FOLDER_VARIABLE) or default)


def terminal_svg(text: str, title: str) -> str:
    """Return *text*, as a terminal shows it, as an SVG."""
    width = max(len(line) for line in text.splitlines()) + 1
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(Text(text), no_wrap=True)
    svg = console.export_svg(title=title, theme=MONOKAI, code_format=SVG, unique_id="terminal")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def browser() -> str | None:
    """Return a browser that can draw a page without a screen, if there is one."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def screenshot(program: str, page: Path, picture: Path, profile: Path) -> None:
    """Draw *page* into *picture* by a browser, which gets a new *profile*."""
    quiet = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--hide-scrollbars", "--force-device-scale-factor=1",
    )  # fmt: skip
    done = subprocess.run(
        [
            program,
            *quiet,
            f"--user-data-dir={profile}",
            f"--window-size={WIDTH},{HEIGHT}",
            # The plots are drawn by a script of the page.
            "--virtual-time-budget=10000",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=BROWSER_WITHIN_S,
        check=False,
    )
    assert picture.exists(), done.stdout + done.stderr


def made_up_table(place: Path) -> int:
    """Write a table with the lines of a made-up morning; return how many."""
    storage = LocalStorage(place)
    table = opened(storage)
    rows = pa.Table.from_pylist(list(_rows()), schema=LINES)
    name = FileName(STREAM, LIFE, 1, rows.num_rows, table.writer)
    added = write_range(storage, [rows], name)
    for area, count in ((ROLLUP_MINUTE, by_minute), (ROLLUP_SOURCE, by_source)):
        added += write_range(storage, [count(counted(rows))], name, area=area)
    ranges = {STREAM: Range(LIFE, 1, rows.num_rows)}
    table.commit_batch("1", ranges, added, kept(table))
    table.close()
    return int(rows.num_rows)


def _rows() -> Iterator[dict[str, Any]]:
    chance = random.Random(1)
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin += timedelta(hours=9) - timedelta(days=1)
    seq = 0
    for minute in range(MINUTES):
        wave = 1.0 + 0.5 * math.sin((minute / MINUTES - 0.2) * 2 * math.pi)
        for host, namespace, container, weight in CONTAINERS:
            for _ in range(round(weight * wave * chance.uniform(0.9, 1.1))):
                seq += 1
                moment = begin + timedelta(minutes=minute, seconds=chance.uniform(0, 60))
                yield _row(seq, moment, host, namespace, container, _level(chance, minute))


def _level(chance: random.Random, minute: int) -> str:
    weights = (60, 20, 6, 14) if minute in BAD else (75, 5, 1, 19)
    return chance.choices(("info", "warn", "error", "debug"), weights)[0]


def _row(
    seq: int, moment: datetime, host: str, namespace: str, container: str, level: str
) -> dict[str, Any]:
    return {
        "stream": STREAM,
        "incarnation": LIFE,
        "seq": seq,
        "idx": 0,
        "ts": moment,
        "event_ts": moment,
        "partition": 0,
        "cluster": "prod",
        "host": host,
        "namespace": namespace,
        "pod": f"{container}-1",
        "container": container,
        "fd": "stdout",
        "level": level,
        "line": f"{level} {container} has answered request {seq}",
        "source": f"{namespace}/{container}-1/uid/{container}/0",
        "generation": "g",
        "offset": seq * 100,
        "resent": False,
    }
