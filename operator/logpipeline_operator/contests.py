"""How often a field was put right that another manager sets again: two that undo each other's
changes for ever help nobody, and roll pods each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from logpipeline_operator.differences import Changes, Wanted, place, title
from logpipeline_operator.queue import Key

# Put right so often within the time, a field is left as it is for a while, and then tried again.
CORRECTIONS_MAX = 5
WITHIN_S = 600.0
LEFT_FOR_S = 3600.0

Field = tuple[Key, str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """A field of a child that *manager* sets again and again."""

    child: str
    path: str
    manager: str


@dataclass(slots=True)
class Contests:
    """The fields that were put right lately; *clock* is monotonic, in seconds."""

    clock: Callable[[], float] = time.monotonic
    _corrected: dict[Field, list[float]] = field(default_factory=dict)

    def settle(self, key: Key, changes: Changes) -> tuple[Changes, list[Contest]]:
        """Return *changes* to the children of the pipeline *key* without what is only put right in
        vain, and what that is. All that is left counts as put right now.
        """
        self._forget_old()
        apply: list[Wanted] = []
        contests: list[Contest] = []
        for wanted in changes.apply:
            paths = _managers(wanted)
            lost = [path for path in paths if self._is_lost((key, *place(wanted.manifest), path))]
            contests += [
                Contest(child=title(wanted.manifest), path=path, manager=paths[path])
                for path in lost
            ]
            kept = _without(wanted, set(lost))
            if kept is None:
                continue
            for path in set(paths) - set(lost):
                self._note((key, *place(wanted.manifest), path))
            apply.append(kept)
        return replace(changes, apply=tuple(apply)), contests

    def forget(self, key: Key) -> None:
        """Forget a pipeline that is gone."""
        for each in [each for each in self._corrected if each[0] == key]:
            del self._corrected[each]

    def _is_lost(self, each: Field) -> bool:
        times = self._corrected.get(each, [])
        return len(times) >= CORRECTIONS_MAX

    def _note(self, each: Field) -> None:
        self._corrected.setdefault(each, []).append(self.clock())

    def _forget_old(self) -> None:
        now = self.clock()
        for each, times in list(self._corrected.items()):
            is_full = len(times) >= CORRECTIONS_MAX
            recent = [at for at in times if now - at < (LEFT_FOR_S if is_full else WITHIN_S)]
            # A full list counts as a whole: else one would be tried again as each grows old.
            if is_full and len(recent) < len(times):
                recent = []
            if recent:
                self._corrected[each] = recent
            else:
                del self._corrected[each]


def _managers(wanted: Wanted) -> dict[str, str]:
    """Return who set what is put right; what we change ourselves is no contest."""
    if not wanted.is_as_applied:
        return {each.path: each.manager for each in wanted.intrusions}
    drift = {path: wanted.managers.get(path, "another manager") for path in wanted.drift}
    return drift | {each.path: each.manager for each in wanted.intrusions}


def _without(wanted: Wanted, lost: set[str]) -> Wanted | None:
    """Return *wanted* without the paths that are *lost*; None where nothing is left to do."""
    if not lost:
        return wanted
    kept = replace(
        wanted,
        drift=tuple(path for path in wanted.drift if path not in lost),
        intrusions=tuple(each for each in wanted.intrusions if each.path not in lost),
    )
    return kept if kept.drift or kept.intrusions or not wanted.is_as_applied else None
