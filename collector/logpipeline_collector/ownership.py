"""Who may read a partition. Assignments say who should, epochs say who does; what lies between, a
stopped owner or a restarted one, is decided here from values alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from logpipeline.records import EpochRecord


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether a partition may be taken now; *reason* says why, for people."""

    is_free: bool
    reason: str


def claim(
    record: EpochRecord | None,
    *,
    generation: int,
    is_our_folder: bool,
    owner_silent_s: float,
    takeover_after_s: float,
) -> Claim:
    """Return whether a member to whom the assignment *generation* gives the partition may take it
    from the owner that *record* names.

    *is_our_folder* says that the owner was a process of our own folder, whose lock we hold: it is
    certainly gone.
    """
    if record is None:
        return Claim(True, "nobody had it")
    if record.assignment > generation:
        return Claim(False, f"it was taken under the newer assignment {record.assignment}")
    if record.released:
        return Claim(True, f"{record.owner} released it")
    if is_our_folder:
        return Claim(True, f"the last owner, {record.owner}, worked in this folder, and is gone")
    if owner_silent_s >= takeover_after_s:
        return Claim(True, f"{record.owner} was silent for {owner_silent_s:.1f} s")
    return Claim(False, f"waiting for {record.owner} to release it")
