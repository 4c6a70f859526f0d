"""How full the dead-letter stream is, and of which consumers it keeps no more that they gave up."""

from __future__ import annotations

from typing import Any

from logpipeline.nats.jetstream import STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.subjects import ADVISORIES


async def room_of(js: JetStream, stream: str) -> dict[str, Any]:
    """Return the room in the dead-letter *stream*, as it is printed in JSON: what is there, what
    there may be at most (0: no limit), and the consumers that gave up as many messages as it notes:
    each further one drops the oldest.
    """
    try:
        info = await js.call(f"STREAM.INFO.{stream}", {"subjects_filter": ADVISORIES})
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        return _room({}, {})
    return _room(info["config"], info["state"])


def _room(config: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    most = config.get("max_msgs_per_subject", -1)
    words: dict[str, int] = state.get("subjects") or {}
    return {
        "messages": state.get("messages", 0),
        "messagesMax": max(config.get("max_msgs", 0), 0),
        "bytes": state.get("bytes", 0),
        "bytesMax": max(config.get("max_bytes", 0), 0),
        "givenUpFull": [
            {"stream": subject.split(".")[-2], "consumer": subject.split(".")[-1]}
            for subject, count in sorted(words.items())
            if 0 < most <= count
        ],
    }
