"""An id by which the server knows a message again may be used by somebody else first."""

from __future__ import annotations

from pathlib import Path

from components.shipping import (
    append,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    read_once,
    shipping,
    stored,
    until,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.wire import MESSAGE_ID, parse_headers


async def test_a_batch_whose_id_is_taken_is_sent_under_another_one(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The server drops it and says so: nobody else would miss its lines before the next look."""
    config = config_of(tmp_path, nats_server.url)
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        append(path, lines_of(0, 10))
        await until_stored(js, path, lines_of(0, 10))
        first = (await stored(js))[0]
        known, batch = parse_headers(first.headers)[MESSAGE_ID], batch_of(first)
        more = lines_of(10, 20)
        taken = known.replace(
            f".{batch.start}-{batch.end}", f".{batch.end}-{batch.end + len(more)}"
        )
        assert taken != known
        await js.publish(first.subject, b"somebody else's", {MESSAGE_ID: taken})
        append(path, more)

        async def is_there() -> bool:
            ours = [each for each in await stored(js) if b"Log-Range" in each.headers]
            return b"".join(read_once(ours).values()) == lines_of(0, 20)

        await until(is_there, what="the second batch")
        last = (await stored(js))[-1]

    assert batch_of(last).resend
    assert parse_headers(last.headers)[MESSAGE_ID].startswith(f"{taken}.")
