"""The options of the data source, named as Spark's Kafka source names its own. Everything that is
wrong with them is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from logpipeline.names import Names
from logpipeline.nats.options import NatsOptions
from logpipeline.quantity import QuantityError, parse_bytes
from logpipeline_spark.errors import Refused
from logpipeline_spark.source.places import EARLIEST, LATEST, Place, read_offsets, read_timestamp

T = TypeVar("T")

Format = Literal["lines", "messages"]
FORMATS: tuple[Format, ...] = ("lines", "messages")

# How long a server may be away before reading is given up.
PATIENCE_S = 60
PARTITIONS_MAX = 10_000
TASKS_MAX = 10_000

_FILES = {
    "credsFile": "creds_file",
    "nkeyFile": "nkey_file",
    "tokenFile": "token_file",
    "userFile": "user_file",
    "passwordFile": "password_file",
    "caFile": "ca_file",
    "certFile": "cert_file",
    "keyFile": "key_file",
}
# In the order in which they are explained to users.
NAMES = (
    "servers",
    "stream",
    "partitions",
    "subject",
    "format",
    "includeHeaders",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    *_FILES,
    "tlsFirst",
    "inboxPrefix",
    "jsDomain",
    "patienceSeconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, from where, and as what. *starting* and *ending* are None where not given."""

    nats: NatsOptions
    streams: tuple[str, ...]
    partitions: int
    subject: str
    format: Format = "lines"
    include_headers: bool = False
    starting: Place | None = None
    ending: Place | None = None
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True
    patience_s: int = PATIENCE_S


class _Given:
    """Options by name, and the mistakes found in them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in NAMES}
        self.mistakes = [
            f"option {name!r} is not known: the options are {', '.join(NAMES)}"
            for name in sorted(given)
            # Spark hands the argument of load() over as an option of its own.
            if name.lower() not in known and name.lower() != "path"
        ]
        self._values = {
            known[name.lower()]: value for name, value in given.items() if name.lower() in known
        }

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return parse(text.strip())
        except (ValueError, QuantityError) as error:
            self.mistakes.append(f"option {name!r}: {error}")
            return default

    def needed(self, name: str, hint: str) -> str:
        text = self._values.get(name, "").strip()
        if not text:
            self.mistakes.append(f"option {name!r} is missing: {hint}")
        return text

    def one_of(self, first: T | None, second: T | None, names: str) -> T | None:
        if first is not None and second is not None:
            self.mistakes.append(f"give one of {names}, not both")
        return first if second is None else second


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Return what *given* says; names of options are known whatever their case.

    Raises:
        Refused: something is missing, unknown, or wrong; all of it is named.
    """
    options = _Given(given)
    nats = _nats(options)
    streams, partitions = _streams(options)
    lines: Format = "lines"
    form = options.read("format", _format, lines)
    subject = options.read("subject", str, "")
    if form == "lines" and not subject:
        options.needed("subject", "the root of the subjects, such as logs in logs.p0.web1")
    starting = options.one_of(
        options.read("startingOffsets", lambda text: read_offsets(text, streams), None),
        options.read("startingTimestamp", read_timestamp, None),
        "'startingOffsets' and 'startingTimestamp'",
    )
    ending = options.one_of(
        options.read("endingOffsets", lambda text: read_offsets(text, streams), None),
        options.read("endingTimestamp", read_timestamp, None),
        "'endingOffsets' and 'endingTimestamp'",
    )
    if ending == EARLIEST:
        options.mistakes.append("option 'endingOffsets': 'earliest' would read nothing")
    result = SourceOptions(
        nats=nats,
        streams=streams,
        partitions=partitions,
        subject=subject,
        format=form,
        include_headers=options.read("includeHeaders", _truth, False),
        starting=starting,
        ending=ending,
        max_bytes_per_trigger=options.read("maxBytesPerTrigger", _bytes, None),
        min_partitions=options.read("minPartitions", _count(1, TASKS_MAX), 1),
        fail_on_data_loss=options.read("failOnDataLoss", _truth, True),
        patience_s=options.read("patienceSeconds", _count(1, 86_400), PATIENCE_S),
    )
    if options.mistakes:
        raise Refused("jetstream: " + "; ".join(options.mistakes))
    return result


def starting_of(options: SourceOptions, *, is_stream: bool) -> Place:
    """Return where to begin: as with Kafka, a stream at the latest, a table at the earliest."""
    return options.starting or (LATEST if is_stream else EARLIEST)


def _streams(options: _Given) -> tuple[tuple[str, ...], int]:
    text = options.needed("stream", "the base name of streams, or names separated by commas")
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    count = options.read("partitions", _count(0, PARTITIONS_MAX), None)
    if count is not None and "," not in text and names:
        base = Names(subject="", stream_base=names[0])
        names = tuple(base.stream(number) for number in range(max(count, 1)))
    for name in names:
        if any(letter in name for letter in ".*> \t"):
            options.mistakes.append(f"option 'stream': {name!r} is no name of a stream")
    if len(set(names)) != len(names):
        options.mistakes.append("option 'stream' names a stream twice")
    return names, len(names) if count is None else count


def _nats(options: _Given) -> NatsOptions:
    servers = options.needed("servers", "where NATS is, such as nats://localhost:4222")
    files: dict[str, Any] = {}
    for name, target in _FILES.items():
        path = options.read(name, _file, None)
        if path is not None:
            files[target] = path
    return NatsOptions(
        servers=tuple(server.strip() for server in servers.split(",") if server.strip()),
        name="logpipeline-spark",
        tls_first=options.read("tlsFirst", _truth, False),
        inbox_prefix=options.read("inboxPrefix", str, "_INBOX"),
        js_domain=options.read("jsDomain", str, ""),
        **files,
    )


def _file(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {text!r} on this machine")
    return path


def _format(text: str) -> Format:
    for name in FORMATS:
        if text.lower() == name:
            return name
    raise ValueError(f"{text!r} is neither 'lines' nor 'messages'")


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _bytes(text: str) -> int:
    count = parse_bytes(int(text) if text.isascii() and text.isdigit() else text)
    if count < 1:
        raise ValueError("it must be one byte or more")
    return count


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is no number from {least} to {most}")
        return int(text)

    return read
