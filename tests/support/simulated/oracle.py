"""What a simulated world came to: each line that was written, and where it went."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from logpipeline_demo.outputs import ChainStream, find_chains
from simulated.world import World

_LINE = re.compile(rb"(\S+) (\S+) (\d+) x*$")
EXPLAINED_MAX = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many lines were written, lost, archived more than once, and out of order. *may_be_late*:
    the server lost what it had acknowledged, so that some were sent again behind others.
    """

    written: int
    lost: int
    twice: int
    late: int
    may_be_late: bool
    explained: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Return whether all is as it should be."""
        is_in_order = self.may_be_late or not self.late
        return bool(self.written) and not (self.lost or self.twice) and is_in_order

    def counts(self) -> dict[str, int]:
        """Return the numbers by their names."""
        names = ("written", "lost", "twice", "late")
        return {name: getattr(self, name) for name in names}


def outcome(world: World) -> Outcome:
    """Compare what the collectors' files hold with what was written."""
    found = _archived(world)
    lost = twice = late = 0
    explained: list[str] = []
    for writer in world.writers:
        place = f"{writer.host}/{writer.path.name}"
        numbers = found.get((writer.host, writer.path.stem), [])
        times = Counter(numbers)
        missing = [number for number in range(writer.lines) if number not in times]
        doubled = [number for number, count in times.items() if count > 1]
        lost += len(missing)
        twice += sum(count - 1 for count in times.values())
        late += sum(one > other for one, other in pairwise(numbers))
        explained += [f"{place}: lines {span} are lost" for span in _spans(missing)]
        explained += [f"{place}: lines {span} are there twice" for span in _spans(doubled)]
    return Outcome(
        sum(writer.lines for writer in world.writers),
        lost,
        twice,
        late,
        may_be_late=world.has_lost_tails,
        explained=tuple(explained[:EXPLAINED_MAX]),
    )


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


def _spans(numbers: Iterable[int]) -> Iterator[str]:
    """Yield the runs of neighbours in *numbers*."""
    first = last = None
    for number in sorted(numbers):
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            yield f"{first} to {last}"
        first = last = number
    if first is not None:
        yield f"{first} to {last}"
