"""From what the wire says to a path below the folder, injectively: no name can leave its place or
meet another's.
"""

from __future__ import annotations

import hashlib
import string
import time
from dataclasses import dataclass
from typing import NamedTuple

from logpipeline.wire import Batch

# A file system's limit is 255 bytes; rotation and compression append to the name.
COMPONENT_BYTES_MAX = 200
_HASH_CHARS = 16
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
FOREIGN_PATH = "_lines.log"


class Origin(NamedTuple):
    """Where a message's lines come from."""

    host: str
    namespace: str
    pod: str
    container: str
    path: str


def origin_of(host: str, batch: Batch | None) -> Origin:
    """Return the origin of *batch*; None is a message without our headers."""
    if batch is None:
        return Origin(host, "", "", "", FOREIGN_PATH)
    namespace, pod, container = batch.namespace, batch.pod, batch.container
    parts = batch.source.split("/")
    if batch.format == "cri" and len(parts) == 5 and not pod:
        # <namespace>/<pod>/<pod uid>/<container>/<restart>
        namespace, pod, container = parts[0], parts[1], parts[3]
    return Origin(host, namespace, pod, container, batch.source)


@dataclass(frozen=True, slots=True)
class Template:
    """A path with variables in braces and strftime's percent signs."""

    text: str
    cluster: str
    partition: int

    @property
    def has_time(self) -> bool:
        """Whether paths change with the time of the lines."""
        return "%" in self.text

    def period(self, time_ns: int) -> str:
        """Return the template with the time filled in: lines of one period stand in one file."""
        if not self.has_time:
            return self.text
        return time.strftime(self.text, time.gmtime(time_ns // 1_000_000_000))

    def path(self, origin: Origin, period: str) -> str:
        """Return the path of *origin*'s lines in *period*, relative to the folder of files."""
        values = {
            "cluster": component(self.cluster),
            "host": component(origin.host),
            "namespace": component(origin.namespace),
            "pod": component(origin.pod),
            "container": component(origin.container),
            "partition": str(self.partition),
            "path": folders(origin.path),
        }
        filled = string.Formatter().vformat(period.replace("${", "{"), (), values)
        # The template's own text may hold an empty or a dotted component.
        parts = [part for part in filled.split("/") if part not in ("", ".", "..")]
        return "/".join(parts)


def component(name: str) -> str:
    """Return *name* as one component of a path, different for different names."""
    raw = name.encode("utf-8", "surrogateescape")
    if not raw:
        return "%"
    encoded = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in raw)
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > COMPONENT_BYTES_MAX:
        digest = hashlib.blake2b(raw, digest_size=_HASH_CHARS // 2).hexdigest()
        # "%~" is no encoding of a byte, so that a long name cannot pretend to be another one's cut.
        encoded = encoded[: COMPONENT_BYTES_MAX - _HASH_CHARS - 2] + "%~" + digest
    return encoded


def folders(path: str) -> str:
    """Return *path* below a folder, each of its components encoded."""
    return "/".join(component(part) for part in path.lstrip("/").split("/"))
