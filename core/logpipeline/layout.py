"""The folders of a pipeline on this machine, and the record by which others find it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from logpipeline import json_text
from logpipeline.declared_types import checked
from logpipeline.filelock import FileLock

RUN_FILE = "run.json"
# As Prometheus' `file_sd_configs` reads it.
TARGETS_FILE = "prometheus.json"
# The name of the server's component, whose pages are not Prometheus'.
SERVER = "nats-server"
OWN_FOLDERS = ("collectors", "components", "nats", "shippers", "spark", "table")


class NoPipeline(Exception):
    """No running pipeline can be chosen; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Words:
    """How a caller names a resource, a data folder and a server: messages say what to give."""

    file: str
    data: str
    nats: str


COMMAND = Words("-f FILE", "--data DIR", "--nats URL")
PYTHON = Words("pipeline=FILE", "data=DIR", "nats=URL")


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders below *data*."""

    data: Path

    @property
    def run_file(self) -> Path:
        """The record of the running pipeline, written by `up`."""
        return self.data / RUN_FILE

    @property
    def targets_file(self) -> Path:
        """The addresses of the running parts' metrics for Prometheus, written by `up`."""
        return self.data / TARGETS_FILE

    @property
    def server(self) -> Path:
        """The embedded nats-server's store, configuration and log."""
        return self.data / "nats"

    @property
    def logins(self) -> Path:
        """The folders of the embedded server's users: other users of the machine must not read the
        logs, and a shipper must not publish for another host.
        """
        return self.data / "nats-users"

    def login(self, user: str) -> Path:
        """The files of a user of the embedded server."""
        return self.logins / user

    @property
    def pipeline(self) -> Path:
        """The resource as it was last applied."""
        return self.data / "pipeline.yaml"

    @property
    def lock_file(self) -> Path:
        """Held by the process that runs the pipeline; `up` makes it before anything else."""
        return self.data / "run.lock"

    @property
    def own_folders(self) -> tuple[Path, ...]:
        """The folders that the pipeline itself writes."""
        return tuple(self.data / name for name in OWN_FOLDERS)

    @property
    def everything(self) -> tuple[Path, ...]:
        """All files and folders that the pipeline and its commands write, in the order in which
        they are removed: a removal that ends early leaves the signs of whose folder it is.
        """
        records = (self.run_file, self.targets_file)
        return (*self.own_folders, self.logins, *records, self.pipeline, self.lock_file)

    @property
    def table(self) -> Path:
        """The folder of the table, unless spec.table.path is set."""
        return self.data / "table"

    @property
    def spark(self) -> Path:
        """The folder of Spark's own files."""
        return self.data / "spark"

    def collector(self, member: str) -> Path:
        """The folder of one collector: ``logs`` and ``state``."""
        return self.data / "collectors" / member

    def collectors(self) -> list[Path]:
        """The folders of all collectors that ever ran here."""
        folder = self.data / "collectors"
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def shipper(self, name: str) -> Path:
        """The folder of one shipper: its positions."""
        return self.data / "shippers" / name

    def log(self, component: str) -> Path:
        """The component's own log file."""
        return self.data / "components" / f"{component}.log"


@dataclass(slots=True)
class Component:
    """A running process of the pipeline; *http* is the address of its metrics."""

    name: str
    pid: int
    http: str

    @property
    def is_running(self) -> bool:
        """Whether its process is there; one that ended is started again after some seconds."""
        return self.pid > 0 and _is_alive(self.pid)


@dataclass(slots=True)
class RunRecord:
    """The record of a running `up` for other commands; *trouble* says why its server does not
    work, and *held* which part of its resource is not applied, and why.
    """

    name: str
    namespace: str
    pid: int
    nats: str
    login: str = ""
    trouble: str = ""
    held: str = ""
    components: list[Component] = field(default_factory=list)

    def write(self, layout: Layout) -> None:
        """Replace the record, and the targets for Prometheus, each atomically."""
        _replace(layout.run_file, asdict(self), mode=0o600)
        # There is no secret in it, and Prometheus runs as another user.
        _replace(layout.targets_file, self.targets(), mode=0o644)

    def targets(self) -> list[dict[str, Any]]:
        """Return the parts that run, as Prometheus' `file_sd_configs` expects them, with the labels
        that a cluster's pods have.
        """
        return [
            {
                "targets": [part.http],
                "labels": {"namespace": self.namespace, "pod": f"{self.name}-{part.name}"},
            }
            for part in self.components
            if part.pid and part.name != SERVER
        ]

    @staticmethod
    def remove(layout: Layout) -> None:
        """Remove what `write` wrote: nothing runs there any more."""
        for path in (layout.run_file, layout.targets_file):
            path.unlink(missing_ok=True)

    @staticmethod
    def read(layout: Layout) -> RunRecord | None:
        """Return the record in *layout*, or None if nothing runs there.

        Raises:
            NoPipeline: it is damaged.
        """
        try:
            data = json_text.parse(layout.run_file.read_text())
            components = [Component(**entry) for entry in data.pop("components")]
            record = checked(RunRecord(**data, components=components))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise NoPipeline(
                f"{layout.run_file} is damaged; remove it, and start `logpipeline up` again"
            ) from error
        return record if _runs(layout, record.pid) else None


def _replace(path: Path, content: Any, *, mode: int) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2))
    temporary.chmod(mode)
    temporary.replace(path)


def data_root() -> Path:
    """Return the default folder for the data of pipelines."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "logpipeline"


def default_data(namespace: str, name: str) -> Path:
    """Return the default data folder of a pipeline."""
    return data_root() / f"{namespace}.{name}"


def running_layout(
    data: Path | str | None, pipeline: tuple[str, str] | None, *, words: Words = COMMAND
) -> Layout:
    """Return the layout for a command: by folder, by pipeline, or the only one that runs; *words*
    are those that an error is to use.

    Raises:
        NoPipeline: none runs, or several do.
    """
    if data is not None:
        return Layout(Path(data).absolute())
    if pipeline is not None:
        return Layout(default_data(*pipeline))
    root = data_root()
    paths = sorted(root.iterdir()) if root.is_dir() else []
    found = [Layout(path) for path in paths if path.is_dir()]
    running, damaged = [], None
    for layout in found:
        try:
            if RunRecord.read(layout) is not None:
                running.append(layout)
        except NoPipeline as error:
            # Of a pipeline that may not be meant.
            damaged = error
        except OSError as error:
            damaged = NoPipeline(f"{layout.data} cannot be read: {error.strerror}")
    if len(running) == 1:
        return running[0]
    if not running:
        if damaged is not None:
            raise damaged
        raise NoPipeline(
            f"no pipeline runs below {root}; start one with `logpipeline up -f FILE`, or choose "
            f"one with {words.data} or {words.file}"
        )
    names = ", ".join(str(layout.data) for layout in running)
    raise NoPipeline(
        f"several pipelines run ({names}); choose one with {words.data} or {words.file}"
    )


def _runs(layout: Layout, pid: int) -> bool:
    """Return whether the process *pid*, which wrote the record in *layout*, still runs the pipeline
    there.
    """
    if not _is_alive(pid):
        return False
    # After a crash of the machine another program may have that number. Without the lock's file,
    # which somebody removed then, only the number is known.
    return FileLock.is_held(layout.lock_file) is not False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
