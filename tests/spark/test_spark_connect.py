"""The data source serves clients of Spark Connect, who have neither Java nor the package's classes
in the server.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ports import free_port
from tables.streams import Streams, running_streams
from waiting import eventually

pytestmark = pytest.mark.spark43

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CLIENT = Path(__file__).parents[1] / "support" / "tables" / "connect_client.py"
READY_WITHIN_S = 240.0
ENDS_WITHIN_S = 120.0


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a server of Spark Connect, whose Python has the package; yield its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "scratch"),
    }
    words = [f"--conf={name}={value}" for name, value in settings.items()]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("spark-submit")),
                "--master=local[2]",
                f"--class={SERVER}",
                *words,
                "spark-internal",
            ],
            stdout=log,
            stderr=log,
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            # In our session: the kernel may give another one an equal share of the processors, and
            # Spark has no patience.
            process_group=0,
        )
    try:
        asyncio.run(eventually(lambda: answers(port), within_s=READY_WITHIN_S, what="it listens"))
        yield f"sc://127.0.0.1:{port}"
    finally:
        # Its JVM, and the Python workers of that.
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(ENDS_WITHIN_S)


def answers(port: int) -> bool:
    """Tell whether somebody listens at *port*."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Streams]:
    """A server of this test alone."""
    with running_streams(tmp_path / "nats") as streams:
        yield streams


def test_a_client_reads_streams_as_a_table_and_as_a_stream(
    streams: Streams, tmp_path: Path
) -> None:
    """Each line once, in batches of `foreachBatch` too; a mistake is a sentence."""
    streams.send("node-b", "one", "two")
    streams.send("node-a", "three")
    with connect_server(tmp_path) as address:
        done = subprocess.run(
            [sys.executable, CLIENT, address, json.dumps(streams.options()), tmp_path / "client"],
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stderr + (tmp_path / "server.log").read_text()
    found = json.loads(done.stdout)
    rows = [
        ["LOGS_0", 1, 0, "node-b", "one"],
        ["LOGS_0", 1, 1, "node-b", "two"],
        ["LOGS_1", 1, 0, "node-a", "three"],
    ]
    assert found["table"] == rows
    assert found["stream"] == rows
    assert found["mistake"].startswith("jetstream: option 'strem' is not known: did you ")
