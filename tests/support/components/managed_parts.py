"""The components of a pipeline with a managed server, in this process: a collector, and the shipper
of a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from components.managed_server import Managed
from logpipeline_collector import service as collector_service
from logpipeline_collector.config import from_pipeline as collector_config
from logpipeline_operator.children import config, credentials
from logpipeline_shipper import service as shipper_service
from logpipeline_shipper.config import from_pipeline as shipper_config

MEMBER = "prod-collector-0"


@asynccontextmanager
async def running(at: Managed, logs: Path, files: Path) -> AsyncIterator[None]:
    """Run a collector, which writes to *files*, and a shipper, which reads *logs*."""
    stop = asyncio.Event()
    collector, shipper = config.for_collector(at.pipeline), config.for_shipper(at.pipeline)
    reads = replace(
        shipper,
        spec=replace(
            shipper.spec,
            local=replace(
                shipper.spec.local,
                shippers=(replace(shipper.spec.local.shippers[0], pods=str(logs)),),
            ),
        ),
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            collector_service.run(
                collector_config(
                    collector,
                    member=MEMBER,
                    data=files,
                    nats=at.options(credentials.COLLECTOR, collector),
                ),
                stop,
            )
        )
        tasks.create_task(
            shipper_service.run(
                shipper_config(
                    reads,
                    shipper=config.NODE_SHIPPER,
                    data=files / "positions",
                    nats=at.options(credentials.SHIPPER, shipper),
                    host="node-a",
                ),
                stop,
            )
        )
        try:
            yield
        finally:
            stop.set()
