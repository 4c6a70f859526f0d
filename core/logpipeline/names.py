"""What a pipeline's streams, buckets and subjects are called; two pipelines never meet by default.

Kubernetes' names hold no underscore and a namespace holds no dot, so the rules below can be read
backwards: different pipelines get different names, and no subject of one lies below the other's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """Names derived from namespace and name, or those that the resource gives."""

    subject: str
    stream_base: str

    def stream(self, partition: int) -> str:
        """Return the stream of *partition*."""
        return f"{self.stream_base}_{partition}"

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


def names_of(namespace: str, name: str, *, subject: str | None, stream: str | None) -> Names:
    """Return the names of *namespace*/*name*; *subject* and *stream* replace the derived ones."""
    return Names(
        subject=subject or f"lp.{namespace}.{name.replace('.', '_')}",
        stream_base=stream or f"LP_{namespace}_{name.replace('.', '__')}",
    )


def _flat(subject: str) -> str:
    # One token, injectively: a dot becomes "_d", an underscore "__".
    return subject.replace("_", "__").replace(".", "_d")
