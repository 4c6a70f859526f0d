"""Maps the origin of lines to a path below the folder, injectively: no name can leave its folder or
collide with another one.
"""

from __future__ import annotations

import glob
import hashlib
import re
import time

from logpipeline.origin import Origin

# A file system's limit is 255 bytes a name; rotation, compression and a temporary name append 35.
COMPONENT_BYTES_MAX = 200
NAME_BYTES_MAX = 220
# Far below the 4,096 bytes that other programs can open.
PATH_BYTES_MAX = 800
FOREIGN_PATH = "_lines.log"

_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_DIGEST_BYTES = 16
_CONVERSION = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$?\{(\w+)\}")


class Template:
    """A path with variables in braces (or ``${}``) and strftime's percent signs, in UTC."""

    def __init__(self, text: str, *, cluster: str, partition: int) -> None:
        self._parts = _VARIABLE.split(text)  # literal, variable, literal, …
        self._fixed = {"cluster": component(cluster), "partition": str(partition)}
        self.has_time = any("%" in literal for literal in self._parts[::2])

    def period(self, time_ns: int) -> str:
        """Return the period of *time_ns*: lines of one period stand in one file."""
        if not self.has_time:
            return ""
        moment = time.gmtime(time_ns // 1_000_000_000)
        # A path has no NUL, so the pieces can be separated again.
        return "\0".join(time.strftime(literal, moment) for literal in self._parts[::2])

    def place(self, origin: Origin, period: str) -> str:
        """Return the path of *origin*'s lines in *period*, relative to the folder of files."""
        literals = period.split("\0") if period else self._parts[::2]
        filled = literals[0]
        for variable, literal in zip(self._parts[1::2], literals[1:], strict=True):
            filled += self._value(variable, origin) + literal
        # The template's own text may have an empty or a dotted component; a value cannot.
        parts = [_fit(part) for part in filled.split("/") if part not in ("", ".", "..")]
        return "/".join(parts)

    def glob(self, origin: Origin) -> str:
        """Return a pattern (`fnmatch`) of the paths of *origin*'s lines at any time."""
        literals = (glob.escape(literal) for literal in self._parts[::2])
        return self.place(origin, "\0".join(_CONVERSION.sub(_any, each) for each in literals))

    def _value(self, variable: str, origin: Origin) -> str:
        if variable in self._fixed:
            return self._fixed[variable]
        if variable == "path":
            return folders(origin.path)
        if variable not in Origin._fields:
            raise ValueError(f"unknown variable {{{variable}}} in a path template")
        return component(getattr(origin, variable))


def _any(conversion: re.Match[str]) -> str:
    return "%" if conversion[1] == "%" else "*"


def component(name: str) -> str:
    """Return *name* as one component of a path, different for different names.

    Bytes outside ``[A-Za-z0-9._-]`` and a leading dot become ``%XX``, the empty name ``%``; a
    long one is cut and ends with ``%-`` and a hash.
    """
    raw = name.encode("utf-8", "surrogateescape")
    if not raw:
        return "%"
    encoded = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in raw)
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) <= COMPONENT_BYTES_MAX:
        return encoded
    return _cut(encoded, COMPONENT_BYTES_MAX)


def folders(path: str) -> str:
    """Return the absolute *path* below a folder, each of its components encoded; the empty path is
    that of a foreign message.
    """
    if not path:
        return FOREIGN_PATH
    # A relative path must not collide with the absolute one; nothing else is encoded as "%.".
    relative = "" if path.startswith("/") else "%."
    parts = [component(part) for part in path.removeprefix("/").split("/")]
    if parts == [FOREIGN_PATH]:
        parts = ["%5F" + FOREIGN_PATH[1:]]
    encoded = relative + "/".join(parts)
    if len(encoded) <= PATH_BYTES_MAX:
        return encoded
    return f"{_cut(encoded.replace('/', '%2F'), COMPONENT_BYTES_MAX)}/{parts[-1]}"


def _fit(name: str) -> str:
    return name if len(name.encode()) <= NAME_BYTES_MAX else _cut(name, NAME_BYTES_MAX)


def _cut(encoded: str, limit: int) -> str:
    # No byte is encoded as "%-", so no other name can look like this cut.
    digest = hashlib.blake2b(encoded.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{encoded[: limit - len(digest) - 2]}%-{digest}"
