"""A resource says everything that a shipper needs, and its defaults are those of the shipper."""

from __future__ import annotations

from pathlib import Path

from logpipeline.nats.connection import NatsOptions
from logpipeline.spec import parse
from logpipeline_shipper.config import BatchOptions, ShipperConfig, from_pipeline
from logpipeline_shipper.files.listing import HostSources
from logpipeline_shipper.files.source_filter import Rules

AUDIT = {"include": ["/srv/audit.log"], "ack": "none"}


def test_a_resource_becomes_a_configuration(tmp_path: Path) -> None:
    """Names, hosts and files come from the resource, limits from its defaults."""
    pipeline = parse(
        {
            "apiVersion": "logpipeline.dev/v1alpha1",
            "kind": "LogPipeline",
            "metadata": {"name": "demo"},
            "spec": {
                "subject": "logs",
                "partitions": 4,
                "batch": {"ack": "each", "message": "line"},
                "local": {
                    "shippers": [
                        {
                            "name": "machine",
                            "host": "web1",
                            "files": [
                                {"include": ["/var/log/**"], "exclude": ["/var/log/wtmp"]},
                                AUDIT,
                            ],
                        },
                        {"name": "busy", "hostsBelow": "/data/busy"},
                    ]
                },
            },
        }
    )
    nats = NatsOptions()

    machine = from_pipeline(pipeline, shipper="machine", data=tmp_path, nats=nats)
    busy = from_pipeline(pipeline, shipper="busy", data=tmp_path, nats=nats, host="other")

    assert machine == ShipperConfig(
        nats=nats,
        subject_root="logs",
        control_root="_lp.logs",
        partitions=4,
        hosts=(
            HostSources(host="web1", include=("/var/log/**",), exclude=("/var/log/wtmp",)),
            HostSources(host="web1", include=("/srv/audit.log",), ack="none"),
        ),
        data=tmp_path,
        rules=Rules(namespace="default", pipeline="demo", ack="each"),
        batch=BatchOptions(message="line"),
    )
    assert busy.hosts == (HostSources(host="other", hosts_below=Path("/data/busy")),)
