"""The defaults that users rely on: changing one means changing it here, on purpose."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from logpipeline.spec.components import FilePatterns, LocalShipper, Match, Persistence, PodSelector
from logpipeline.spec.declaration import rule_of, yaml_name
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.parse import plain
from logpipeline.spec.streams import ConsumerTemplate, Placement, StreamOverride

DEFAULTS: dict[str, Any] = {
    "managementState": "Managed",
    "cluster": "",
    "partitions": 10,
    "repartitionPolicy": "Forbid",
    "deletionPolicy": "Retain",
    "nats.managed.replicas": 1,
    "nats.managed.storage": "10Gi",
    "nats.managed.syncInterval": "always",
    "nats.jsDomain": "",
    "nats.tlsFirst": False,
    "stream.layout": "partitions",
    "stream.storage": "file",
    "stream.retention": "limits",
    "stream.discard": "new",
    "stream.replicas": 1,
    "stream.maxAge": "1d",
    "stream.duplicateWindow": "2m",
    "stream.maxMsgs": -1,
    "stream.maxMsgSize": -1,
    "stream.maxMsgsPerSubject": 0,
    "stream.maxConsumers": -1,
    "stream.foreignPartitions": 32,
    "stream.compression": "none",
    "stream.denyDelete": False,
    "stream.denyPurge": False,
    "stream.allowDirect": True,
    "stream.trim": "collected",
    "stream.trimAbove": 50,
    "stream.skipTablesAbove": 80,
    "stream.adopt": False,
    "stream.external": False,
    "batch.maxBytes": "512Ki",
    "batch.linger": "20ms",
    "batch.compression": "zstd",
    "batch.ack": "batch",
    "batch.message": "batch",
    "redaction.mask": "*",
    "collectors.replicas": 1,
    "collectors.group": "main",
    "collectors.deliverPolicy": "all",
    "collectors.onEmptyVolume": "Reread",
    "collectors.directory": "/data",
    "collectors.path": "{host}/{namespace}/{pod}/{container}.log",
    "collectors.filePath": "{host}/_files/{path}",
    "collectors.output": "raw",
    "collectors.rotation.maxBytes": "256Mi",
    "collectors.rotation.maxAge": "1d",
    "collectors.compression": "zstd",
    "collectors.retention.maxAge": "1w",
    "collectors.retention.minFreePercent": 5,
    "collectors.maxOpenFiles": 4096,
    "collectors.commit.interval": "200ms",
    "collectors.commit.maxBytes": "16Mi",
    "collectors.takeoverAfter": "10s",
    "collectors.snapshotEvery": "5s",
    "collectors.updateStrategy.type": "RollingUpdate",
    "collectors.drainTimeoutSeconds": 300,
    "collectors.podDisruptionBudget.enabled": True,
    "collectors.podDisruptionBudget.unhealthyPodEvictionPolicy": "AlwaysAllow",
    "shippers.enabled": True,
    "shippers.mode": "daemonset",
    "shippers.containerLogs": True,
    "shippers.readFrom": "beginning",
    "shippers.maxInFlightBytes": "16Mi",
    "shippers.deletedFiles.maxBytes": "256Mi",
    "shippers.deletedFiles.maxAge": "1h",
    "shippers.maxOpenFiles": 1024,
    "shippers.rescan": "2s",
    "table.format": "delta",
    "table.zone": "UTC",
    "table.runner": "embedded",
    "table.trigger": "continuous",
    "table.maxBytesPerBatch": "256Mi",
    "table.rollups.enabled": True,
    "table.compaction.enabled": True,
    "table.compaction.targetBytes": "256Mi",
    "table.compaction.words": False,
    "table.driverMemory": "1Gi",
    "table.executors.instances": 0,
    "table.executors.cores": 1,
    "table.executors.memory": "1Gi",
    "networkPolicy.enabled": False,
    "local.nats.inboxPrefix": "_INBOX",
}

OF_A_CONSUMER: dict[str, Any] = {
    "name": "a",
    "type": "pull",
    "durable": True,
    "deliverPolicy": "all",
    "ackPolicy": "explicit",
    "maxDeliver": -1,
    "replayPolicy": "instant",
    "headersOnly": False,
    "memStorage": False,
    "flowControl": False,
}

OF_A_VOLUME: dict[str, Any] = {
    "size": "10Gi",
    "retentionPolicy.whenDeleted": "Retain",
    "retentionPolicy.whenScaled": "Retain",
}


def given(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value, as in YAML, of each field that is not empty."""
    for field in dataclasses.fields(value):
        item, name = getattr(value, field.name), path + yaml_name(field)
        if dataclasses.is_dataclass(item):
            yield from given(item, f"{name}.")
        elif item is not None and item not in ((), {}):
            yield name, plain(item, rule_of(field))


def test_the_defaults_of_a_pipeline() -> None:
    """What holds where a resource says nothing; whatever is not listed here is empty."""
    assert dict(given(LogPipelineSpec())) == DEFAULTS


def test_the_defaults_of_a_consumer() -> None:
    """What holds of an extra consumer that has only a name."""
    assert dict(given(ConsumerTemplate(name="a"))) == OF_A_CONSUMER


def test_the_defaults_of_a_volume() -> None:
    """What holds where `persistence: {}` asks for a volume."""
    assert dict(given(Persistence())) == OF_A_VOLUME


def test_other_entries_of_lists_say_nothing_by_themselves() -> None:
    """Only what is written in them holds."""
    for entry in (Match(), PodSelector(), Placement()):
        assert dict(given(entry)) in ({}, {"cluster": ""})
    assert dict(given(StreamOverride(partitions="0"))) == {"partitions": "0"}
    assert dict(given(FilePatterns(include=("/a",)))) == {"include": ["/a"]}
    assert dict(given(LocalShipper(name="a"))) == {"name": "a"}
