"""Whose table it is: the first pipeline that writes to a path signs it, and others are refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.names import TABLE
from logpipeline_spark.table.packed import pack, unpack
from logpipeline_spark.table.storage import Storage

OWNER = f"{TABLE}/owner.json"
_KIND = "owner"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline, by a name that no other one has, the format that it chose, and the root of the
    *subjects* by which its lines are told apart; empty where whoever asks has nothing to write.
    """

    pipeline: str
    format: str = "parquet"
    subjects: str = ""


def sign(storage: Storage, owner: Owner) -> None:
    """Make the path *owner*'s, or see that it is.

    Raises:
        Refused: it is another pipeline's, or of another format or root of subjects.
    """
    storage.put_if_absent(OWNER, pack(_KIND, asdict(owner)))
    found = read_owner(storage)
    if found is None or found.pipeline != owner.pipeline:
        who = "nobody's" if found is None else f"the pipeline {found.pipeline}'s"
        raise Refused(f"{storage.url} is {who}: give {owner.pipeline} a path of its own.")
    if found.format != owner.format:
        raise Refused(
            f"{storage.url} is a table of format {found.format}: ask for that, or choose "
            f"another path for {owner.format}."
        )
    if owner.subjects and found.subjects not in ("", owner.subjects):
        raise Refused(
            f"{storage.url} is a table of the subjects {found.subjects}.…, and now they are "
            f"{owner.subjects}.…: give the pipeline its subjects back, or choose another path."
        )


def read_owner(storage: Storage) -> Owner | None:
    """Return whose table it is, or None where there is none.

    Raises:
        Damaged: what stands there cannot be read.
    """
    raw = storage.read(OWNER)
    if raw is None:
        return None
    said = unpack(_KIND, OWNER, raw)
    return Owner(**{name: str(value) for name, value in said.items()})
