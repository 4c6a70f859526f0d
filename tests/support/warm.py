"""Processes of the command that need not import Python's modules first.

That takes most of the CPU time of a short command, and tests start thousands. One process imports
once what the commands need, and forks for each of them. What comes of it is as real as any: a
child of the test's process with a number, a session, files and an environment of its own, to be
waited for, frozen and killed. Where the system is not Linux, it is started in the ordinary way.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

MODULES = (
    *(f"logpipeline_cli.commands.{name}" for name in ("components", "consume", "dlq", "files")),
    *(
        f"logpipeline_cli.commands.{name}"
        for name in ("plan", "replay", "sink", "status", "stream")
    ),
    *(f"logpipeline_cli.commands.{name}" for name in ("tail", "up")),
    "logpipeline_cli.local.running",
    "logpipeline_collector.fshipper.service",
    "logpipeline_collector.service",
    "logpipeline_shipper.fshipper",
    "logpipeline_shipper.service",
)
COMMAND = "logpipeline_cli.main:main"
START_WITHIN_S = 60.0
REQUEST_BYTES_MAX = 128 * 1024
OWNER_POLL_S = 0.0005
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Process:
    """One started process, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, words: Sequence[str]) -> None:
        self.pid = pid
        self.words = words
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return how it ended, or None while it runs."""
        with self._lock:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
                    os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ended, once it has.

        Raises:
            subprocess.TimeoutExpired: it still runs after *timeout*.
        """
        if (code := self.poll()) is None:
            waiting = select.poll()
            waiting.register(self._descriptor, select.POLLIN)
            waiting.poll(None if timeout is None else timeout * 1000)
            code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(list(self.words), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


AnyProcess = Process | subprocess.Popen[bytes]


def start(
    words: Sequence[str],
    *,
    stdin: IO[Any] | None = None,
    stdout: IO[Any],
    stderr: IO[Any],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    target: str = COMMAND,
) -> AnyProcess:
    """Start ``logpipeline *words*``, or the function *target* (``module:name``) with these words as
    its arguments, in a session of its own.
    """
    if sys.platform != "linux":
        return _start_cold(words, stdin, stdout, stderr, env, cwd, target)
    request = {
        "words": [str(word) for word in words],
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "path": sys.path,
        "target": target,
        "owner": os.getpid(),
    }
    with open(os.devnull, "rb") as nothing:
        files = (stdin or nothing, stdout, stderr)
        pid = _warm().fork(request, [file.fileno() for file in files])
    return Process(pid, words)


def run(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float,
) -> subprocess.CompletedProcess[bytes]:
    """Run ``logpipeline *words*`` without input, and return how it ended and what it printed.

    Raises:
        subprocess.TimeoutExpired: it still ran after *timeout_s*; it is killed.
    """
    with _scratch() as out, _scratch() as err:
        process = start(words, stdout=out, stderr=err, env=env, cwd=cwd)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
            process.wait()
        return subprocess.CompletedProcess(list(words), code, _content(out), _content(err))


def run_text(
    words: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run it as `run` does, and return what it printed as text."""
    done = run(words, env=env, timeout_s=timeout_s)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def _scratch() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _start_cold(
    words: Sequence[str],
    stdin: IO[Any] | None,
    stdout: IO[Any],
    stderr: IO[Any],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    target: str,
) -> subprocess.Popen[bytes]:
    module, _, name = target.partition(":")
    imports = f"import sys; sys.path[:] = {sys.path!r}; from {module} import {name}"
    code = f"{imports}; sys.exit({name}())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=stdin or subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )


class _Warm:
    """The process that has imported everything, seen from the test's process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(START_WITHIN_S)
        self._socket = ours
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End it; what it has started goes on."""
        self._socket.close()
        self._process.wait()

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """Return the number of a new process, which is our child."""
        data = json.dumps(request).encode()
        assert len(data) < REQUEST_BYTES_MAX, "the environment is too large"
        with self._lock:
            # Meanwhile we adopt orphans among our descendants: so the new process is our child.
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._socket, [data], files)
                return int(self._socket.recv(64))
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)


_made: dict[int, _Warm] = {}
_making = threading.Lock()


def _warm() -> _Warm:
    with _making:
        pid = os.getpid()
        if pid not in _made:
            _made[pid] = _Warm()
        return _made[pid]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, and return it in the new process; return None at the end."""
    for module in MODULES:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads must not fork"
    # What is there now is not looked through again, which would copy its pages in each process.
    gc.collect()
    gc.freeze()
    while True:
        data, files, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
        if not data:
            return None
        if child := os.fork():
            os.waitpid(child, 0)
            for file in files:
                os.close(file)
        else:
            if os.fork():
                os._exit(0)
            return _become(connection, json.loads(data), files)


def _become(
    connection: socket.socket, request: dict[str, Any], files: Sequence[int]
) -> dict[str, Any]:
    """Be what *request* asks for, once our parent has ended and the test's process has us."""
    while os.getppid() != request["owner"]:
        time.sleep(OWNER_POLL_S)
    # The kernel ends this process when that of the tests ends, however it does.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != request["owner"]:
        os._exit(1)
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    # A process in the background of a shell ignores it, and so does all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection.send(str(os.getpid()).encode())
    connection.close()
    return request


def _main() -> None:
    # It ends with the test's process, whose end of the connection the kernel closes. (It must not
    # ask for a signal instead: that would come when the thread ends that started it.)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        request = _serve(connection)
    if request is None:
        return
    sys.path[:] = request["path"]
    sys.argv[:] = ["logpipeline", *request["words"]]
    # It has read its environment when it was imported.
    import logpipeline.failpoints

    importlib.reload(logpipeline.failpoints)
    module, _, name = request["target"].partition(":")
    _leave(_code_of(getattr(importlib.import_module(module), name)))


def _code_of(target: Callable[[], int | None]) -> int:
    """Run *target*, and return the exit code that Python would end with."""
    try:
        return target() or 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001  as the interpreter itself does
        traceback.print_exc()
    return 1


def _leave(code: int) -> NoReturn:
    """End as Python does, without taking apart all that was imported."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _main()
