"""The numbers that the chart's alerts and dashboard ask for are those that components serve."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from components.shipping import config_of, jetstream, make_stream, shipping
from logpipeline.embedded import EmbeddedServer
from logpipeline_collector.metrics import CollectorMetrics
from logpipeline_operator.callout.service import CalloutMetrics
from logpipeline_operator.metrics import OperatorMetrics
from waiting import eventually

FILES = Path(__file__).resolve().parents[2] / "charts" / "logpipeline" / "files"
NUMBER = re.compile(r"\b(?:logpipeline|process)_[a-z_]+\b")


def asked() -> set[str]:
    """The names in every expression of alerts, panels and the dashboard's variables."""
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    expressions = [rule["expr"] for rule in yaml.safe_load((FILES / "alerts.yaml").read_text())]
    for panel in dashboard["panels"]:
        expressions += [target["expr"] for target in panel.get("targets", [])]
    variables = dashboard["templating"]["list"]
    expressions += [each["definition"] for each in variables if "definition" in each]
    return {name for expression in expressions for name in NUMBER.findall(expression)}


def offered(page: str) -> set[str]:
    """The names of the numbers on a page for Prometheus."""
    found: set[str] = set()
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found.add(name)
            if kind == "histogram":
                found |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return found


async def test_chart_asks_for_numbers_that_there_are(
    nats_server: EmbeddedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A metric that was renamed would leave an alert silent, and a panel empty."""
    caplog.set_level("INFO")

    def ports() -> list[int]:
        return [vars(record)["port"] for record in caplog.records if "port" in vars(record)]

    def read(port: int) -> str:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            return str(answer.read().decode())

    async with jetstream(nats_server) as js:
        await make_stream(js)
        async with shipping(config_of(tmp_path, nats_server.url, http_port=0)):
            shipper = await asyncio.to_thread(read, (await eventually(ports))[0])
    pages = [shipper, OperatorMetrics().exposition().decode()]
    pages.append(CollectorMetrics().metrics.exposition().decode())
    pages.append(CalloutMetrics().metrics.exposition().decode())

    assert len(asked()) > 30
    assert asked() - {name for page in pages for name in offered(page)} == set()
