"""Reads the files of collectors through agents that run beside them, and continues where a stream
broke off: connections into pods end when pods are replaced, and when nothing is read for a minute.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, cast

from logpipeline import json_text
from logpipeline_cli.cluster.remote_agent import Kind, StreamBroken, StreamCut, read_frame
from logpipeline_cli.errors import CliError
from logpipeline_cli.file_entries import Entry, Key, Turn

PROGRAM = ("python3", "-m", "logpipeline_cli.cluster.remote_agent")
# Tries in a row without new data; a pod that is replaced is back within them.
TRIES_MAX = 6
RETRY_S = 2.0
END_WITHIN_S = 5.0
COMPLAINT_BYTES_MAX = 2_000
# Messages of Python and of shells where the agent's program does not exist.
NOT_THERE = ("No module named", "executable file not found")


@dataclass(frozen=True, slots=True)
class AgentPod:
    """A pod with files: *command* starts a program there, *where* names the place for people, and
    *folders* are the fields of a request that say where the files are.
    """

    where: str
    command: tuple[str, ...]
    folders: Mapping[str, Any]


@dataclass(slots=True)
class PodFiles:
    """The files of all collectors; *lost* are those that were removed while files were read."""

    ends: Sequence[AgentPod]
    group: str
    host: str | None = None
    glob: str | None = None
    lost: list[str] = field(default_factory=list)
    _by_member: dict[str, AgentPod] = field(default_factory=dict)

    def entries(self) -> list[Entry]:
        """Return the files that all collectors have committed now.

        Raises:
            CliError: a collector's files cannot be listed.
        """
        found: dict[Key, Entry] = {}
        for end in self.ends:
            for entry in self._listed(end):
                self._by_member.setdefault(entry.member, end)
                found.setdefault(entry.key, entry)
        return list(found.values())

    def contents(self, turn: Turn) -> Iterator[Iterator[bytes]]:
        """Yield the content of each file of *turn*, as chunks to be read in turn.

        Raises:
            CliError: it cannot be read.
        """
        end = self._by_member[turn.member]
        yield from _Sending(end, self._request(end), turn.entries, self.lost).files()

    def _request(self, end: AgentPod) -> dict[str, Any]:
        return {**end.folders, "group": self.group, "host": self.host, "glob": self.glob}

    def _listed(self, end: AgentPod) -> list[Entry]:
        return [Entry.decode(row) for row in rows_of(end, PROGRAM, self._request(end))]


def rows_of(end: AgentPod, program: Sequence[str], request: Mapping[str, Any]) -> list[Any]:
    """Return the rows of JSON with which *program* in the pod *end* answers *request*, without the
    last one, which marks the end. A request whose answer broke off is repeated.

    Raises:
        CliError: the program cannot be started, or reports an error.
    """
    tries = 0
    while True:
        try:
            return _rows(end, program, request)
        except StreamCut as cut:
            tries += 1
            _wait_or_give_up(end, str(cut), tries)


def _rows(end: AgentPod, program: Sequence[str], request: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    with _Running(end, program, request) as running:
        for line in running.stdout:
            with suppress(ValueError):
                row = json_text.parse(line)
                if isinstance(row, dict) and "failed" in row:
                    raise CliError(f"{end.where}: {row['failed']}")
                if isinstance(row, dict) and "done" in row:
                    return found
                if isinstance(row, dict | list):
                    found.append(row)
        raise StreamCut(running.complaint())


class _Sending:
    """Files that are sent from one pod, over as many streams as needed."""

    def __init__(
        self, end: AgentPod, request: Mapping[str, Any], entries: Sequence[Entry], lost: list[str]
    ) -> None:
        self._end = end
        self._request = request
        self._entries = entries
        self._lost = lost
        self._running: _Running | None = None
        self._number = 0
        self._offset = 0
        self._tries = 0

    def files(self) -> Iterator[Iterator[bytes]]:
        """Yield the contents of the files."""
        try:
            for number in range(len(self._entries)):
                self._number, self._offset = number, 0
                yield self._file()
        finally:
            self._close()

    def _file(self) -> Iterator[bytes]:
        while True:
            kind, data = self._next()
            if kind is Kind.DATA:
                self._offset += len(data)
                yield data
            elif kind is Kind.END:
                return
            elif kind is Kind.LOST:
                self._lost.append(self._entries[self._number].name)
                return
            else:
                said = data.decode("utf-8", "replace")
                raise CliError(f"{self._end.where}: {said or 'it ended before the last file'}")

    def _next(self) -> tuple[Kind, bytes]:
        while True:
            try:
                if self._running is None:
                    self._running = _Running(self._end, PROGRAM, self._wanted())
                frame = read_frame(self._running.stdout)
            except StreamBroken as error:
                raise CliError(f"{self._end.where}: {error}") from error
            except StreamCut:
                assert self._running is not None
                complaint = self._running.complaint()
                self._close()
                self._tries += 1
                _wait_or_give_up(self._end, complaint, self._tries)
            else:
                self._tries = 0
                return frame

    def _wanted(self) -> dict[str, Any]:
        pieces = [[*entry.key, 0] for entry in self._entries[self._number :]]
        pieces[0][-1] = self._offset
        return {**self._request, "pieces": pieces}

    def _close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None


class _Running:
    """A program that runs in a pod, with its request."""

    def __init__(self, end: AgentPod, program: Sequence[str], request: Mapping[str, Any]) -> None:
        # Its messages are read only at its end; a pipe would fill up and block it.
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115  it is closed with the program
        self._process = subprocess.Popen(
            [*end.command, *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        stdin = cast("BinaryIO", self._process.stdin)
        self.stdout = cast("BinaryIO", self._process.stdout)
        # A program that has ended already printed the reason.
        with suppress(BrokenPipeError):
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        with suppress(BrokenPipeError):
            stdin.close()

    def __enter__(self) -> _Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def complaint(self) -> str:
        """Return the end of its standard error, once it has ended."""
        self._end()
        length = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, length - COMPLAINT_BYTES_MAX))
        return self._stderr.read().decode("utf-8", "replace").strip()

    def close(self) -> None:
        """End the program."""
        if self._process.poll() is None:
            self._process.terminate()
        self._end()
        self.stdout.close()
        self._stderr.close()

    def _end(self) -> None:
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _wait_or_give_up(end: AgentPod, complaint: str, tries: int) -> None:
    if any(words in complaint for words in NOT_THERE):
        raise CliError(
            f"{end.where}: its image has no program that sends files; use a command of the same "
            "version as the operator's images"
        )
    if "orbidden" in complaint:
        raise CliError(
            f"{end.where}: {complaint}\nreading a collector's files needs the right to create "
            "pods/exec in its namespace"
        )
    if tries >= TRIES_MAX:
        raise CliError(
            f"{end.where}: files cannot be read: {complaint or 'the program printed no message'}"
        )
    time.sleep(RETRY_S)
