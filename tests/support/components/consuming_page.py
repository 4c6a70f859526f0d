"""docs/consuming.md as tests see it: its sections, and the snippets in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "consuming.md"
README = ROOT / "README.md"
BEGIN, END = "## Use cases\n", "## Into other systems\n"
PROGRAM = "main.py"
# What a test decides by its environment, as it does with a sample's script.
HERE = {
    'since="24h"': 'since=__import__("os").environ["SINCE"]',
    '"every=100,interval=30s"': '"every=100,interval=" + __import__("os").environ["INTERVAL"]',
}


@dataclass(frozen=True)
class Section:
    """A use case; *sample* is a folder's name, empty where there is none."""

    title: str
    sample: str
    snippets: dict[str, list[str]]

    @property
    def program(self) -> str:
        """Its Python."""
        return self.snippets["python"][0]


def sections() -> list[Section]:
    """Return the use cases of the page."""
    text = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    return [_section(part) for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]]


def other_programs(page: Path) -> list[str]:
    """Return the Python of *page* outside of the use cases."""
    text = page.read_text()
    if BEGIN in text:
        text = text.split(BEGIN)[0] + text.split(END)[1]
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def section(sample: str) -> Section:
    """Return the use case of *sample*."""
    return next(found for found in sections() if found.sample == sample)


def play_the_page(folder: Path, sample: str) -> None:
    """Have the script in *folder* run the Python of the page instead of the command."""
    text = section(sample).program
    for there, here in HERE.items():
        text = text.replace(there, here)
    (folder / PROGRAM).write_text(text)
    apply = "logpipeline apply -f logpipeline.yaml >&2"
    (folder / "run.sh").write_text(f"set -eu\n{apply}\nexec python {PROGRAM}\n")


def _section(text: str) -> Section:
    found = re.search(r"`deploy/samples/use-cases/([a-z0-9-]+)`", text)
    snippets: dict[str, list[str]] = {}
    for language, body in re.findall(r"^```(.+)\n((?:.*\n)*?)```$", text, re.MULTILINE):
        snippets.setdefault(language, []).append(body)
    return Section(text.splitlines()[0], found[1] if found else "", snippets)
