"""The real logrotate, and writers that go on while it works."""

from __future__ import annotations

import asyncio
import logging.handlers
import shutil
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO

import pytest

from faults.rotators.ledger import HEADER, Writing
from faults.rotators.rotator import LINES, Mode, Rotator

# Debian has it where only root looks.
FOLDERS = "/usr/sbin:/usr/local/sbin"
WRITE_EVERY_S = 0.001
LINES_BETWEEN = 20
# As `kill -HUP` does, and waits until the writer has opened the new file: packers begin then.
REOPEN = """\
    {shared}
    postrotate
        touch {flag}
        while [ -e {flag} ]; do sleep 0.005; done
    endscript
"""
Directives = Callable[[int], tuple[str, ...]]

CONFIGURATION = """\
{pattern} {{
    rotate 9
    missingok
{directives}
{script}}}
"""


def program(name: str) -> str:
    """Return the path of the program *name*, or skip the test."""
    found = shutil.which(name) or shutil.which(name, path=FOLDERS)
    if found is None:
        pytest.skip(f"{name} is not installed: tests/faults/packages.txt has its Debian package")
    return found


class Logrotate(Rotator):
    """Rotates a log whose writer goes on, and opens the new file when the postrotate script tells
    it to. *directives* are those of its n-th rotation.
    """

    is_forced = True
    is_shared = False

    def __init__(self, folder: Path, directives: Directives) -> None:
        super().__init__(folder)
        self._directives = directives
        self._flag = folder / "reopen"
        self._rotations = 0
        self._file = self._opened()

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def close(self) -> None:
        self._file.close()

    async def rotate(self, writing: Writing) -> None:
        process = await self._start(self._script())
        running = asyncio.create_task(process.communicate())
        while not running.done():
            if self._flag.exists():
                self._reopen(writing)
                self._flag.unlink()
            elif writing.is_busy:
                writing.line()
            await asyncio.wait([running], timeout=WRITE_EVERY_S)
        output, _ = running.result()
        assert process.returncode == 0, output.decode()
        assert b"error" not in output, output.decode()
        self._rotations += 1

    async def _start(self, script: str) -> asyncio.subprocess.Process:
        directives = "".join(f"    {each}\n" for each in self._directives(self._rotations))
        configuration = self.folder / "logrotate.conf"
        pattern = f"{self.live.parent}/*.log" if self.is_shared else str(self.live)
        configuration.write_text(
            CONFIGURATION.format(pattern=pattern, directives=directives, script=script)
        )
        # It reads no configuration that others may write.
        configuration.chmod(0o644)
        force = ["-f"] if self.is_forced else []
        state = self.folder / "logrotate.state"
        return await asyncio.create_subprocess_exec(
            *(program("logrotate"), *force, "-s", str(state), str(configuration)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    def _script(self) -> str:
        return REOPEN.format(flag=self._flag, shared="sharedscripts" if self.is_shared else "")

    def _reopen(self, writing: Writing) -> None:
        if writing.is_busy:
            writing.line()
        self._file.close()
        self._file = self._opened()
        writing.begin()

    def _opened(self) -> BinaryIO:
        return self.live.open("ab", buffering=0)


class BySize(Logrotate):
    """Rotates what has grown beyond a size, without being forced to."""

    is_forced = False


class Shared(Logrotate):
    """One script for all logs that a pattern names."""

    is_shared = True


class Copying(Logrotate):
    """Copies the log, whose writer keeps its file and pauses meanwhile: what is written between
    copying and truncation is lost, and nothing can see it.
    """

    is_cut = True

    async def rotate(self, writing: Writing) -> None:
        writing.is_busy = False
        await super().rotate(writing)
        if self.is_cut:
            writing.begin()

    def _script(self) -> str:
        return ""


class CopyingBusily(Logrotate):
    """Copies the log of a writer that goes on."""

    async def rotate(self, writing: Writing) -> None:
        await super().rotate(writing)
        writing.begin()

    def _script(self) -> str:
        return ""


class CopiedByHand(Rotator):
    """`cp app.log app.log-20261121 && truncate -s 0 app.log`, as jobs of cron do it, while the
    writer goes on: what it writes in between is read, as far as the shipper is fast enough, and not
    copied.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._file = self.live.open("ab", buffering=0)
        self._copies = 0

    def write(self, line: bytes) -> None:
        self._file.write(line)

    def close(self) -> None:
        self._file.close()

    async def rotate(self, writing: Writing) -> None:
        self._copies += 1
        await _done("cp", str(self.live), f"{self.live}-2026112{self._copies}")
        for _ in range(LINES_BETWEEN):
            writing.line()
            await asyncio.sleep(WRITE_EVERY_S)
        await _done("truncate", "-s", "0", str(self.live))
        writing.begin()


async def _done(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(*words)
    assert await process.wait() == 0, words


class Snapshots(Copying):
    """Copies the log and does not truncate it."""

    is_cut = False


class Watched(Logrotate):
    """Python's WatchedFileHandler, which sees for itself that the log was moved away."""

    def __init__(self, folder: Path, directives: Directives) -> None:
        self._writing: Writing | None = None
        super().__init__(folder, directives)
        self._handler = _HeadedHandler(self)

    def write(self, line: bytes) -> None:
        message = line.decode().removesuffix("\n")
        self._handler.handle(logging.makeLogRecord({"msg": message}))

    def close(self) -> None:
        self._handler.close()
        super().close()

    async def rotate(self, writing: Writing) -> None:
        self._writing = writing
        await super().rotate(writing)
        writing.line()

    def note_beginning(self) -> bool:
        """Note that the handler begins a file; the first one begins like any other."""
        if self._writing is not None:
            self._writing.ledger.lines[-1:-1] = HEADER
        return self._writing is not None

    def _script(self) -> str:
        return ""


class Paused(Watched):
    """The same where nothing is written meanwhile: a log that the handler makes anew in the moment
    in which logrotate does is an error to logrotate.
    """

    async def rotate(self, writing: Writing) -> None:
        writing.is_busy = False
        await super().rotate(writing)


class _HeadedHandler(logging.handlers.WatchedFileHandler):
    def __init__(self, rotator: Watched) -> None:
        self._rotator = rotator
        super().__init__(rotator.live)

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        if stream.tell() == 0 and self._rotator.note_beginning():
            stream.write(b"".join(HEADER).decode())
        return stream


def always(*directives: str) -> Directives:
    """Return these *directives* for each rotation."""
    return lambda _: directives


def dated(*directives: str) -> Directives:
    """Return directives that date three files one after the other, within one second."""
    dates = (("dateyesterday",), ("datehourago",), ())
    return lambda number: (*directives, *dates[number])


def by_day(number: int) -> tuple[str, ...]:
    """Return directives that date two files one after the other."""
    return ("create", "dateext", "dateyesterday") if number == 0 else ("create", "dateext")


def packing(command: str, ending: str) -> Directives:
    """Return directives that pack by *command*."""
    return lambda _: (
        *("create", "compress"),
        *(f"compresscmd {program(command)}", f"compressext .{ending}"),
    )


def moving_out(number: int) -> tuple[str, ...]:
    """Return directives that move files to a folder that no shipper reads."""
    return ("create", "olddir ../old", "createolddir 755")


def moving(*directives: str) -> Directives:
    """Return directives that move files to a folder beside the log."""
    return always("create", "olddir old", "createolddir 755", *directives)


def _mode(
    mode: str,
    directives: Directives,
    kind: type[Logrotate] = Logrotate,
    lines: tuple[int, ...] = LINES,
    rotator: str = "logrotate",
    is_read_first: bool = False,
    loses: bool = False,
) -> Mode:
    return Mode(
        rotator,
        mode,
        lambda folder: kind(folder, directives),
        lines,
        is_read_first=is_read_first or issubclass(kind, Copying),
        loses=loses,
    )


# A file that is cut, and grows again by the same bytes, cannot be told from one that is whole: so
# no file that is cut holds its header alone.
CUT = (60, 1, 35, 97)
BY_SECOND = ("dateext", "dateformat -%Y%m%d-%s")
MODES = (
    _mode("create", always("create")),
    _mode("nocreate", always("nocreate")),
    _mode("start 0", always("create", "start 0")),
    _mode("extension .log", always("create", "extension .log")),
    _mode("size", always("create", "size 1"), BySize),
    _mode("maxsize", always("create", "daily", "maxsize 1"), BySize),
    _mode("sharedscripts", always("create"), Shared),
    _mode("dateext", by_day, lines=LINES[:3]),
    _mode("dateext, dateformat -%Y%m%d-%s", dated("create", *BY_SECOND), lines=LINES[:4]),
    _mode(
        "dateext, dateformat -%Y%m%d-%s, extension .log",
        dated("create", "extension .log", *BY_SECOND),
        lines=LINES[:4],
    ),
    _mode("dateext, compress", dated("create", "compress", *BY_SECOND), lines=LINES[:4]),
    _mode("compress", always("create", "compress")),
    _mode("delaycompress", always("create", "compress", "delaycompress")),
    _mode("compress, xz", packing("xz", "xz")),
    _mode("compress, zstd", packing("zstd", "zst")),
    _mode("compress, bzip2", packing("bzip2", "bz2")),
    _mode("compress, shred", always("create", "compress", "shred")),
    _mode("olddir, watched", moving()),
    _mode("olddir, watched, compress", moving("compress")),
    _mode("olddir, not watched", moving_out, is_read_first=True),
    _mode("rotate 1", always("create", "rotate 1"), is_read_first=True),
    _mode("renamecopy", always("create", "renamecopy")),
    _mode("copytruncate", always("copytruncate"), Copying, CUT),
    _mode("copytruncate, compress", always("copytruncate", "compress"), Copying, CUT),
    _mode(
        "copytruncate, delaycompress",
        always("copytruncate", "compress", "delaycompress"),
        Copying,
        CUT,
    ),
    _mode("copytruncate, dateext", dated("copytruncate", *BY_SECOND), Copying, CUT),
    _mode("copytruncate, olddir, watched", moving("copytruncate"), Copying, CUT),
    _mode(
        "copytruncate, written meanwhile", always("copytruncate"), CopyingBusily, CUT, loses=True
    ),
    Mode("cp, truncate", "written meanwhile", CopiedByHand, CUT, loses=True),
    _mode("copy", always("copy"), Snapshots),
    _mode("copy, compress", always("copy", "compress"), Snapshots),
    _mode("create", always("create"), Paused, rotator="Python WatchedFileHandler"),
    _mode("nocreate", always("nocreate"), Watched, rotator="Python WatchedFileHandler"),
)
