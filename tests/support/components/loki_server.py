"""A real Loki in one process, on free ports, in a folder of its own. It can be killed, and started
again.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import go_programs
from components.real_server import RealServer
from components.sink_servers import Forwarding, text_of
from ports import free_port

START_WITHIN_S = 120.0
ANSWERS_WITHIN_S = 60.0
ENTRIES_MAX = 5000
# From before what tests write to after it, in seconds since 1970.
BEGIN_S, END_S = 1_700_000_000, 2_000_000_000
CONFIG = """\
auth_enabled: false
analytics: {{reporting_enabled: false}}
server:
  http_listen_address: 127.0.0.1
  http_listen_port: {port}
  grpc_listen_address: 127.0.0.1
  grpc_listen_port: {grpc}
  grpc_server_max_recv_msg_size: 104857600
  grpc_server_max_send_msg_size: 104857600
  log_level: warn
common:
  instance_addr: 127.0.0.1
  path_prefix: {folder}/data
  replication_factor: 1
  ring: {{kvstore: {{store: inmemory}}}}
  storage:
    filesystem: {{chunks_directory: {folder}/data/chunks, rules_directory: {folder}/data/rules}}
schema_config:
  configs:
    - from: 2020-10-24
      store: tsdb
      object_store: filesystem
      schema: v13
      index: {{prefix: index_, period: 24h}}
# What tests write may be of another day, and is looked for in memory as well.
querier: {{query_ingesters_within: 0s}}
ingester: {{query_store_max_look_back_period: 87600h}}
query_range: {{cache_results: false}}
limits_config:
  max_query_length: 0s
  max_query_lookback: 0s
  max_entries_limit_per_query: {entries}
  creation_grace_period: 87600h
  split_queries_by_interval: 0s
{limits}
"""
# What the contract asks of it is large, fast and old.
WIDE = """\
  reject_old_samples: false
  max_line_size: 0
  ingestion_rate_mb: 1000
  ingestion_burst_size_mb: 1000
  per_stream_rate_limit: 1GB
  per_stream_rate_limit_burst: 1GB
"""


class Loki(RealServer):
    """A Loki in *folder* with *limits* beside its own, which keeps what it holds over a `kill` and
    a `start`.
    """

    def __init__(self, folder: Path, *, limits: str = WIDE) -> None:
        folder.mkdir(parents=True)
        super().__init__(folder)
        self._program = go_programs.built("loki")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        config = CONFIG.format(
            port=port, grpc=free_port(), folder=folder, entries=ENTRIES_MAX, limits=limits
        )
        (folder / "loki.yaml").write_text(config)

    def start(self) -> None:
        """Return once it takes lines."""
        command = [self._program, f"-config.file={self.folder / 'loki.yaml'}"]
        self.launch(command, lambda: self._get("/ready"), until=OSError, within_s=START_WITHIN_S)

    def texts(self, selector: str = '{host=~".+"}') -> list[bytes]:
        """Return the lines of *selector*. Loki knows an order within a stream only: those of a
        stream follow each other, and one with fewer labels comes first.
        """
        query = {
            "query": selector,
            "start": BEGIN_S,
            "end": END_S,
            "limit": ENTRIES_MAX,
            "direction": "forward",
        }
        answer = json.loads(self._get(f"/loki/api/v1/query_range?{urlencode(query)}"))
        streams = sorted(answer["data"]["result"], key=lambda found: _of_stream(found["stream"]))
        return [
            text_of({"message": text, **_metadata(more)})
            for found in streams
            for _, text, *more in found["values"]
        ]

    def _get(self, path: str) -> bytes:
        request = urllib.request.Request(self.url + path)
        # Structured metadata comes apart from the labels of a stream.
        request.add_header("X-Loki-Response-Encoding-Flags", "categorize-labels")
        with urllib.request.urlopen(request, timeout=ANSWERS_WITHIN_S) as answer:
            data: bytes = answer.read()
        return data


def _of_stream(labels: dict[str, str]) -> tuple[int, list[tuple[str, str]]]:
    return len(labels), sorted(labels.items())


def _metadata(more: list[dict[str, Any]]) -> dict[str, str]:
    return dict(more[0].get("structuredMetadata", {})) if more else {}


@dataclass
class LokiForwarding(Forwarding):
    """Faults on the way to *loki*."""

    loki: Loki = field(kw_only=True)

    def texts(self) -> list[bytes]:
        """Return the lines that the real one holds."""
        return self.loki.texts()


@contextmanager
def loki_server(folder: Path, *, limits: str = WIDE) -> Iterator[Loki]:
    """Run a Loki in *folder* for as long as the block lasts."""
    loki = Loki(folder, limits=limits)
    try:
        loki.start()
        yield loki
    finally:
        loki.kill()
