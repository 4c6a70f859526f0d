"""From one owner of a partition to the next: the record that a take-over writes, from values alone.

What it tells of former owners decides later what of their folders counts, so it is kept for each
folder that may come back, and not for each epoch: a folder may stay away for any number of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from logpipeline.records import (
    EPOCH_HISTORY_MAX,
    FORMER_FOLDERS_MAX,
    GONE_FOLDERS_MAX,
    EpochRecord,
    EpochStart,
    Former,
    GoneFolder,
    Reached,
    Succession,
    folder_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """Who takes a partition over, in which epoch, and how far it was read before."""

    member: str
    incarnation: str
    epoch: int
    assignment: int
    reached: Reached


def succeed(
    former: EpochRecord | None,
    successor: Successor,
    *,
    is_beginning: bool = False,
    gone: GoneFolder | None = None,
) -> EpochRecord:
    """Return the record that *successor* writes in place of the *former* one; where *is_beginning*,
    the group begins behind what was reached, for good. With *gone* the former folder is.
    """
    position = successor.reached.position
    record = EpochRecord(
        epoch=successor.epoch,
        owner=successor.member,
        incarnation=successor.incarnation,
        assignment=successor.assignment,
        position=position,
        rollbacks=successor.reached.rollbacks or 0,
        history=(EpochStart(successor.epoch, position.sequence),),
        begun=position.sequence if is_beginning else 0,
        begun_ns=position.time_ns if is_beginning else 0,
        succession=Succession(successor.reached, successor.reached),
    )
    if former is None:
        return record
    # A snapshot describes sources beyond what is read again: with it, all of that would be cut.
    is_behind = gone is not None and gone.again_from > 0
    return replace(
        record,
        snapshot=0 if is_behind else former.snapshot,
        snapshot_at=0 if is_behind else former.snapshot_at,
        history=(*former.history, *record.history)[-EPOCH_HISTORY_MAX:],
        begun=record.begun if is_beginning else former.begun,
        begun_ns=record.begun_ns if is_beginning else former.begun_ns,
        lost_bytes=former.lost_bytes,
        missing_bytes=former.missing_bytes,
        refused=former.refused,
        succession=_succession(former, successor, gone),
    )


def _succession(former: EpochRecord, successor: Successor, gone: GoneFolder | None) -> Succession:
    known = former.succession
    since = known.since if known is not None else None
    ended = Former(former.owner, former.folder, former.epoch, since, successor.reached)
    others = known.former if known is not None else ()
    told = (*(known.gone if known is not None else ()), *([gone] if gone is not None else ()))
    kept = (*(each for each in others if each.folder != ended.folder), ended)
    is_same_folder = folder_of(successor.incarnation) == former.folder
    return Succession(
        successor.reached,
        since if is_same_folder and since is not None else successor.reached,
        kept[-FORMER_FOLDERS_MAX:],
        told[-GONE_FOLDERS_MAX:],
    )
