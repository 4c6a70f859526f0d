"""What is dead complains of nothing: `status` knows which parts ought to answer."""

from __future__ import annotations

import os
from pathlib import Path

from logpipeline.lag import PartitionState
from logpipeline.layout import SERVER, Component, Layout, RunRecord
from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import parse
from logpipeline.target import Target
from logpipeline_cli.silence import Answers, silent

PARTITIONS = [
    PartitionState(partition=number, stream="s", is_there=True, owner=owner, released=is_released)
    for number, (owner, is_released) in enumerate(
        [("collector-0", False), ("collector-0", False), ("collector-1", True), ("", False)]
    )
]
ALL: Answers = {
    "collector": [{"member": "collector-0", "group": "main"}],
    "shipper": [{"name": "logpipeline shipper web"}],
}
NOBODY: Answers = {"collector": [], "shipper": []}


def target(*components: Component) -> Target:
    """A pipeline, which runs here if it has *components*."""
    pipeline = parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "a", "namespace": "b"},
            "spec": {},
        }
    )
    run = RunRecord("a", "b", os.getpid(), "", components=list(components))
    return Target(
        pipeline, Layout(Path("/data")), NatsOptions(servers=("x",)), run if components else None
    )


def test_an_owner_that_does_not_answer_is_named_with_its_partitions() -> None:
    """One that gave up its partition need not be there."""
    of_others: Answers = {"collector": [{"member": "collector-0", "group": "audit"}], "shipper": []}

    assert silent(target(), PARTITIONS, ALL) == []
    for answers in (NOBODY, of_others):
        assert silent(target(), PARTITIONS, answers) == [
            "collector-0, which owns partitions 0, 1, does not answer: see its log"
        ]


def test_each_part_that_up_keeps_running_ought_to_be_there() -> None:
    """With or without partitions, and the table's job by its process."""
    names = ("collector-0", "collector-1", "shipper-web")
    parts = [Component(name, os.getpid(), "") for name in (*names, SERVER, "table")]
    dead = [*parts[:-1], Component("table", 0, "")]

    assert silent(target(*parts), PARTITIONS, ALL) == [
        "collector-1 does not run, or does not answer: see /data/components/collector-1.log"
    ]
    assert silent(target(*dead), PARTITIONS, NOBODY) == [
        *(
            f"{name} does not run, or does not answer: see /data/components/{name}.log"
            for name in names
        ),
        "table does not run: see /data/components/table.log",
    ]


def test_an_answer_that_cannot_be_read_is_named() -> None:
    """Its component is there, and nothing is known of it."""
    answers = {"shipper": [], "collector": [], "unreadable": [{"name": "node-a"}]}
    assert "node-a gives an answer that cannot be read: is it of this version?" in silent(
        target(), [], answers
    )
