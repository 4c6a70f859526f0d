"""What a failed publish means for the bytes in it. A pure decision: a line's fate hangs on it.

Only what is wrong with the *message* may ever put it aside. What is wrong with the stream, the
server or the network is waited for: the file is the buffer.
"""

from __future__ import annotations

from enum import Enum

from logpipeline.nats.connection import NoResponders, NotSent, OutcomeUnknown, TooLarge
from logpipeline.nats.jetstream import STILL_IN_PROCESS, ApiError

# Error codes of nats-server (its errors.json): what is wrong with the message itself. Every other
# refusal speaks of a stream, an account or a server, and ends when somebody raises a limit, trims,
# unseals or repairs: a list of those would lack the next release's.
MESSAGE_EXCEEDS_STREAM_MAXIMUM = 10054
HEADERS_EXCEED_MAXIMUM = 10097


class Verdict(Enum):
    """What to do next with the bytes of a publish that was not acknowledged."""

    UNKNOWN = "unknown"  # they may be stored: the same again, under the same id, marked
    NOT_SENT = "not-sent"  # they are certainly not stored: the same again
    NO_STREAM = "no-stream"  # nobody listens: wait until somebody does
    FULL = "full"  # nothing is taken now, for whatever reason: wait until it is
    SOON = "soon"  # the server is busy with the same id: again in a moment
    SPLIT = "split"  # too large as one message
    REFUSED = "refused"  # never as it is: quarantine


def judge(error: Exception) -> Verdict:
    """Return what *error* says about the bytes that were to be sent."""
    match error:
        case TooLarge():
            return Verdict.SPLIT
        case NoResponders():
            return Verdict.NO_STREAM
        case NotSent():
            return Verdict.NOT_SENT
        case OutcomeUnknown():
            return Verdict.UNKNOWN
        case ApiError():
            return _judge_refusal(error)
    raise error


def _judge_refusal(error: ApiError) -> Verdict:
    match error.err_code:
        case code if code == STILL_IN_PROCESS:
            return Verdict.SOON
        case code if code == MESSAGE_EXCEEDS_STREAM_MAXIMUM:
            return Verdict.SPLIT
        case code if code == HEADERS_EXCEED_MAXIMUM:
            return Verdict.REFUSED
    return Verdict.FULL


def advice(verdict: Verdict, subject: str, error: Exception) -> str:
    """Return what a human is told while *verdict* lasts."""
    match verdict:
        case Verdict.NO_STREAM:
            return f"no stream listens on {subject}; run `logpipeline apply`"
        case Verdict.FULL:
            return f"the stream takes nothing on {subject}: {error}; lines wait in their files"
        case Verdict.UNKNOWN:
            return f"no acknowledgement on {subject}: {error}; the same batch is sent again"
    return f"waiting to send on {subject}: {error}"
