"""Reads the one YAML document of a file, and refuses what YAML accepts and a person never meant."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from logpipeline.spec.mistakes import Mistake, SpecError, shown

# The API server's own limit is near (etcd's request limit is 1.5 MiB).
FILE_BYTES_MAX = 1024 * 1024


class _Loader(yaml.SafeLoader):
    """Refuses a key twice, and aliases, with which a small file grows without end."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(
                None, None, "aliases (*name) are not allowed; write the value out", mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {shown(key)} stands here twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, Hashable) else None)
        return super().construct_mapping(node, deep)


# A time stays the text that it is, as in Kubernetes; YAML would make a datetime of it.
_Loader.yaml_implicit_resolvers = {
    letter: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
    for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(path: Path) -> Any:
    """Return what the one document in *path* holds.

    Raises:
        SpecError: it is too long, no YAML, or not one document.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    if len(raw) > FILE_BYTES_MAX:
        raise _refused(path, f"is longer than {FILE_BYTES_MAX} bytes; give one LogPipeline")
    try:
        documents = [document for document in yaml.load_all(raw, _Loader) if document is not None]
    except yaml.YAMLError as error:
        raise _refused(path, f"is no valid YAML: {_where(error)}") from error
    except RecursionError:
        raise _refused(path, "is nested too deeply; a LogPipeline is not") from None
    except ValueError as error:
        # An integer of thousands of digits, for one.
        raise _refused(path, f"is no valid YAML: {error}") from error
    if not documents:
        raise _refused(path, "is empty; it must hold one LogPipeline")
    if len(documents) > 1:
        raise _refused(path, f"holds {len(documents)} documents; keep one LogPipeline in a file")
    return documents[0]


def _refused(path: Path, message: str) -> SpecError:
    return SpecError((Mistake("", message),), file=path)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
