"""Makes the status and the events of a pipeline from its facts, without any request."""

from logpipeline_operator.status.events import Event, events_of, news_of
from logpipeline_operator.status.facts import (
    Facts,
    Finding,
    JetStreamFacts,
    Mode,
    News,
    Part,
    Sync,
    Workload,
)
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.summary import is_changed, is_settled, status_of

__all__ = [
    "Event",
    "Facts",
    "Finding",
    "JetStreamFacts",
    "Mode",
    "News",
    "Part",
    "Reason",
    "Sync",
    "Workload",
    "events_of",
    "is_changed",
    "is_settled",
    "news_of",
    "status_of",
]
