"""Backlogs of shippers: a question to all of them, which only those that are behind answer.

A thousand nodes that are well cost one message that each of them gets, and none that they send.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from logpipeline import json_text

# A host whose lines have waited for so long is behind; a burst is over by then.
BEHIND_S = 300.0
# Of one answer; a shipper for more hosts names those that are furthest behind.
HOSTS_NAMED_MAX = 100
PROBLEM_CHARS_MAX = 400
# Twice as much as one of that many hosts has, whose names are as long as they may be.
ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class ShipperBacklog:
    """The answer of one shipper: its *problem* in its own words, and the *hosts* whose lines wait,
    each with bytes and seconds.
    """

    name: str
    problem: str
    hosts: Mapping[str, tuple[int, float]]

    def encode(self) -> bytes:
        """Return the answer as it is sent."""
        first = sorted(self.hosts.items(), key=lambda host: -host[1][1])[:HOSTS_NAMED_MAX]
        answer = {
            "name": self.name,
            "problem": self.problem[:PROBLEM_CHARS_MAX],
            "hosts": {host: [size, round(seconds)] for host, (size, seconds) in first},
        }
        return json.dumps({"behind": answer}, separators=(",", ":")).encode()


def question(behind_s: float = BEHIND_S) -> bytes:
    """Return the question to those that are behind by more than *behind_s* seconds."""
    return json.dumps({"behind_s": behind_s}).encode()


def asked(data: bytes) -> float | None:
    """Return the seconds that a question is about; None for any other message."""
    try:
        seconds = json_text.parse(data)["behind_s"]
    except (ValueError, KeyError, TypeError):
        return None
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return float(seconds) if is_number else None


def decode(data: bytes) -> ShipperBacklog | None:
    """Return the answer that *data* is; None for anything else, such as that of an older shipper,
    which answers any question with all that it knows.
    """
    if len(data) > ANSWER_BYTES_MAX:
        return None
    try:
        answer = json_text.parse(data)["behind"]
        hosts = {
            str(host): (int(size), float(seconds))
            for host, (size, seconds) in list(answer["hosts"].items())[:HOSTS_NAMED_MAX]
        }
        problem = str(answer["problem"])[:PROBLEM_CHARS_MAX]
        return ShipperBacklog(str(answer["name"]), problem, hosts)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def backlog_of(
    name: str, problem: str | None, backlogs: Mapping[str, tuple[int, float]], behind_s: float
) -> ShipperBacklog | None:
    """Return what the shipper *name* answers; None where it has nothing to report."""
    hosts: dict[str, tuple[int, float]] = {
        host: (size, seconds)
        for host, (size, seconds) in backlogs.items()
        if size and seconds > behind_s
    }
    return ShipperBacklog(name, problem or "", hosts) if hosts or problem else None
