"""What a simulated world came to: each line that was written, and where it went."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from logpipeline_demo.outputs import ChainStream, find_chains
from simulated.world import World

_LINE = re.compile(rb"(\S+) (\S+) (\d+) x*$")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many lines were written, lost, archived more than once, and out of order."""

    written: int
    lost: int
    twice: int
    late: int

    @property
    def is_clean(self) -> bool:
        """Return whether all is as it should be."""
        return bool(self.written) and not (self.lost or self.twice or self.late)


def outcome(world: World) -> Outcome:
    """Compare what the collectors' files hold with what was written."""
    found = _archived(world)
    lost = twice = late = 0
    for writer in world.writers:
        numbers = found.get((writer.host, writer.path.stem), [])
        times = Counter(numbers)
        lost += sum(number not in times for number in range(writer.lines))
        twice += sum(count - 1 for count in times.values())
        late += sum(one > other for one, other in pairwise(numbers))
    return Outcome(sum(writer.lines for writer in world.writers), lost, twice, late)


def _archived(world: World) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for chain in find_chains(world.outputs()):
        for line in _lines(ChainStream(chain)):
            match = _LINE.search(line)
            assert match is not None, f"{chain.place} holds {line!r}"
            host, log, number = match.groups()
            found.setdefault((host.decode(), log.decode()), []).append(int(number))
    return found


def _lines(stream: ChainStream) -> list[bytes]:
    while stream.fill(0):
        pass
    assert not stream.damaged, stream.damaged
    return stream.buffer.splitlines()
