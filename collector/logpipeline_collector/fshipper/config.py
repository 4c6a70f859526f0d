"""Configuration and limits of a reader in fshipper's way."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from logpipeline.nats.connection import NatsOptions

# Appended to an output without a percent sign.
DEFAULT_END = "-%Y%m%d%H%M"
# Conversions that fshipper accepted in names; it refused all others.
CONVERSIONS = frozenset("AaBbCcDdeFHIjklMmpRrSTUuVvWwXxYyZz%")
OUTPUT_CHARS_MAX = 512

_CONVERSION = re.compile(r"%(.)", re.DOTALL)

MIB = 1024 * 1024
# Lines that wait for the disk. More are dropped and counted: no line is sent again.
BUFFER_BYTES_MAX = 64 * MIB
# Memory that a line takes beside its bytes, at least.
LINE_OVERHEAD_BYTES = 120
OPEN_FILES_MAX = 256
# Any client may publish on the subjects, so the number of hosts with files of one day is limited:
# far above the largest clusters, and some 100 MB of names.
HOSTS_MAX = 1_000_000
# Consumers whose deliveries are counted: one a partition, and those that were recreated.
CONSUMERS_MAX = 10_000
SYNC_INTERVAL_S = 1.0
# Lines that come within this time are written together.
LINGER_S = 0.01
RETRY_S = 1.0
KEPT_S = 7 * 24 * 3600.0


class BadOutput(ValueError):
    """A pattern of file names that cannot be used."""

    def __init__(self, output: str, why: str) -> None:
        super().__init__(
            f"SHIPPER_OUTPUT {output[:80]!r} {why}; give a file's name below the host's folder, "
            "such as app.log or %Y/app-%Y%m%d.log"
        )


@dataclass(frozen=True, slots=True)
class Pattern:
    """The names of one host's files, relative to its folder."""

    text: str

    @staticmethod
    def of(output: str) -> Pattern:
        """Return the pattern that fshipper made of *output*.

        Raises:
            BadOutput: it leaves the folder, names none or no file, or has an unknown conversion.
        """
        if not output or output.endswith("/") or len(output) > OUTPUT_CHARS_MAX:
            raise BadOutput(output, "names no file")
        if any(ord(character) < 32 or ord(character) == 127 for character in output):
            raise BadOutput(output, "holds a control character")
        text = output if "%" in output else output + DEFAULT_END
        rest = _CONVERSION.sub("", text)
        unknown = [name for name in _CONVERSION.findall(text) if name not in CONVERSIONS]
        if unknown or "%" in rest:
            raise BadOutput(output, f"has the unknown conversion %{unknown[0] if unknown else ''}")
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            raise BadOutput(output, "leaves the host's folder")
        # As Go's strftime means it; the C library knows no such conversion.
        return Pattern("/".join(parts).replace("%v", "%e-%b-%Y"))

    def name(self, day: time.struct_time) -> str:
        """Return the name of the file of *day*, which is a midnight: see `midnight`."""
        return time.strftime(self.text, day)

    def parts(self) -> list[re.Pattern[str]]:
        """Return patterns of the names of all days, folder by folder."""
        return [re.compile(_any_day(part), re.DOTALL) for part in self.text.split("/")]


def midnight(time_s: float) -> time.struct_time:
    """Return the beginning of the local day of *time_s*: a file's name says no later time, however
    fine its pattern is.
    """
    now = time.localtime(time_s)
    return time.struct_time((*now[:3], 0, 0, 0, *now[6:9]), {"tm_zone": now.tm_zone})


def _any_day(part: str) -> str:
    pieces = _CONVERSION.split(part)  # literal, conversion, literal, …
    return "".join(
        re.escape(piece) if index % 2 == 0 else "%" if piece == "%" else ".+"
        for index, piece in enumerate(pieces)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderConfig:
    """Lines of *partitions* below *subject* go into *directory*; with *target* they come by push
    consumers that deliver to ``<target>.p<N>``, else as they are published.
    """

    nats: NatsOptions
    subject: str
    directory: Path
    pattern: Pattern
    partitions: tuple[int, ...] = (0,)
    target: str = ""
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    open_files_max: int = OPEN_FILES_MAX
    http_host: str = "127.0.0.1"
    http_port: int | None = None

    def subscriptions(self) -> list[str]:
        """Return the subjects that are listened to."""
        if self.target:
            return [f"{self.target}.p{number}" for number in self.partitions]
        return [f"{self.subject}.p{number}.>" for number in self.partitions]
