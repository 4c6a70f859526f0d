"""The options of the data source, with the names of Spark's Kafka source. All mistakes in them are
reported at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from logpipeline.nats.options import NatsOptions
from logpipeline.quantity import QuantityError, parse_bytes, parse_duration
from logpipeline.subjects import Names, names_of
from logpipeline_spark.errors import Refused
from logpipeline_spark.source.offsets import (
    EARLIEST,
    LATEST,
    Place,
    read_offsets,
    read_timestamp,
    read_timestamps,
)

T = TypeVar("T")

Format = Literal["lines", "messages"]
FORMATS: tuple[Format, ...] = ("lines", "messages")

# A server may be away for so long before reading is given up.
PATIENCE_S = 60
# A refused login is repeated for this long only: a login that was just changed may take a moment to
# reach the server.
LOGIN_PATIENCE_S = 3
# As with Kafka: a batch waits so long for minOffsetsPerTrigger.
TRIGGER_DELAY_MAX_S = 15 * 60.0
NAMESPACE = "default"
PARTITIONS_MAX = 10_000
TASKS_MAX = 10_000
OFFSETS_MAX = 2**53

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
# In the order of the documentation.
NAMES = (
    "servers",
    "pipeline",
    "stream",
    "subscribePattern",
    "partitions",
    "subject",
    "format",
    "includeHeaders",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "failOnDataLoss",
    *_FILES,
    "tlsFirst",
    "inboxPrefix",
    "jsDomain",
    "patienceSeconds",
)
# Options of Spark's Kafka source that users may write from habit, and what to write instead.
_KAFKAS = {
    "kafka.bootstrap.servers": "write 'servers'",
    "subscribe": "write 'stream'",
    "assign": "write 'stream', and the sequences as 'startingOffsets'",
    "groupidprefix": "there are no groups: the checkpoint identifies a query",
    "kafka.group.id": "there are no groups: the checkpoint identifies a query",
    "startingoffsetsbytimestampstrategy": "a time later than all messages means the end",
    "maxrecordsperpartition": "write 'minPartitions'",
}
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Which streams to read, from which server, and in which form. *starting* and *ending* are None
    if they are not given.

    Without *streams*, the server's streams are read that are numbered from *base* on, or whose
    names *pattern* matches. *login_patience_s* is how long a refused login is repeated, None for as
    long as a server may be away.
    """

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
    base: str = ""
    pattern: str = ""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = TRIGGER_DELAY_MAX_S
    login_patience_s: float | None = None

    @property
    def is_fixed(self) -> bool:
        """Whether the options name each stream, so that none is added later."""
        return bool(self.streams)


@dataclass(frozen=True, slots=True)
class _Selected:
    """The selected streams: by their names, their base, or a pattern."""

    streams: tuple[str, ...] = ()
    partitions: int = 0
    base: str = ""
    pattern: str = ""


class _Given:
    """Options by name, and the mistakes found in them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in NAMES}
        self.mistakes = [
            f"option {name!r} is not known: {_instead_of(name.lower())}"
            for name in sorted(given)
            # Spark passes the argument of load() as an option.
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

    def one_of(self, names: tuple[str, ...]) -> str | None:
        """Return which of *names* is given, the first of several."""
        found = [name for name in names if self._values.get(name, "").strip()]
        if len(found) > 1:
            self.mistakes.append(f"set only one of {_quoted(found)}")
        return found[0] if found else None


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Return the options in *given*; their names are not case-sensitive.

    Raises:
        Refused: options are missing, unknown, or wrong; the sentence names all of them.
    """
    options = _Given(given)
    nats = _nats(options)
    selected = _selected(options)
    lines: Format = "lines"
    ending = _place(options, "ending", selected.streams)
    if ending == EARLIEST:
        options.mistakes.append("option 'endingOffsets': 'earliest' would read nothing")
    result = SourceOptions(
        nats=nats,
        streams=selected.streams,
        partitions=selected.partitions,
        base=selected.base,
        pattern=selected.pattern,
        subject=options.read("subject", _subject, ""),
        format=options.read("format", _format, lines),
        include_headers=options.read("includeHeaders", _truth, False),
        starting=_place(options, "starting", selected.streams),
        ending=ending,
        max_bytes_per_trigger=options.read("maxBytesPerTrigger", _bytes, None),
        max_offsets_per_trigger=options.read("maxOffsetsPerTrigger", _count(1, OFFSETS_MAX), None),
        min_offsets_per_trigger=options.read("minOffsetsPerTrigger", _count(1, OFFSETS_MAX), None),
        max_trigger_delay_s=options.read("maxTriggerDelay", _seconds, TRIGGER_DELAY_MAX_S),
        min_partitions=options.read("minPartitions", _count(1, TASKS_MAX), 1),
        fail_on_data_loss=options.read("failOnDataLoss", _truth, True),
        patience_s=options.read("patienceSeconds", _count(1, 86_400), PATIENCE_S),
        login_patience_s=LOGIN_PATIENCE_S,
    )
    least, most = result.min_offsets_per_trigger, result.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        options.mistakes.append("'minOffsetsPerTrigger' is more than 'maxOffsetsPerTrigger'")
    if options.mistakes:
        raise Refused("jetstream: " + "; ".join(options.mistakes))
    return result


def starting_of(options: SourceOptions, *, is_stream: bool) -> Place:
    """Return where to begin: as with Kafka, a streaming query at the latest, a batch query at the
    earliest.
    """
    return options.starting or (LATEST if is_stream else EARLIEST)


def _place(options: _Given, which: str, streams: tuple[str, ...]) -> Place | None:
    readers: dict[str, Callable[[str], Place]] = {
        f"{which}Offsets": lambda text: read_offsets(text, streams),
        f"{which}OffsetsByTimestamp": lambda text: read_timestamps(text, streams),
        f"{which}Timestamp": read_timestamp,
    }
    name = options.one_of(tuple(readers))
    return None if name is None else options.read(name, readers[name], None)


def _selected(options: _Given) -> _Selected:
    kind = options.one_of(("pipeline", "stream", "subscribePattern"))
    if kind is None:
        options.needed(
            "stream",
            "the base name of streams, or names separated by commas; or set 'pipeline', a "
            "LogPipeline as namespace/name, or 'subscribePattern'",
        )
    count = options.read("partitions", _count(0, PARTITIONS_MAX), None)
    if kind == "subscribePattern":
        return _Selected(pattern=options.read(kind, _pattern, ""))
    if kind == "pipeline":
        base = options.read(kind, _base_of, "")
        return _Selected(base=base) if count is None else _numbered(base, count)
    return _named(options, options.read("stream", str, ""), count)


def _named(options: _Given, text: str, count: int | None) -> _Selected:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if any(letter in name for letter in ".*> \t"):
            options.mistakes.append(f"option 'stream': {name!r} is not a name of a stream")
    if len(set(names)) != len(names):
        options.mistakes.append("option 'stream' names a stream twice")
    if count is not None and "," not in text and names:
        return _numbered(names[0], count)
    return _Selected(names, len(names) if count is None else count)


def _numbered(base: str, count: int) -> _Selected:
    names = Names(subject="", stream_base=base)
    return _Selected(tuple(names.stream(number) for number in range(max(count, 1))), count)


def _base_of(pipeline: str) -> str:
    """Return the base of the names of a LogPipeline's streams, if it does not set another one."""
    namespace, _, name = pipeline.rpartition("/")
    namespace = namespace or NAMESPACE
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(namespace) or "." in namespace:
        raise ValueError(f"{pipeline!r} is not a LogPipeline: write namespace/name, or name")
    return names_of(namespace, name, subject=None, stream=None).stream_base


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _instead_of(name: str) -> str:
    if instead := _KAFKAS.get(name):
        return instead
    if name.startswith("kafka."):
        return "it is an option of Kafka's client"
    known = {known.lower(): known for known in NAMES}
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {known[close[0]]!r}?" if close else f"the options are {', '.join(NAMES)}"


def _quoted(names: list[str]) -> str:
    return f"{', '.join(map(repr, names[:-1]))} and {names[-1]!r}"


def _nats(options: _Given) -> NatsOptions:
    servers = options.needed("servers", "the addresses of NATS, such as nats://localhost:4222")
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


def login_of(nats: NatsOptions) -> dict[str, str]:
    """Return the options with the addresses of *nats*'s servers and the login."""
    options = {"servers": ",".join(nats.servers)}
    for name, field in _FILES.items():
        if (path := getattr(nats, field)) is not None:
            options[name] = str(path)
    if nats.tls_first:
        options["tlsFirst"] = "true"
    if nats.inbox_prefix != NatsOptions().inbox_prefix:
        options["inboxPrefix"] = nats.inbox_prefix
    if nats.js_domain:
        options["jsDomain"] = nats.js_domain
    return options


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


def _seconds(text: str) -> float:
    """Return a time span in seconds; a bare number is milliseconds, as for Kafka's source."""
    is_number = text.isascii() and text.isdigit()
    return parse_duration(f"{text}ms" if is_number else text) / 1e9


def _subject(text: str) -> str:
    if any(letter in text for letter in "*> \t"):
        raise ValueError(f"{text!r} is not a root of subjects, such as logs in logs.p0.web1")
    return text


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return read
