"""Fields of a LogPipeline that reach beyond its author's rights: one table, from the field to the
field of the class that decides on it. The operator's refusals, the policy of the API server and the
reference are all made from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args

from logpipeline.quantity import format_bytes
from logpipeline.spec.api import ADOPT_ANNOTATION
from logpipeline.spec.classes import DEFAULT_CLASS, LogPipelineClass, LogPipelineClassSpec
from logpipeline.spec.components import PodNamespaces
from logpipeline.spec.declaration import yaml_name
from logpipeline.spec.mistakes import shown
from logpipeline.spec.model import LogPipeline

# As many as a person reads at once.
REFUSALS_MAX = 20
# The name of an entry that has none.
NAMELESS = ""


class How(Enum):
    """The way in which a class limits the values of a field."""

    NAMED = "one of these names"
    # What stands before an @ is a login, and the host comes behind it.
    URL = "one of these URLs"
    BELOW = "one of these folders, or in one"
    # A file's folder is mounted, and that must not be the one above.
    WITHIN = "in one of these folders"
    AT_MOST = "so many at most"
    BYTES = "so many bytes at most"
    FLAG = "may be set where this is true"
    WIDTH = "as wide as this at most"


@dataclass(frozen=True, slots=True)
class Choice:
    """A field *path* below `spec`, and the field of the class's `spec` that decides on it.

    In a path, `[]` stands for each entry of a list, `{}` for each key of a mapping, and a name with
    `?` is looked at as an empty text where an entry lacks it.
    """

    path: str
    field: str
    how: How


def _of_pods(owner: str) -> tuple[Choice, ...]:
    named = {
        "image": "images",
        "imagePullSecrets[].name": "imagePullSecrets",
        "serviceAccountName": "serviceAccounts",
        "env[].name": "env",
        "podLabels{}": "podLabels",
        "podAnnotations{}": "podAnnotations",
        "nodeSelector{}": "nodeLabels",
        "tolerations[].key?": "tolerations",
        "priorityClassName": "priorityClasses",
    }
    return (
        *(Choice(f"{owner}.{path}", field, How.NAMED) for path, field in named.items()),
        Choice(f"{owner}.env[].valueFrom", "envFrom", How.FLAG),
        Choice(f"{owner}.affinity", "affinity", How.FLAG),
    )


CHOICES = (
    *_of_pods("collectors"),
    *_of_pods("shippers"),
    *_of_pods("nats.managed"),
    *_of_pods("table"),
    Choice("shippers.podNamespaces", "podNamespaces", How.WIDTH),
    Choice("shippers.hostFiles[].include[]", "hostFiles", How.WITHIN),
    Choice("shippers.positionsHostPath", "hostPaths", How.BELOW),
    Choice("collectors.persistence.hostPath", "hostPaths", How.BELOW),
    Choice("collectors.directory", "directories", How.BELOW),
    Choice("collectors.persistence.existingClaim", "claims", How.NAMED),
    Choice("table.persistence.existingClaim", "claims", How.NAMED),
    Choice("collectors.persistence.storageClassName", "storageClasses", How.NAMED),
    Choice("nats.managed.storageClassName", "storageClasses", How.NAMED),
    Choice("table.persistence.storageClassName", "storageClasses", How.NAMED),
    Choice("nats.servers[]", "natsServers", How.URL),
    Choice("nats.monitoringUrl", "monitoringUrls", How.URL),
    *(
        Choice(f"nats.{login}.secret.name", "secrets", How.NAMED)
        for login in ("tls", "creds", "nkey", "token", "user")
    ),
    Choice("table.s3.secret.name", "secrets", How.NAMED),
    Choice("subject", "subjects", How.NAMED),
    Choice("consumers[].deliverSubject", "subjects", How.NAMED),
    Choice("stream.name", "streams", How.NAMED),
    Choice("stream.adopt", "adopt", How.FLAG),
    Choice("table.path", "tables", How.NAMED),
    Choice("table.s3.endpoint", "s3Endpoints", How.URL),
    Choice("table.catalog{}", "catalogProperties", How.NAMED),
    Choice("table.catalog.uri", "catalogs", How.URL),
    Choice("table.runner", "runners", How.NAMED),
    Choice("partitions", "limits.partitions", How.AT_MOST),
    Choice("collectors.replicas", "limits.collectors", How.AT_MOST),
    Choice("table.executors.instances", "limits.executors", How.AT_MOST),
    Choice("collectors.persistence.size", "limits.storage", How.BYTES),
    Choice("collectors.persistence.emptyDir.sizeLimit", "limits.storage", How.BYTES),
    Choice("nats.managed.storage", "limits.storage", How.BYTES),
    Choice("table.persistence.size", "limits.storage", How.BYTES),
    Choice("table.persistence.emptyDir.sizeLimit", "limits.storage", How.BYTES),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The *path* of a pipeline whose value its class does not allow, and what that allows."""

    path: str
    value: str
    of_class: str
    field: str
    allowed: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.value} is not allowed by LogPipelineClass {self.of_class}, whose "
            f"spec.{self.field} allows {self.allowed}"
        )


def class_name(pipeline: LogPipeline) -> str:
    """Return the name of the class that *pipeline* is of."""
    return pipeline.spec.class_name or DEFAULT_CLASS


def refusals(pipeline: LogPipeline, of: LogPipelineClass) -> list[Refusal]:
    """Return the values of *pipeline* that its class *of* does not allow."""
    found = list(_of_namespace(pipeline, of))
    for choice in CHOICES:
        limit = allowed_by(of.spec, choice.field)
        for path, value in _values(pipeline.spec, choice.path.split("."), "spec"):
            if not is_allowed(choice.how, value, limit):
                found.append(_refusal(path, value, of.name, choice, limit))
    if pipeline.annotations.get(ADOPT_ANNOTATION) == "true" and not of.spec.adopt:
        path = f"metadata.annotations[{ADOPT_ANNOTATION}]"
        found.append(Refusal(path, '"true"', of.name, "adopt", "no taking over"))
    return found


def allowed_by(of: LogPipelineClassSpec, field: str) -> Any:
    """Return the value of the *field* of a class."""
    value: Any = of
    for name in field.split("."):
        value = _field(value, name)
    return value


def is_allowed(how: How, value: Any, limit: Any) -> bool:
    """Return whether *value* is within the *limit* of a class; None means not set."""
    if value is None:
        return True
    if how is How.FLAG:
        return bool(limit) or not value
    if how in (How.AT_MOST, How.BYTES):
        return bool(value <= limit)
    if how is How.WIDTH:
        widths = get_args(PodNamespaces)
        return widths.index(value) <= widths.index(limit)
    # Free-form parts of a resource may hold anything.
    if not isinstance(value, str):
        return False
    if how is How.NAMED:
        return any(_fits(value, entry) for entry in limit)
    if how is How.URL:
        return any(_fits_url(value, entry) for entry in limit)
    if how is How.BELOW and value in limit:
        return True
    return any(_is_within(value, folder) for folder in limit)


def _of_namespace(pipeline: LogPipeline, of: LogPipelineClass) -> Iterator[Refusal]:
    limit = of.spec.namespaces
    if not is_allowed(How.NAMED, pipeline.namespace, limit):
        value, names = shown(pipeline.namespace), _listed(limit)
        yield Refusal("metadata.namespace", value, of.name, "namespaces", names)


def _fits(name: str, entry: str) -> bool:
    return name.startswith(entry[:-1]) if entry.endswith("*") else name == entry


def _fits_url(url: str, entry: str) -> bool:
    """Return whether *url* is *entry*, or begins as it and names the same host: with an @ behind
    the star, what the entry names would be a login at another host.
    """
    start = entry.removesuffix("*")
    is_any_host = start == "" or start.endswith("://")
    return _fits(url, entry) and (is_any_host or "@" not in url[len(start) :])


def _is_within(path: str, folder: str) -> bool:
    """Return whether *path*, or all that a glob fits, is in *folder*. A `..` leads out of it, also
    behind a wildcard.
    """
    start = folder if folder.endswith("/") else f"{folder}/"
    return "/.." not in path and path.startswith(start)


def _values(value: Any, names: list[str], path: str) -> Iterator[tuple[str, Any]]:
    """Yield what stands below *value* at *names*, each with its path."""
    if not names:
        yield path, value
        return
    if value is None:
        return
    name, rest = names[0], names[1:]
    bare = name.rstrip("[]{}?")
    found, place = _field(value, bare), f"{path}.{bare}"
    if name.endswith("?"):
        yield place, NAMELESS if found is None else found
    elif name.endswith("{}"):
        yield from ((f"{place}[{key}]", key) for key in found or {})
    elif name.endswith("[]"):
        for number, item in enumerate(found or ()):
            yield from _values(item, rest, f"{place}[{number}]")
    else:
        yield from _values(found, rest, place)


def _field(value: Any, name: str) -> Any:
    """Return the field that YAML calls *name*."""
    if isinstance(value, Mapping):
        return value.get(name)
    names = {yaml_name(field): field.name for field in dataclasses.fields(value)}
    return getattr(value, names[name])


def _refusal(path: str, value: Any, of_class: str, choice: Choice, limit: Any) -> Refusal:
    is_size = choice.how is How.BYTES
    said = format_bytes(value) if is_size else shown(value)
    return Refusal(path, said, of_class, choice.field, _allowed_text(choice.how, limit))


def _allowed_text(how: How, limit: Any) -> str:
    if how is How.BYTES:
        return f"{format_bytes(limit)} at most"
    if how is How.AT_MOST:
        return f"{limit} at most"
    if how is How.FLAG:
        return "none"
    if how is How.WIDTH:
        return f"{limit} at most"
    return _listed(limit)


def _listed(entries: tuple[str, ...]) -> str:
    return ", ".join(entries) if entries else "none"
