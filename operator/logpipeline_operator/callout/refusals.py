"""Why clients were refused, counted by reason: what a callout says of itself when it is asked."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

ANSWER_BYTES_MAX = 8 * 1024
ADDRESS_CHARS_MAX = 45  # of an IPv6 address with an IPv4 one in it


class Cause(Enum):
    """Why a login proves nothing, for programs, and in words for people."""

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
        """What the client showed."""
        return _WORDS[self]


_WORDS = {
    Cause.NO_TOKEN: "without a token",
    Cause.UNKNOWN_USER: "with a user that the server does not know",
    Cause.MALFORMED: "with what is no token of a service account",
    Cause.UNKNOWN_KEY: "with a token that this cluster did not sign",
    Cause.OTHER_AUDIENCE: "with a token that was made for somebody else",
    Cause.NOT_VALID_NOW: "with a token that has ended, or has not begun",
    Cause.OTHER_ACCOUNT: "with the token of another service account",
    Cause.NO_NODE: "with a token that names no node",
}


@dataclass(slots=True)
class Refusals:
    """How often clients were refused since the callout *name* began, by cause, and where the last
    one of each came from.
    """

    name: str
    counts: Counter[Cause] = field(default_factory=Counter)
    addresses: dict[Cause, str] = field(default_factory=dict)

    def note(self, cause: Cause, address: str) -> None:
        """Count one more."""
        self.counts[cause] += 1
        self.addresses[cause] = address[:ADDRESS_CHARS_MAX]

    def encode(self) -> bytes:
        """Return the answer to who asks."""
        refused = {
            cause.value: [count, self.addresses.get(cause, "")]
            for cause, count in self.counts.items()
        }
        return json.dumps({"callout": self.name, "refused": refused}).encode()

    @staticmethod
    def decode(data: bytes) -> Refusals | None:
        """Return the answer that *data* is; None for anything else."""
        if len(data) > ANSWER_BYTES_MAX:
            return None
        known = {cause.value: cause for cause in Cause}
        try:
            answer = json.loads(data)
            found = Refusals(str(answer["callout"]))
            for word, (count, address) in answer["refused"].items():
                # One of another version knows other causes.
                if (cause := known.get(word)) is not None:
                    found.counts[cause] = int(count)
                    found.addresses[cause] = str(address)[:ADDRESS_CHARS_MAX]
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        return found
