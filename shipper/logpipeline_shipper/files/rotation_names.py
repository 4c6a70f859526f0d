"""Finds by their names the rotated files of each live file, and the order in which they were
written. Pure: names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from logpipeline.codecs import Codec, codec_of, unpacked

# logrotate, kubelet and Python number or date what they rotate; up to five digits are a number.
# A date must look like one: node-192-168-100-200.log is a chain of its own.
_DATE = r"(?:19|20)\d\d[-_.]?(?:0\d|1[0-2])[-_.]?[0-3]\d(?:[-_.:T]?\d\d){0,3}"
_SECONDS = r"1\d{9}"  # logrotate's dateformat -%s
_WHEN = rf"{_DATE}(?:[-_.]{_SECONDS})?"  # and -%Y%m%d-%s
_NUMBERED = re.compile(r"(?P<live>.+)\.(?P<number>\d{1,5})", re.DOTALL)
_DATED = re.compile(rf"(?P<live>.+?)[.\-_](?P<date>{_WHEN}|{_SECONDS})", re.DOTALL)
_DATED_INSIDE = re.compile(
    rf"(?P<stem>.+?)[.\-_](?P<date>{_WHEN})(?P<extension>\.[A-Za-z]{{1,8}})", re.DOTALL
)
_ADDRESS = re.compile(r"(?:.*\.)?\d+", re.DOTALL)  # 10.0.0.1 is not a rotated 10.0.0
_CRI = re.compile(r"\d+\.log")
_NUMBER = 1  # sorts behind dates, before the live file
# Packed with a codec that is not supported, and files that are still being written.
_UNREAD = (".lz4", ".Z", ".zip")
_TEMPORARY = (".tmp", ".swp", ".part")
# logrotate's `renamecopy` first renames a log to this ending, and then copies it. logback packs it
# from a name that is what the packed file is called without its ending, Java's `nanoTime` and this.
_ASIDE = ".tmp"
_NANOTIME = re.compile(r"(?P<rotated>.+?)\d{6,19}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rotation:
    """The place of a file in its chain: *live* is the name of the live file; *age* sorts the files,
    the oldest first and the live file last.
    """

    live: str
    age: tuple[int, int, str]
    codec: Codec | None


def rotation_of(name: str) -> Rotation | None:
    """Return the place of the file *name*, or None for one that is never read.

    `app.log`, `app.log.1`, `app.log.2.gz`, `app.log-20261121`, `app-20261121.log` and
    `app.log.20261121-100000.gz` are of one chain.
    """
    if name.endswith(_TEMPORARY) or name.endswith(_UNREAD):
        return None
    stem, codec = unpacked(name), codec_of(name)
    if match := _DATED.fullmatch(stem):
        return Rotation(match["live"], (0, 0, _digits(match["date"])), codec)
    if match := _DATED_INSIDE.fullmatch(stem):
        live = match["stem"] + match["extension"]
        return Rotation(live, (0, 0, _digits(match["date"])), codec)
    match = _NUMBERED.fullmatch(stem)
    if match and not _ADDRESS.fullmatch(match["live"]):
        return Rotation(match["live"], (_NUMBER, -int(match["number"]), ""), codec)
    if codec is not None:
        return Rotation(stem, (2, 0, ""), codec)
    return Rotation(name, (3, 0, ""), None)


def asides_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Return, by the name of the live file, the names under which a rotator that copies or packs it
    has put it aside.
    """
    asides: dict[str, list[str]] = {}
    for name in names:
        if name.endswith(_ASIDE):
            stem = name.removesuffix(_ASIDE)
            match = _NANOTIME.fullmatch(stem)
            rotation = rotation_of(match["rotated"]) if match else None
            asides.setdefault(rotation.live if rotation is not None else stem, []).append(name)
    return asides


def chains_of(names: Iterable[str]) -> dict[str, list[tuple[str, Codec | None]]]:
    """Return, by the name of the live file, the names of the chain, oldest first, with the codec of
    each. A packed file beside the plain one of the same name is older, or a copy of it.
    """
    chains: dict[str, list[tuple[tuple[int, int, str], bool, str]]] = {}
    for name in set(names):
        rotation = rotation_of(name)
        if rotation is None:
            continue
        place = (rotation.age, rotation.codec is None, name)
        chains.setdefault(rotation.live, []).append(place)
    return {
        live: [(name, codec_of(name)) for _, _, name in sorted(members)]
        for live, members in chains.items()
    }


def is_numbered(name: str) -> bool:
    """Return whether the place of the file *name* in its chain is known by a number alone."""
    rotation = rotation_of(name)
    return rotation is not None and rotation.age[0] == _NUMBER


def restart_of(live: str) -> str | None:
    """Return the restart count in the name of a container's live file, None for other names."""
    return live.removesuffix(".log") if _CRI.fullmatch(live) else None


def _digits(date: str) -> str:
    return "".join(character for character in date if character.isdigit())
