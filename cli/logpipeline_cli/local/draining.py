"""When a pipeline that is about to stop has nothing left to do, or nothing that would come soon."""

from __future__ import annotations

import asyncio
from typing import Any

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import JetStream
from logpipeline_cli.answers import ask

# Writers may go on for ever, and the server be away; the next start goes on where this one ended.
SHIP_DEADLINE_S = 5.0
# A line that was written just before the first look is known to its shipper by the second.
LOOKS_LEVEL = 2
# A backlog that stands still so long waits for its line's end, or for somebody's repair.
LOOKS_STILL = 4
RETRY_S = 0.1


async def await_shipped(js: JetStream, control_root: str, *, shippers: int) -> bool:
    """Return whether so many *shippers* have sent what stands in their files; False where that
    does not come to an end.
    """
    looks: list[tuple[int, object]] = []
    try:
        async with asyncio.timeout(SHIP_DEADLINE_S):
            while not _is_over(looks):
                try:
                    answers = (await ask(js.connection, control_root))["shipper"]
                except (NotSent, OutcomeUnknown):
                    answers = []
                    await asyncio.sleep(RETRY_S)
                if len(answers) >= shippers:
                    looks.append(_look(answers))
    except TimeoutError:
        return False
    return looks[-1][0] == 0


def _look(answers: list[dict[str, Any]]) -> tuple[int, object]:
    """Return what is left to send, and what changes when something is sent."""
    positions = [
        (source.get("host"), source.get("source"), source.get("position"))
        for answer in answers
        for source in answer.get("sources", [])
    ]
    left = sum(answer.get("backlog_bytes", 0) for answer in answers)
    return left, sorted(positions, key=repr)


def _is_over(looks: list[tuple[int, object]]) -> bool:
    level = looks[-LOOKS_LEVEL:]
    still = looks[-LOOKS_STILL:]
    return (len(level) == LOOKS_LEVEL and not any(left for left, _ in level)) or (
        len(still) == LOOKS_STILL and all(look == still[0] for look in still)
    )
