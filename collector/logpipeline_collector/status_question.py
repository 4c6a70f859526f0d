"""What a question for the status of collectors may ask for. The empty question, and any that cannot
be read here, asks for the whole status.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from logpipeline import json_text


@dataclass(frozen=True, slots=True)
class LossesAsked:
    """A question for losses of one partition, the newest first, but for so many that the asker
    knows: the partition's owner in *group* alone answers.
    """

    group: str
    partition: int
    known: int

    def encode(self) -> bytes:
        """Return the question as JSON."""
        return json.dumps({"losses": asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> LossesAsked | None:
        """Return the question, None where *data* is another one."""
        try:
            asked = json_text.parse(data)["losses"]
            return cls(str(asked["group"]), int(asked["partition"]), max(0, int(asked["known"])))
        except (ValueError, TypeError, KeyError, OverflowError):
            return None
