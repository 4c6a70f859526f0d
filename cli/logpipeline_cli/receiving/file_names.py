"""Which file a message belongs to: a template with parts of the message in it, which are a
stranger's. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from logpipeline_cli.receiving.spool import SUFFIX
from logpipeline_collector.files.naming import NAME_BYTES_MAX, component
from logpipeline_shipper.files.rotation_names import rotation_of

_VARIABLE = re.compile(r"\{(\w*)\}")
_DIGEST_BYTES = 8


class BadTemplate(ValueError):
    """A template that names no file below the folder; the message says what to give."""


class NameTemplate:
    """A relative path that ends in `.log`, with *variables* in braces.

    Raises:
        BadTemplate: *text* is not a relative path that ends in `.log`, or has an unknown variable.
    """

    def __init__(self, text: str, variables: frozenset[str]) -> None:
        known = ", ".join(f"{{{name}}}" for name in sorted(variables))
        if unknown := set(_VARIABLE.findall(text)) - variables:
            raise BadTemplate(f"there is no {{{sorted(unknown)[0]}}}: use {known}")
        parts = text.split("/")
        if not text.endswith(SUFFIX) or any(not part or part.startswith(".") for part in parts):
            raise BadTemplate(
                f"give a path below the folder that ends with {SUFFIX}, without empty parts or "
                f"leading dots; it may hold {known}"
            )
        self._parts = parts

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the path for *values*; an empty one is `-`."""
        return "/".join(_part(part, values) for part in self._parts)


def _part(part: str, values: Mapping[str, str]) -> str:
    name = _VARIABLE.sub(lambda match: component(values[match[1]] or "-"), part)
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if name.endswith(SUFFIX):
        rotation = rotation_of(name)
        # A shipper would take it for an old file of another log: an application may be called
        # `backup-20261126`.
        if rotation is None or rotation.live != name:
            name = f"{name.removesuffix(SUFFIX)}%{SUFFIX}"
    if len(name) > NAME_BYTES_MAX:
        digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        name = f"{name[: NAME_BYTES_MAX - 40]}%-{digest}" + (
            SUFFIX if part.endswith(SUFFIX) else ""
        )
    return name
