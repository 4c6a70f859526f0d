"""`logpipeline sink s3` with a real server: an object for each batch, once, also after kills."""

from __future__ import annotations

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zstandard

from components.consuming import Streams, in_order
from components.sink_batches import batch_of, message, plain_batch
from components.sink_servers import text_of
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks import s3
from logpipeline_cli.sinks.destination import Misdirected, TryAgain, created_of
from ports import free_port
from tables.s3 import BUCKET, S3Server
from waiting import eventually

pytest_plugins = ["tables.s3_fixtures"]

POINTS = ("sink.written", "consume.processed", "consume.saved")
ROUNDS = 6
SEED = 11


def words(server: S3Server, prefix: str, bucket: str = BUCKET) -> tuple[str, ...]:
    """Return the options that say where."""
    access, secret = (str(server.folder / name) for name in ("access", "secret"))
    where = ("--url", f"s3://{bucket}/{prefix}", "--endpoint", server.endpoint)
    keys = ("--access-key-file", access, "--secret-key-file", secret)
    return (*where, "--region", "us-east-1", *keys)


def objects(server: S3Server, prefix: str) -> dict[str, bytes]:
    """Return what is below *prefix*, in the order of names, unpacked."""
    storage = server.storage(prefix)
    found = {}
    for path in sorted(stored.path for stored in storage.list("")):
        data = storage.read(path)
        assert data is not None
        if path.endswith(".zst"):
            data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        found[path] = data
    return found


def texts(server: S3Server, prefix: str) -> list[str]:
    """Return all lines below *prefix*."""
    lines = b"".join(objects(server, prefix).values()).splitlines()
    return [text_of(json.loads(line)).decode() for line in lines]


def destination(server: S3Server, prefix: str, *more: str) -> s3.S3Destination:
    """Return the destination that a user would name."""
    args = build_parser().parse_args(["sink", "s3", "copy", *words(server, prefix), *more])
    return s3.destination_of(args)


async def more_objects(server: S3Server, prefix: str, count: int) -> None:
    """Return once so many more are there."""
    wanted = len(objects(server, prefix)) + count
    await eventually(lambda: len(objects(server, prefix)) >= wanted)


async def test_a_batch_is_one_object_however_often_it_is_written(server: S3Server) -> None:
    """Under the name of its stream and its sequences; a stream that was made anew has another."""
    batch = plain_batch(b"one", b"\xff two", first=7)
    for _ in range(3):
        made = destination(server, "once")
        await made.open()
        await made.write(batch)
    await destination(server, "once").write(
        plain_batch(b"anew", b"anew", first=7, created="2026-11-25T11:00:00Z")
    )
    found = objects(server, "once")

    name = f"LOGS_7/{created_of(batch)}/{7:020d}-{8:020d}.ndjson.zst"
    assert [text_of(json.loads(line)) for line in found[name].splitlines()] == [b"one", b"\xff two"]
    assert len(found) == 2


async def test_raw_lines_are_those_that_programs_wrote(server: S3Server) -> None:
    """Byte for byte, and readable without a program where they are not packed."""
    made = destination(server, "raw", "-o", "raw", "--compression", "none")
    await made.write(batch_of([message(1, b"one\n\n\xff two\n"), message(2, b"three\n")]))

    ((name, data),) = objects(server, "raw").items()
    assert name.endswith("-00000000000000000002.log")
    assert data == b"one\n\n\xff two\nthree\n"


@pytest.mark.long
async def test_a_sink_that_is_killed_after_a_put_stores_each_line_once(
    streams: Streams, server: S3Server
) -> None:
    """At each place between the put and the acknowledgement, and at any other moment."""
    dice = random.Random(SEED)
    command = ("sink", "s3", "copy", *words(server, "killed"), "--batch", "5")
    for number in range(ROUNDS):
        await streams.write(10, lines=2)
        point = f"{POINTS[number % len(POINTS)]}:{dice.randrange(1, 5)}"
        await streams.command(*command, point=point).ends(-9)
    for _ in range(ROUNDS):
        await streams.write(10, lines=2)
        sink = streams.command(*command)
        await more_objects(server, "killed", dice.randrange(1, 4))
        sink.kill()
    await streams.command(*command, "--until-caught-up").ends(0)
    assert in_order(texts(server, "killed"))
    assert sorted(texts(server, "killed")) == sorted(streams.written)


async def test_a_bucket_that_is_not_there_ends_it_at_once(server: S3Server) -> None:
    """With its name; a mistyped one is not made by the first write."""
    args = ["sink", "s3", "copy", *words(server, "x", bucket="mistyped")]
    made = s3.destination_of(build_parser().parse_args(args))
    with pytest.raises(Misdirected, match="no bucket mistyped"):
        await made.open()


async def test_a_server_that_is_away_is_waited_for(server: S3Server) -> None:
    """It is no mistake of a person's; the command opens it again later."""
    args = build_parser().parse_args(["sink", "s3", "copy", *words(server, "x")])
    args.endpoint = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(TryAgain, match="check that"):
        await s3.destination_of(args).open()


def test_an_address_that_is_no_bucket_is_refused() -> None:
    """With what to give."""
    with pytest.raises(UsageError, match="give a bucket and a prefix"):
        s3.destination_of(build_parser().parse_args(["sink", "s3", "copy", "--url", "/tmp"]))


async def test_a_login_that_is_not_valid_any_more_blames_no_batch(
    server: S3Server, tmp_path: Path
) -> None:
    """It ends the sink at a write, as at the start."""
    wrong = tmp_path / "secret"
    wrong.write_text("another")
    args = build_parser().parse_args(["sink", "s3", "copy", *words(server, "revoked")])
    args.secret_key_file = str(wrong)
    with pytest.raises(Misdirected, match="refuses access"):
        await s3.destination_of(args).write(plain_batch(b"one"))


class _Bucketless(BaseHTTPRequestHandler):
    """A stand-in for S3 whose bucket was deleted: the real server here makes one for any name."""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"<Error><Code>NoSuchBucket</Code></Error>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


async def test_a_bucket_that_was_deleted_meanwhile_is_named(server: S3Server) -> None:
    """It is no batch's fault either."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Bucketless) as bucketless:
        thread = threading.Thread(target=bucketless.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        args = build_parser().parse_args(["sink", "s3", "copy", *words(server, "x")])
        args.endpoint = f"http://127.0.0.1:{bucketless.server_address[1]}"
        try:
            with pytest.raises(Misdirected, match="There is no bucket"):
                await s3.destination_of(args).write(plain_batch(b"one"))
        finally:
            bucketless.shutdown()
            thread.join()
