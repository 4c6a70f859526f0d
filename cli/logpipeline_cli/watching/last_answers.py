"""The last answers of components, also of those that do not answer any more."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from logpipeline_cli.watching.series import FORGET_S

Status = Mapping[str, Any]
# An answer may come late once; after so long a component counts as silent.
SILENT_S = 5.0


class LastAnswer(NamedTuple):
    """What a component answered last, and for how long it has not answered since."""

    status: Status
    age_s: float

    @property
    def is_silent(self) -> bool:
        """Whether the component counts as silent."""
        return self.age_s > SILENT_S

    @property
    def silent_s(self) -> float:
        """For how long it has been silent; 0.0 where it is not."""
        return self.age_s if self.is_silent else 0.0


class LastAnswers:
    """The last answers of the components of one kind."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[float, Status]] = {}

    def take(self, answers: Iterable[tuple[Hashable, Status]], at_s: float) -> list[LastAnswer]:
        """Take the answers of one moment by their keys, and return all that count, by key."""
        for key, status in answers:
            self._last[key] = at_s, status
        self._last = {
            key: found for key, found in self._last.items() if at_s - found[0] <= FORGET_S
        }
        ordered = sorted(self._last.items(), key=lambda item: str(item[0]))
        return [LastAnswer(status, at_s - when_s) for _, (when_s, status) in ordered]
