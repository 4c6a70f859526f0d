"""A record is one line, keeps its fields, and cannot act on the terminal that shows it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.observe import logs

log = logging.getLogger("logpipeline.test")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, which is put back as it was."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:], logger.level = handlers, level


def test_a_record_is_a_json_object_with_its_fields(root: logging.Logger) -> None:
    """A machine finds time, level, component, message, and each field by its own name."""
    stream = io.StringIO()
    logs.setup("shipper", "json", stream=stream)

    log.info("stream created", extra={"stream": "LOGS_0", "replicas": 3})

    record = json.loads(stream.getvalue())
    assert record.pop("time").endswith("Z")
    assert record == {
        "level": "info",
        "component": "shipper",
        "message": "stream created",
        "stream": "LOGS_0",
        "replicas": 3,
    }


def test_a_field_cannot_pretend_to_be_ours(root: logging.Logger) -> None:
    """A field that is named like one of the record's own stands beside it, under another name."""
    stream = io.StringIO()
    logs.setup("shipper", "json", stream=stream)

    log.info("seen", extra={"level": "critical", "component": "kernel"})

    record = json.loads(stream.getvalue())
    assert (record["level"], record["component"]) == ("info", "shipper")
    assert (record["level_"], record["component_"]) == ("critical", "kernel")


def test_setting_up_again_replaces_and_does_not_repeat(root: logging.Logger) -> None:
    """After a second setup a record appears once, in the second's format."""
    first, second = io.StringIO(), io.StringIO()
    logs.setup("shipper", "json", stream=first)
    logs.setup("shipper", "text", stream=second)

    log.info("once")

    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_what_is_no_terminal_gets_json(root: logging.Logger) -> None:
    """Without a choice, a file or a pipe gets what a machine reads."""
    stream = io.StringIO()
    logs.setup("shipper", stream=stream)

    log.info("hello")

    assert json.loads(stream.getvalue())["message"] == "hello"


def test_text_shows_the_fields_and_quotes_where_needed(root: logging.Logger) -> None:
    """A human reads name=value, and sees where a value begins and ends."""
    stream = io.StringIO()
    logs.setup("shipper", "text", stream=stream)

    log.warning("file left out", extra={"path": "/var/log/a b", "reason": "fifo", "count": 2})

    shown = 'shipper file left out path="/var/log/a b" reason=fifo count=2\n'
    assert stream.getvalue().endswith(shown)


@given(st.text(), st.text() | st.binary())
def test_a_record_is_one_printable_line_in_either_format(message: str, value: str | bytes) -> None:
    """No byte of a stranger ends a line, moves the cursor or hides what follows."""
    record = logging.makeLogRecord({"msg": message, "levelname": "INFO", "value": value})

    as_text = logs.TextFormatter("shipper").format(record)
    as_json = logs.JsonFormatter("shipper").format(record)

    assert as_text.isprintable()
    assert as_json.isascii()
    assert as_json.isprintable()
    assert json.loads(as_json)["message"] == message


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\x9b31m", "\u202etxt.exe", "\u2028", "\x7f"])
def test_a_terminal_never_sees_a_control_character(text: str) -> None:
    """Escape sequences, carriage returns, C1 codes and changes of direction are spelled out."""
    assert logs.printable(text).isprintable()
    assert "\\" in logs.printable(text)


def test_a_record_stays_small_whatever_it_is_given() -> None:
    """A message or field of megabytes is cut, and says how long it was."""
    huge = "x" * 5_000_000
    record = logging.makeLogRecord({"msg": huge, "levelname": "INFO", "value": huge})

    shown = logs.JsonFormatter("shipper").format(record)

    assert len(shown) < 3 * logs.VALUE_CHARACTERS_MAX
    assert json.loads(shown)["value"].endswith("(5000000 characters)")


@pytest.mark.parametrize("formatter", [logs.JsonFormatter, logs.TextFormatter])
def test_an_error_keeps_the_end_of_its_traceback(
    formatter: type[logs.JsonFormatter | logs.TextFormatter],
) -> None:
    """However long, the last words say what happened, on the same line."""
    message = "y" * 100_000 + " the disk is full"
    try:
        raise ValueError(message)
    except ValueError as error:
        caught = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord({"msg": "failed", "levelname": "ERROR", "exc_info": caught})

    shown = formatter("shipper").format(record)

    assert "the disk is full" in shown
    assert "\n" not in shown
    assert len(shown) < 2 * logs.TRACEBACK_CHARACTERS_MAX
