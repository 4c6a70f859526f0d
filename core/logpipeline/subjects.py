"""The subjects of a pipeline. This is the only module that writes or takes apart a subject's
dots.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest

from logpipeline.partition import Partition, partition_of

# A DNS name's limit (RFC 1035), and Kubernetes' limit for a node's name.
HOST_CHARS_MAX = 253

_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PARTITION = re.compile(r"p(0|[1-9][0-9]{0,5})")
_OF_PARTITION = re.compile(rf"(.+)\.{_PARTITION.pattern}\.>")


# Kubernetes' names hold no underscore and a namespace holds no dot, so the rules below can be read
# backwards: different pipelines get different names, and no subject of one lies below the other's.
@dataclass(frozen=True, slots=True)
class Names:
    """Names derived from namespace and name, or those that the resource gives. Where the pipeline
    *is_single*, one stream holds all partitions.
    """

    subject: str
    stream_base: str
    is_single: bool = False

    def stream(self, partition: int) -> str:
        """Return the stream of *partition*."""
        return self.stream_base if self.is_single else f"{self.stream_base}_{partition}"

    @property
    def state_bucket(self) -> str:
        """The key-value bucket of the group's state; its stream is ``KV_<bucket>``."""
        return f"{self.stream_base}_state"

    @property
    def snapshot_stream(self) -> str:
        """The stream of snapshots that partitions are handed over with."""
        return f"{self.stream_base}_snapshots"

    @property
    def snapshot_subject(self) -> str:
        """The root of the snapshots' subjects."""
        return f"_lps.{_flat(self.subject)}"

    @property
    def dead_letter_stream(self) -> str:
        """The stream of what could not be decoded."""
        return f"{self.stream_base}_dead"

    @property
    def dead_letter_subject(self) -> str:
        """The root of the dead letters' subjects."""
        return f"_lpd.{_flat(self.subject)}"

    @property
    def control_subject(self) -> str:
        """The root of core-NATS subjects for progress and status."""
        return f"_lp.{_flat(self.subject)}"


def names_of(
    namespace: str, name: str, *, subject: str | None, stream: str | None, is_single: bool = False
) -> Names:
    """Return the names of *namespace*/*name*; *subject* and *stream* replace the derived ones."""
    return Names(
        subject=subject or f"lp.{namespace}.{name.replace('.', '_')}",
        stream_base=stream or f"LP_{namespace}_{name.replace('.', '__')}",
        is_single=is_single,
    )


def _flat(subject: str) -> str:
    # One token, injectively: a dot becomes "_d", an underscore "__".
    return subject.replace("_", "__").replace(".", "_d")


class BadHost(ValueError):
    """A host that must not become part of a subject or a path."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"host {host[:80]!r} cannot be used: it may hold letters, digits, '-', '_' and single "
            f"dots between them, {HOST_CHARS_MAX} characters at most; set the host's name"
        )


class BadSubject(ValueError):
    """A subject that none of our shippers, and no fshipper, publishes to."""


def check_host(host: str) -> str:
    """Return *host* if it can stand in a subject.

    Raises:
        BadHost: it holds other characters, an empty token, or is too long.
    """
    if len(host) > HOST_CHARS_MAX or not _HOST.fullmatch(host):
        raise BadHost(host)
    return host


@dataclass(frozen=True, slots=True)
class Subjects:
    """Builds and reads the subjects ``<root>.p<N>.<host>``."""

    root: str
    partitions: int

    def of_host(self, host: str) -> str:
        """Return the subject that *host* publishes to.

        Raises:
            BadHost: see `check_host`.
        """
        return f"{self.root}.p{partition_of(host, self.partitions)}.{check_host(host)}"

    def of_host_anywhere(self, host: str) -> str:
        """Return the filter of what *host* publishes, whatever the number of partitions.

        Raises:
            BadHost: see `check_host`.
        """
        return f"{self.root}.*.{check_host(host)}"

    def of_partition(self, partition: int) -> str:
        """Return the filter that matches every host of *partition* (a host may be several
        tokens).
        """
        return f"{self.root}.p{partition}.>"

    def of_all(self) -> str:
        """Return the filter that matches whatever a stream of ours stores."""
        return f"{self.root}.>"

    def of_stream(self, partition: int, *, foreign: int = 0) -> list[str]:
        """Return what the stream of *partition* stores: with *foreign*, also what shippers of
        another kind put into partitions from ours up to that number. Sorted as in a stream that
        was changed, so that one that is made is the same.
        """
        count = max(self.partitions, 1)
        stored = (partition, *range(partition + count, foreign, count))
        return sorted(self.of_partition(each) for each in stored)

    def of_single_stream(self, *, foreign: int = 0) -> list[str]:
        """Return what the one stream of all partitions stores, sorted; *foreign* as in
        `of_stream`.
        """
        stored = range(max(self.partitions, foreign, 1))
        return sorted(self.of_partition(each) for each in stored)

    def read(self, subject: str) -> tuple[Partition, str]:
        """Return partition and host of *subject*. A shipper that counts other partitions than we do
        puts its host where it thinks that it belongs: its lines are read where they stand.

        Raises:
            BadSubject: it is not below our root, or names no partition.
            BadHost: its host cannot be one.
        """
        if not subject.startswith(self.root + "."):
            raise BadSubject(f"subject {subject[:80]!r} is not below {self.root!r}")
        token, _, host = subject[len(self.root) + 1 :].partition(".")
        if not _PARTITION.fullmatch(token):
            raise BadSubject(f"subject {subject[:80]!r} names no partition")
        partition = Partition(int(token[1:]))
        check_host(host)
        return partition, host


def root_of(filter_: str) -> str | None:
    """Return the root of *filter_* if that is one of `Subjects.of_partition`, else None."""
    found = _OF_PARTITION.fullmatch(filter_)
    return found.group(1) if found else None


def meet(one: str, other: str) -> bool:
    """Return whether there can be a subject that both filters match."""
    for a, b in zip_longest(one.split("."), other.split(".")):
        if a is None or b is None:
            return False
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return True


@dataclass(frozen=True, slots=True)
class ControlSubjects:
    """Core-NATS subjects of progress and status: collectors report, shippers ask.

    *root* is the pipeline's control root; it never overlaps the root of its logs.
    """

    root: str

    def committed(self, partition: int, host: str) -> str:
        """Return where a collector reports how far *host*'s sources are committed."""
        return f"{self.root}.committed.p{partition}.{check_host(host)}"

    def ask_committed(self, partition: int, host: str) -> str:
        """Return where a shipper asks for *host*'s last committed positions."""
        return f"{self.root}.ask.p{partition}.{check_host(host)}"

    def asks_of_partition(self, partition: int) -> str:
        """Return the filter of all such questions for *partition*."""
        return f"{self.root}.ask.p{partition}.>"

    def asks(self, host: str | None = None) -> str:
        """Return the filter of the questions for *host*, or for every host, of any partition."""
        return f"{self.root}.ask.{_anywhere(host)}"

    def committed_anywhere(self, host: str | None = None) -> str:
        """Return the filter of reports to *host*, or to every host, of any partition."""
        return f"{self.root}.committed.{_anywhere(host)}"

    def read_ask(self, subject: str) -> tuple[Partition, str]:
        """Return partition and host of the question *subject*.

        Raises:
            BadSubject: it is not a question.
            BadHost: its host cannot be one.
        """
        token, _, host = subject.removeprefix(f"{self.root}.ask.").partition(".")
        if not _PARTITION.fullmatch(token):
            raise BadSubject(f"subject {subject[:80]!r} asks for no partition")
        return Partition(int(token[1:])), check_host(host)

    def status(self, component: str) -> str:
        """Return where *component* (``collector`` or ``shipper``) answers questions about
        itself.
        """
        return f"{self.root}.status.{component}"


def _anywhere(host: str | None) -> str:
    return ">" if host is None else f"*.{check_host(host)}"


def is_inbox(subject: str, own_prefix: str) -> bool:
    """Return whether an answer may go to *subject*: an inbox of a client, which begins as ours do
    (*own_prefix*) or as NATS' own, or the place that a server keeps for an answer to another
    account. Not to a stream, a key or a call of JetStream.
    """
    return subject.startswith(("_INBOX", "_R_.", f"{own_prefix}."))


def key_value_subject(bucket: str, key: str) -> str:
    """Return the subject of *key* in the JetStream key-value *bucket*."""
    return f"$KV.{bucket}.{key}"


def dead_letters_of(root: str, partition: int | None = None, reason: str | None = None) -> str:
    """Return the filter of the dead letters of *partition* with *reason*; None means any."""
    where = "*" if partition is None else f"p{partition}"
    return f"{root}.{where}.{reason or '*'}.>"


def dead_letter_partition(root: str, subject: str) -> int | None:
    """Return the partition of the dead letter with *subject*, or None for any other subject."""
    token = subject.removeprefix(f"{root}.").partition(".")[0]
    return int(token[1:]) if _PARTITION.fullmatch(token) else None


def dead_letter_subject(root: str, partition: int, reason: str, *key: str) -> str:
    """Return the subject of a dead letter of *partition* with *reason* (one token) below *root*;
    the tokens of *key* make it unique.
    """
    return ".".join((f"{root}.p{partition}.{reason}", *key))


# The filter of all that a server reports of consumers, by which streams that store it are found.
ADVISORIES = "$JS.EVENT.ADVISORY.CONSUMER.>"

GAVE_UP = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES"

TERMINATED = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED"


def advisory_subjects(stream: str, consumer: str = "*") -> tuple[str, str]:
    """Return where the server reports messages of *stream* that *consumer* does not deliver any
    more: delivered too often, or terminated.
    """
    return f"{GAVE_UP}.{stream}.{consumer}", f"{TERMINATED}.{stream}.{consumer}"


def is_advisory(subject: str) -> bool:
    """Return whether *subject* is one of, or a filter of, `advisory_subjects`."""
    return subject.startswith((f"{GAVE_UP}.", f"{TERMINATED}."))
