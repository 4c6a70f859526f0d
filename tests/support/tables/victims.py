"""The processes that a job of tables consists of, so that a test can kill any of them."""

from __future__ import annotations

from pathlib import Path

from descendants import below

JVM = "org.apache.spark.deploy.SparkSubmit"
WORKERS = "logpipeline_spark.job.worker_daemon"


def jvm_of(driver: int) -> int:
    """Return the JVM that the process *driver* started.

    Raises:
        AssertionError: it has none.
    """
    # A process that it is about to start looks like the JVM itself for a moment.
    found = [pid for pid in below(driver) if JVM in _command(pid)]
    return _only([pid for pid in found if JVM not in _command(_parent(pid))], "a JVM")


def busy_worker_of(driver: int) -> int | None:
    """Return a Python of Spark's that computes at this moment, or None."""
    return next((pid for pid in below(driver) if is_computing(pid)), None)


def is_computing(pid: int) -> bool:
    """Whether *pid* is a worker, and no mere parent of workers, that computes at this moment."""
    # Of a machine's processes few run: what they are is asked of those alone.
    runs = _state(pid) == "R"
    return runs and WORKERS in _command(pid) and WORKERS in _command(_parent(pid))


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _state(pid: int) -> str:
    return _field(pid, 0)


def _parent(pid: int) -> int:
    return int(_field(pid, 1) or 0)


def _field(pid: int, number: int) -> str:
    # The name in parentheses may hold anything; what is counted comes behind it.
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return text.rpartition(")")[2].split()[number]


def _only(found: list[int], what: str) -> int:
    assert len(found) == 1, f"{what} was to be there, and {len(found)} are"
    return found[0]
