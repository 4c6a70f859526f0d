"""How far each stream was processed, in a file of one reader: always whole, and locked."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from logpipeline.consuming.errors import ReaderBusy, StateForeign
from logpipeline.consuming.records import Progress
from logpipeline.records import BadRecord
from logpipeline.statefile import StateBroken, read_state, write_state

KIND = "logpipeline-consume"
VERSION = 1


class StateFile:
    """The file *path* of the reader *consumer*."""

    def __init__(self, path: Path, consumer: str) -> None:
        self.path = path
        self._consumer = consumer
        self._lock = _locked(path)
        # Partitions write side by side, in threads.
        self._writing = threading.Lock()
        try:
            self._streams = _read(path, consumer)
        except BaseException:
            self.close()
            raise

    @property
    def streams(self) -> list[str]:
        """The streams of which something is known."""
        return list(self._streams)

    def get(self, stream: str) -> Progress | None:
        """Return how far *stream* was processed, or None where nothing is known."""
        return self._streams.get(stream)

    def put(self, stream: str, progress: Progress) -> None:
        """Note it, durably.

        Raises:
            OSError: the disk is full or failing; what stood there before still does.
        """
        with self._writing:
            streams = self._streams | {stream: progress}
            data = {name: known.as_json() for name, known in streams.items()}
            write_state(self.path, KIND, VERSION, {"consumer": self._consumer, "streams": data})
            self._streams = streams

    def close(self) -> None:
        """Let another process have the file."""
        os.close(self._lock)


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock of *path*: one beside it, since the file itself is
    replaced with each change.
    """
    lock = os.open(path.with_name(path.name + ".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ReaderBusy(
            f"{path} is the state of another process that runs now; give each reader a file of its "
            "own"
        ) from None
    return lock


def _read(path: Path, consumer: str) -> dict[str, Progress]:
    try:
        data = read_state(path, KIND, VERSION)
        if data is None:
            return {}
        streams = {str(name): Progress.of_json(each) for name, each in data["streams"].items()}
        whose = str(data["consumer"])
    except (StateBroken, BadRecord, TypeError, KeyError, AttributeError) as error:
        raise StateForeign(
            f"{path} is no state that can be read ({error}); restore it, or give another file to "
            "begin anew"
        ) from error
    if whose != consumer:
        raise StateForeign(f"{path} is the state of consumer {whose}, not of {consumer}")
    return streams
