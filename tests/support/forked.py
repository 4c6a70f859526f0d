"""Work that is done in processes of its own, forked from one that has loaded all: each leaves
nothing behind that another could use, and loading would take longer than most of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

K = TypeVar("K")
# What a task returns: anything that JSON knows, but None, which says that it did not end.
Task = Callable[[], Any]


def results(
    tasks: Iterable[tuple[K, Task]], *, workers: int, within_s: int
) -> Iterator[tuple[K, Any]]:
    """Do *tasks*, *workers* at a time, each in a process of its own, and yield what each returns
    when it is done: None where it ended without, or not *within_s*.
    """
    waiting, running = iter(tasks), dict[int, tuple[int, K, bytearray]]()
    try:
        while True:
            while len(running) < workers and (task := next(waiting, None)) is not None:
                pid, end = _forked(task[1], within_s)
                running[end] = pid, task[0], bytearray()
            if not running:
                return
            for end in select.select(list(running), [], [])[0]:
                pid, key, text = running[end]
                data = os.read(end, 1 << 16)
                text += data
                if not data:
                    del running[end]
                    os.close(end)
                    os.waitpid(pid, 0)
                    yield key, _read(bytes(text))
    finally:
        for end, (pid, _, _) in running.items():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(end)


def result(task: Task, *, within_s: int) -> Any:
    """Do one *task* in a process of its own, and return what it returns, as `results` does."""
    return next(iter(results([(None, task)], workers=1, within_s=within_s)))[1]


def _forked(task: Task, within_s: int) -> tuple[int, int]:
    end, other = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(other)
        return pid, end
    os.close(end)
    signal.alarm(within_s)
    try:
        text = json.dumps(task()).encode()
        while text:
            text = text[os.write(other, text) :]
    except BaseException:  # noqa: BLE001  as the interpreter itself does
        traceback.print_exc()
    finally:
        os._exit(0)


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
