"""Logins that a callout refused: their causes, the counts that it answers with, and the report of
them, which is rare and covers all callouts of a pipeline.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from logpipeline import json_text
from logpipeline_operator.queue import Key

ANSWER_BYTES_MAX = 8 * 1024
ADDRESS_CHARS_MAX = 45  # of an IPv6 address with an IPv4 one in it
# A client may try again and again; a person wants to read of it this often.
REPORT_EVERY_S = 600.0


class Cause(Enum):
    """Why a login was refused: the value is for programs, `words` for people."""

    NO_TOKEN = "no-token"
    UNKNOWN_USER = "unknown-user"
    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown-key"
    OTHER_AUDIENCE = "other-audience"
    NOT_VALID_NOW = "not-valid-now"
    OTHER_ACCOUNT = "other-account"
    NO_NODE = "no-node"

    @property
    def words(self) -> str:
        """The end of the sentence "a login …"."""
        return _WORDS[self]


_WORDS = {
    Cause.NO_TOKEN: "without a token",
    Cause.UNKNOWN_USER: "with a user that the server does not know",
    Cause.MALFORMED: "with something else than a service account's token",
    Cause.UNKNOWN_KEY: "with a token that this cluster did not sign",
    Cause.OTHER_AUDIENCE: "with a token for another audience",
    Cause.NOT_VALID_NOW: "with a token that has expired, or is not valid yet",
    Cause.OTHER_ACCOUNT: "with the token of another service account",
    Cause.NO_NODE: "with a token that does not name a node",
}


@dataclass(slots=True)
class Refusals:
    """How often the callout *name* refused clients since it began, by cause, and the address of the
    last one of each cause.
    """

    name: str
    counts: Counter[Cause] = field(default_factory=Counter)
    addresses: dict[Cause, str] = field(default_factory=dict)

    def note(self, cause: Cause, address: str) -> None:
        """Count one more refused client."""
        self.counts[cause] += 1
        self.addresses[cause] = address[:ADDRESS_CHARS_MAX]

    def encode(self) -> bytes:
        """Return the answer to a question for refusals."""
        refused = {
            cause.value: [count, self.addresses.get(cause, "")]
            for cause, count in self.counts.items()
        }
        return json.dumps({"callout": self.name, "refused": refused}).encode()

    @staticmethod
    def decode(data: bytes) -> Refusals | None:
        """Return the refusals in the answer *data*; None if it is not such an answer."""
        if len(data) > ANSWER_BYTES_MAX:
            return None
        known = {cause.value: cause for cause in Cause}
        try:
            answer = json_text.parse(data)
            found = Refusals(str(answer["callout"]))
            for word, (count, address) in answer["refused"].items():
                # A callout of another version has other causes.
                if (cause := known.get(word)) is not None:
                    found.counts[cause] = int(count)
                    found.addresses[cause] = str(address)[:ADDRESS_CHARS_MAX]
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        return found


@dataclass(slots=True)
class RefusedLogins:
    """The logins of each pipeline that were reported already; *clock* is monotonic, in seconds."""

    clock: Callable[[], float] = time.monotonic
    _counted: dict[Key, dict[tuple[str, Cause], int]] = field(default_factory=dict)
    _reported_s: dict[Key, float] = field(default_factory=dict)

    def news(self, key: Key, found: Iterable[Refusals]) -> str:
        """Return the logins of the pipeline *key* that were refused since the last report; empty if
        there are none, or if the last report is not old enough.
        """
        now = {(each.name, cause): count for each in found for cause, count in each.counts.items()}
        addresses = {cause: text for each in found for cause, text in each.addresses.items()}
        if key not in self._counted:
            # Refusals from before this operator began are old, and were reported.
            self._counted[key] = now
            return ""
        before = self._counted[key]
        grown: Counter[Cause] = Counter()
        for (name, cause), count in now.items():
            grown[cause] += max(0, count - before.get((name, cause), 0))
        if not +grown or self.clock() - self._reported_s.get(key, -REPORT_EVERY_S) < REPORT_EVERY_S:
            return ""
        self._counted[key], self._reported_s[key] = now, self.clock()
        return "; ".join(
            f"{count} {cause.words} (last from {addresses.get(cause) or 'an unknown address'})"
            for cause, count in (+grown).most_common()
        )

    def forget(self, key: Key) -> None:
        """Forget a pipeline that is gone."""
        self._counted.pop(key, None)
        self._reported_s.pop(key, None)
