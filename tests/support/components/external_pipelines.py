"""Pipelines of several names on one server, for tests of streams that another one owns."""

from __future__ import annotations

from typing import Any

from logpipeline.spec import LogPipeline, parse


def pipeline(name: str, spec: dict[str, Any]) -> LogPipeline:
    """The pipeline default/*name* with *spec*."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
