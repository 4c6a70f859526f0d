"""The part that all components share: wire contract, specification, NATS and observation. Programs
of users find here what reads the streams; docs/api.md lists it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "ApiError",
    "BadMessage",
    "BadOption",
    "Batch",
    "BlockingReader",
    "ConnectFailed",
    "ConsumeError",
    "ConsumerGone",
    "Counts",
    "Event",
    "EventJoiner",
    "Line",
    "LogPipeline",
    "Message",
    "NatsOptions",
    "NoPipeline",
    "NotSent",
    "OutcomeUnknown",
    "Reader",
    "ReaderArguments",
    "ReaderBusy",
    "SpecError",
    "StateForeign",
    "Stopped",
    "StreamLag",
    "consume",
    "open_blocking_reader",
    "open_reader",
]

if TYPE_CHECKING:
    from logpipeline.consuming.blocking import BlockingReader, open_blocking_reader
    from logpipeline.consuming.events import Event, EventJoiner
    from logpipeline.consuming.message import Batch, Line, Message
    from logpipeline.consuming.opening import ReaderArguments, consume, open_reader
    from logpipeline.consuming.options import (
        BadOption,
        ConsumeError,
        ConsumerGone,
        ReaderBusy,
        StateForeign,
        Stopped,
    )
    from logpipeline.consuming.partition_reader import Counts
    from logpipeline.consuming.reader import Reader
    from logpipeline.lag import StreamLag
    from logpipeline.layout import NoPipeline
    from logpipeline.nats.connection import ConnectFailed, NotSent, OutcomeUnknown
    from logpipeline.nats.jetstream import ApiError
    from logpipeline.nats.options import NatsOptions
    from logpipeline.spec import LogPipeline, SpecError
    from logpipeline.wire import BadMessage
else:
    # Imported at the first use: most importers of this package never read a stream. Hidden from
    # type checkers, to which a module with `__getattr__` has every name.
    _HOMES = {
        "consuming.blocking": ("BlockingReader", "open_blocking_reader"),
        "consuming.events": ("Event", "EventJoiner"),
        "consuming.message": ("Batch", "Line", "Message"),
        "consuming.opening": ("ReaderArguments", "consume", "open_reader"),
        "consuming.options": (
            "BadOption",
            "ConsumeError",
            "ConsumerGone",
            "ReaderBusy",
            "StateForeign",
            "Stopped",
        ),
        "consuming.partition_reader": ("Counts",),
        "consuming.reader": ("Reader",),
        "lag": ("StreamLag",),
        "layout": ("NoPipeline",),
        "nats.connection": ("ConnectFailed", "NotSent", "OutcomeUnknown"),
        "nats.jetstream": ("ApiError",),
        "nats.options": ("NatsOptions",),
        "spec": ("LogPipeline", "SpecError"),
        "wire": ("BadMessage",),
    }

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names:
                found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
