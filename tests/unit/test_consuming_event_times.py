"""A line says when what it tells of happened, in Python and in the command's JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline import BadOption, Batch, Event, EventJoiner, LogPipeline, Message
from logpipeline.consuming.options import ConsumeOptions, checked, event_times_of, time_rules
from logpipeline.event_times import NONE, EventTimes
from logpipeline.nats.pull import Delivered
from logpipeline.nats.session import RawMessage
from logpipeline.spec import LogPipelineSpec
from logpipeline.spec.table import LineField, ParseRule, Table, TimeFormat, TimeRule
from logpipeline.subjects import Subjects
from logpipeline.timestamps import EARLIEST_US, UnknownZone, find
from logpipeline.wire import Batch as Headers
from logpipeline.wire import encode_headers
from logpipeline_cli.commands.consume import render, render_events
from logpipeline_cli.errors import EXIT_USAGE
from logpipeline_cli.main import main

SUBJECTS = Subjects("logs", 10)
STORED_NS = 1_795_255_200_000_000_000  # 2026-11-21T10:00:00Z
NEAR_US = STORED_NS // 1000
T = b"2026-11-21T09:59:59.5Z"
RUNTIMES = datetime(2026, 11, 21, 9, 59, 59, 500_000, UTC)
OWN = datetime(2026, 11, 20, 8, 0, 0, 250_000, UTC)
AUTO = EventTimes(rules=(TimeRule(),))


def message(data: bytes, times: EventTimes = NONE, format: Any = "plain") -> Message:
    """A message as a reader hands it out that finds event times by *times*."""
    batch = Headers(
        source="app.log",
        generation="0123456789abcdef",
        start=0,
        end=len(data),
        lines=data.count(b"\n"),
        format=format,
    )
    fields = encode_headers(batch, "id").items()
    block = b"NATS/1.0\r\n" + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields) + b"\r\n"
    delivered = Delivered(RawMessage(b"logs.p7.node-a", b"", block, data), 17, 1, STORED_NS, 0)
    return Message(SUBJECTS, "LOGS_7", 7, delivered, times)


def batch_of(*messages: Message) -> Batch:
    """A batch of *messages*."""
    return Batch(messages, created="", may_repeat=False, tries=0)


def pipeline(**table: Any) -> LogPipeline:
    """A resource whose table is *table*."""
    return LogPipeline(name="test", spec=LogPipelineSpec(table=Table(**table)))


def test_line_without_a_rule_has_the_runtimes_time() -> None:
    """Which a plain file's line does not have."""
    text = b"2026-11-20 08:00:00.25 hot\n"

    (container,) = message(T + b" stdout F " + text, format="cri").lines
    (plain,) = message(text).lines
    assert (container.event_time, container.time) == (RUNTIMES, RUNTIMES)
    assert (plain.event_time, plain.time) == (None, None)


def test_line_names_its_own_time() -> None:
    """Beside that of the runtime and of the server, which stay what they are."""
    lines = T + b" stdout F 2026-11-20 08:00:00.25 hot\n" + T + b" stdout F none\n"

    named, other = message(lines, AUTO, format="cri").lines
    assert (named.event_time, named.time) == (OWN, RUNTIMES)
    assert other.event_time == RUNTIMES
    assert named.time_stored == datetime(2026, 11, 21, 10, tzinfo=UTC)


def test_event_has_the_time_of_its_first_line() -> None:
    """Whatever its other lines name."""
    lines = (b"2026-11-20 08:00:00.25 ERROR failed\n", b"java.io.Error: 2026-11-21 09:00:00\n",
             b"\tat a.B.c(B.java:1)\n")  # fmt: skip

    (event,) = EventJoiner("java").events(batch_of(message(b"".join(lines), AUTO)))
    assert (len(event.lines), event.event_time) == (3, OWN)
    assert isinstance(event, Event)


def test_json_of_the_command_has_the_event_time() -> None:
    """In UTC, to the microsecond; null where there is none. All else is as it was."""
    lines = message(b"2026-11-20 09:00:00.25 +0100 hot\nnone\n\nlast", AUTO)
    container = message(T + b" stdout P a\n" + T + b" stdout F b\n", AUTO, format="cri")

    found = [json.loads(each) for each in render(batch_of(lines, container), "json").splitlines()]
    assert [each["event_time"] for each in found] == [
        "2026-11-20T08:00:00.250000Z", None, None, None, "2026-11-21T09:59:59.500000Z",
    ]  # fmt: skip
    assert [each["message"] for each in found][1:] == ["none", "", "last", "ab"]
    assert found[0]["time"] == "2026-11-21T10:00:00.000000000Z"
    assert found[4]["time"] == T.decode()


def test_json_of_an_event_has_the_event_time() -> None:
    """Of its first line."""
    data = b"2026-11-20 08:00:00.25 ERROR failed\njava.io.IOException: no\n\tat a.B.c(B.java:1)\n"

    (found,) = render_events(batch_of(message(data, AUTO)), EventJoiner("java")).splitlines()
    assert json.loads(found)["event_time"] == "2026-11-20T08:00:00.250000Z"
    assert json.loads(found)["lines"] == 3


def test_rules_are_those_of_the_resource_unless_others_are_given() -> None:
    """Each alone."""
    made = pipeline(time=(TimeRule(format="klog"),), zone="Europe/Berlin")
    asked = ConsumeOptions(name="a", event_time=time_rules(["iso8601", "%d.%m.%Y %H"]))

    assert event_times_of(made, ConsumeOptions(name="a")) == EventTimes.of(made.spec.table)
    assert event_times_of(pipeline(), ConsumeOptions(name="a")) == NONE
    found = event_times_of(made, asked)
    assert found.rules == (TimeRule(format="iso8601"), TimeRule(pattern="%d.%m.%Y %H"))
    assert found.zone == "Europe/Berlin"
    assert event_times_of(made, ConsumeOptions(name="a", zone="+01:00")).zone == "+01:00"
    assert event_times_of(made, ConsumeOptions(name="a", event_time=())).rules == ()


def test_every_format_of_a_table_is_known() -> None:
    """By its name there."""
    for format in get_args(TimeFormat):
        assert time_rules(format) == (TimeRule(format=format),)
        assert find(b"nothing", NEAR_US, format=format, zone="UTC") is None


@pytest.mark.parametrize("zone", ["Mars/Base", "+1", "", "+24:00", "../UTC", "+01:00\n"])
def test_zone_that_is_not_known_is_refused(zone: str) -> None:
    """With what to give."""
    with pytest.raises(BadOption, match="give a time zone such as Europe/Berlin"):
        checked(ConsumeOptions(name="a", zone=zone))


@pytest.mark.parametrize(
    ("text", "stored", "event"),
    [
        ("2026-10-25 02:30:00", "2026-10-25T00:30:05", "2026-10-25T00:30:00"),
        ("2026-10-25 02:30:00", "2026-10-25T01:30:05", "2026-10-25T01:30:00"),
        # Its clock was ahead of the server's; and it came weeks late.
        ("2026-10-25 02:30:00", "2026-10-25T01:29:00", "2026-10-25T01:30:00"),
        ("2026-10-25 02:30:00", "2026-11-21T00:00:00", "2026-10-25T01:30:00"),
        ("2026-10-25 02:30:00 +02:00", "2026-10-25T01:30:05", "2026-10-25T00:30:00"),
        ("2026-10-25 03:00:00", "2026-10-25T02:00:05", "2026-10-25T02:00:00"),
        # An hour that does not come: as if the clocks had not been set yet.
        ("2026-03-29 02:30:00", "2026-03-29T01:30:05", "2026-03-29T01:30:00"),
        ("Oct 25 02:30:00 h", "2026-10-25T01:30:05", "2026-10-25T01:30:00"),
    ],
)
def test_in_an_hour_that_comes_twice_the_server_tells_which(
    text: str, stored: str, event: str
) -> None:
    """A line is of the last minute of that name before it was stored."""
    near_us, wanted = (
        int(datetime.fromisoformat(each + "Z").timestamp()) * 10**6 for each in (stored, event)
    )

    assert find(text.encode(), near_us, format="auto", zone="Europe/Berlin") == wanted


def test_zone_that_this_machine_lacks_is_an_error_of_its_own() -> None:
    """Not a line without a time."""
    with pytest.raises(UnknownZone, match="install tzdata"):
        find(b"2026-11-20 08:00:00", NEAR_US, format="iso8601", zone="Mars/Base")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--event-time", "iso"), "event_time 'iso': choose from auto, iso8601"),
        (("--event-time", "%Q"), "event_time '%Q' %Q is not known"),
        (("--event-time", "%H"), "event_time '%H' needs a day, a month and an hour at least"),
        (("--zone", "Mars/Base"), "zone 'Mars/Base': give a time zone"),
    ],
)
def test_wrong_option_of_the_command_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read; and raw lines have no event time."""
    assert main(["consume", "a", "-o", "json", *words]) == EXIT_USAGE
    assert said in capsys.readouterr().err
    right = "UTC" if words[0] == "--zone" else "auto"
    assert main(["consume", "a", words[0], right]) == EXIT_USAGE
    assert f"{words[0]}: only JSON has the event time; give -o json" in capsys.readouterr().err


RULES = ParseRule(
    format="json", fields=(LineField(name="a", type="timestamp"), LineField(name="b", from_="b.c"))
)


@given(
    text=st.one_of(
        st.binary(max_size=300),
        st.text('{}[]",:ab.c1234567890-TZ+ \\u\x00\ud7ff', max_size=60).map(str.encode),
    ),
    form=st.sampled_from(["plain", "cri"]),
    seconds=st.integers(0, 2**33),
)
def test_no_bytes_stop_a_reader(text: bytes, form: str, seconds: int) -> None:
    """Each line has an event time, or none."""
    rules = (TimeRule(field="a"), TimeRule(field="b", format="epochMs"), TimeRule(),
             TimeRule(pattern="%d %H"), TimeRule(pattern="%Y%j%I%p"))  # fmt: skip
    times = EventTimes(rules=rules, parse=(RULES,), zone="Europe/Berlin")
    data = (T + b" stdout F " if form == "cri" else b"") + text + b"\n"

    for line in message(data, times, form).lines:
        assert line.event_time is None or line.event_time.tzinfo is UTC
    found = times.find_us(text, seconds * 10**6, None)
    assert found is None or found >= EARLIEST_US


def test_a_reader_needs_nothing_of_a_table() -> None:
    """Neither Arrow, nor Spark, nor the packages that come with them."""
    heavy = ("pyarrow", "pyspark", "numpy", "orjson")
    command = (
        "import sys, logpipeline; logpipeline.consume('a', event_time='auto'); "
        "import logpipeline_cli.commands.consume; "
        f"print(*(name for name in {heavy} if name in sys.modules))"
    )
    found = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False
    )
    assert (found.stdout.strip(), found.stderr) == ("", "")
