"""The version of a pipeline that its class allowed last deletes no more than the resource does."""

from __future__ import annotations

from typing import Any

import pytest

from logpipeline.spec import LogPipeline, parse
from logpipeline_operator.classes import sparing


def pipeline(spec: dict[str, Any]) -> LogPipeline:
    """The pipeline with *spec*."""
    return parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "a"},
            "spec": spec,
        }
    )


def deleting(word: str) -> dict[str, Any]:
    """A spec in which *word* is what becomes of all that is kept."""
    volume = {"size": "20Gi", "retentionPolicy": {"whenDeleted": word, "whenScaled": word}}
    return {
        "deletionPolicy": word,
        "collectors": {"persistence": volume},
        "table": {"persistence": {"size": "20Gi", "retentionPolicy": {"whenDeleted": word}}},
    }


def test_what_either_of_them_retains_stays() -> None:
    """Streams, files and tables; all else is as it was allowed."""
    delete, retain = pipeline(deleting("Delete")), pipeline(deleting("Retain"))

    assert sparing(delete, retain) == retain
    assert sparing(retain, delete) == retain


def test_what_both_delete_is_deleted() -> None:
    """Also where they differ in something else."""
    former = pipeline(deleting("Delete"))

    assert sparing(former, pipeline({**deleting("Delete"), "partitions": 64})) == former


@pytest.mark.parametrize("part", ["collectors", "table"])
def test_a_volume_that_the_resource_names_no_more_stays(part: str) -> None:
    """By default a claim is retained."""
    former, spec = pipeline(deleting("Delete")), deleting("Delete")
    del spec[part]
    found: Any = getattr(sparing(former, pipeline(spec)).spec, part).persistence

    assert found.retention_policy.when_deleted == "Retain"
    assert found.size == 20 * 2**30
