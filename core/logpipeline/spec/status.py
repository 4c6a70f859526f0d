"""The schema of the resource's status, which the operator writes and nobody else."""

from __future__ import annotations

from typing import Any

_COUNT: dict[str, Any] = {"type": "integer", "format": "int32"}
_TEXT: dict[str, Any] = {"type": "string"}

_CONDITION: dict[str, Any] = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {"type": "string", "maxLength": 32768},
    },
}

_ASSIGNMENT: dict[str, Any] = {
    "type": "object",
    "required": ["name", "partitions"],
    "properties": {"name": _TEXT, "partitions": _TEXT},
}

STATUS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "What is.",
    "properties": {
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "partitions": _COUNT,
        "subject": _TEXT,
        "streams": _TEXT,
        "lag": _TEXT,
        "collectors": {
            "type": "object",
            "properties": {
                "replicas": _COUNT,
                "readyReplicas": _COUNT,
                "ready": _TEXT,
                "selector": _TEXT,
                "assignments": {
                    "type": "array",
                    "maxItems": 1024,
                    "items": _ASSIGNMENT,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
            },
        },
        "shippers": {
            "type": "object",
            "properties": {"desired": _COUNT, "readyPods": _COUNT, "ready": _TEXT},
        },
        "version": _TEXT,
    },
}
