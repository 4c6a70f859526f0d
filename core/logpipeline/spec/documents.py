"""Documents of YAML or JSON: their content, and where in the text each of their fields stands."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from logpipeline.spec.mistakes import Mistake, SpecError, below, shown

# The API server's own limit is near (etcd's request limit is 1.5 MiB).
FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a text; both numbers count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """The content of one document, and the *places* of its fields by their paths."""

    content: Any
    places: dict[str, Place]

    def place(self, path: str) -> Place:
        """Return where the field *path* stands, or the nearest one around it that is there."""
        while path and path not in self.places:
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return self.places.get(path, Place(1, 1))


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
    """Return the content of the one document in *path*.

    Raises:
        SpecError: it is too long, not YAML, or not one document.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    try:
        documents = documents_of(raw)
    except SpecError as error:
        raise SpecError(error.mistakes, file=path) from error.__cause__
    if not documents:
        raise _refused(path, "is empty; it must hold one LogPipeline")
    if len(documents) > 1:
        raise _refused(path, f"holds {len(documents)} documents; keep one LogPipeline in a file")
    return documents[0].content


def documents_of(raw: bytes) -> list[Document]:
    """Return the documents of the text *raw* that hold something.

    Raises:
        SpecError: it is too long, or neither YAML nor JSON.
    """
    if len(raw) > FILE_BYTES_MAX:
        raise _refused(None, f"is longer than {FILE_BYTES_MAX} bytes; give one LogPipeline")
    if raw.lstrip()[:1] == b"{":
        # JSON may be indented by tabs, which YAML does not take; within its texts there are none.
        raw = raw.replace(b"\t", b" ")
    found: list[Document] = []
    try:
        loader = _Loader(raw)
        try:
            while loader.check_node():
                node = loader.get_node()
                content = loader.construct_document(node)
                if content is not None:
                    found.append(Document(content, _places(node)))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _refused(None, f"is not valid YAML: {_where(error)}") from error
    except RecursionError:
        raise _refused(None, "is nested too deeply; a LogPipeline is not") from None
    except ValueError as error:
        # An integer of thousands of digits, for one.
        raise _refused(None, f"is not valid YAML: {error}") from error
    return found


def _places(root: Any) -> dict[str, Place]:
    places: dict[str, Place] = {"": _place(root)}
    rest: list[tuple[str, Any]] = [("", root)]
    while rest:
        path, node = rest.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = below(path, getattr(key, "value", ""))
                places[inner] = _place(key)
                rest.append((inner, value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                inner = f"{path}[{index}]"
                places[inner] = _place(value)
                rest.append((inner, value))
    return places


def _place(node: Any) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)


def _refused(path: Path | None, message: str) -> SpecError:
    return SpecError((Mistake("", message),), file=path)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
