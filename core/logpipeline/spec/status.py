"""The schema of the resource's status, which the operator writes and nobody else."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

# An operator says at least so often that it looked, and seldom more often: each time is a write.
CHECKED_EVERY_S = 120.0
# A status that was not confirmed for so long says nothing about now, and its operator is gone.
UNCHECKED_AFTER_S = 420.0


def _text(description: str, **limits: Any) -> Schema:
    return {"type": "string", "description": description, **limits}


def _count(description: str, **limits: Any) -> Schema:
    return {"type": "integer", "description": description, "format": "int32", **limits}


def _object(description: str, properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "description": description, "properties": properties, **more}


def _keyed_list(description: str, key: str, items: Schema, **limits: Any) -> Schema:
    return {
        "type": "array",
        "description": description,
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        **limits,
    }


_GENERATION = {"type": "integer", "format": "int64", "minimum": 0}

_CONDITION = _object(
    "One aspect of the pipeline's state.",
    {
        "type": _text("Which aspect, such as Ready or StreamsReady.", maxLength=316),
        "status": _text("Whether it holds.", enum=["True", "False", "Unknown"]),
        "observedGeneration": {
            "description": "The generation that this was seen with.", **_GENERATION,
        },
        "lastTransitionTime": _text("Since when status is what it is.", format="date-time"),
        "reason": _text(
            "Why, in one word for programs.",
            minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
        "message": _text("Why, and what to do, for people.", maxLength=32768),
    },
    required=["type", "status", "lastTransitionTime", "reason", "message"],
)  # fmt: skip

_ASSIGNMENT = _object(
    "A collector and its range of partitions.",
    {
        "name": _text("The collector's pod."),
        "partitions": _text("Its partitions, such as 0-4, or none."),
    },
    required=["name", "partitions"],
)

_COLLECTORS = _object(
    "The collectors.",
    {
        "replicas": _count("How many there are."),
        "readyReplicas": _count("How many of them are ready."),
        "ready": _text("Ready and wanted ones, such as 2/2."),
        "selector": _text("Labels of their pods, for autoscalers."),
        "assignments": _keyed_list(
            "Who owns which partitions.", "name", _ASSIGNMENT, maxItems=1024
        ),
    },
)

_SHIPPERS = _object(
    "The shippers.",
    {
        "desired": _count("How many nodes should have one."),
        "readyPods": _count("How many are ready."),
        "ready": _text("Ready and wanted ones, such as 3/3."),
        "notReadyNodes": _text("Nodes whose shipper is not ready; the first ten."),
        "behind": _count("Nodes whose lines have waited for more than five minutes."),
        "behindNodes": _text("Which these are; the first ten."),
    },
)

_NATS = _object(
    "The nats-server that is run for the pipeline; nothing where yours is used.",
    {"ready": _text("Ready and wanted servers, such as 3/3.")},
)

_LARGE: Schema = {"type": "integer", "format": "int64", "minimum": 0}

_ARCHIVED = _object(
    "A stream, and up to where it is in the table.",
    {
        "name": _text("The stream."),
        "sequence": {"description": "The last message that is in the table.", **_LARGE},
    },
    required=["name", "sequence"],
)

_TABLE = _object(
    "The table; nothing where none is kept. Figures are at most a minute old while lines come.",
    {
        "path": _text("Where it lies."),
        "commit": {"description": "The number of the last commit.", **_LARGE},
        "rows": {"description": "Lines in the table.", **_LARGE},
        "committedAt": _text("When that commit was made.", format="date-time"),
        "lag": _text("About how much is stored and not yet in the table, and since when."),
        "missed": _text(
            "About how much was deleted of full streams before it was in the table, in all."
        ),
        "streams": _keyed_list(
            "Up to where streams are in the table; the first 64.", "name", _ARCHIVED, maxItems=64
        ),
    },
)

STATUS_SCHEMA: Schema = _object(
    "What is.",
    {
        "observedGeneration": {
            "description": "The generation of the spec that this describes.", **_GENERATION,
        },
        "conditions": _keyed_list("What holds and what does not.", "type", _CONDITION),
        "partitions": _count("How many partitions there are; 1 where the spec says 0."),
        "subject": _text("Root of the subjects."),
        "streams": _text("Base of the streams' names."),
        "lag": _text("About how much is stored and not yet in files, and since when."),
        "missing": _text("About how much was sent and is not stored; shippers send it again."),
        "missingBytes": {"description": "The same, in bytes of log files.", **_LARGE},
        "lost": _text("About how much is lost; `kubectl logpipeline losses` lists it."),
        "lostBytes": {"description": "The same, in bytes of log files.", **_LARGE},
        "collectors": _COLLECTORS,
        "shippers": _SHIPPERS,
        "nats": _NATS,
        "table": _TABLE,
        "version": _text("Version of the operator that wrote this."),
        "lastChecked": _text(
            "When an operator last looked; it says so every two minutes. Seven minutes later all "
            "of this may be out of date.",
            format="date-time",
        ),
        "checkedBy": _text("The operator that looked: its namespace and release.", maxLength=512),
    },
)  # fmt: skip
