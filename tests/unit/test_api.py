"""What a program that imports logpipeline finds: names, arguments, and refusals of wrong ones."""

from __future__ import annotations

import argparse
import ast
import inspect
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import logpipeline
from logpipeline.consuming.discovery import count_of, server_without_resource
from logpipeline.consuming.options import start_of
from logpipeline.moments import moment_ns, span_ns
from logpipeline.quantity import QuantityError
from logpipeline_cli.arguments import build_parser

PACKAGE = Path(logpipeline.__file__)
HEAVY = ("nats", "yaml", "backports", "asyncio", "logpipeline.spec")
OPENERS: Any = [logpipeline.consume, logpipeline.open_reader, logpipeline.open_blocking_reader]
# What the command does with batches, and a program does in its loop.
COMMAND_ONLY = {
    "allow_unread",
    "exec",
    "help",
    # A joiner of its own does that for a program.
    "multiline",
    "multiline_begin",
    "output",
    "reset",
    "retry_on",
    "stdout",
    "timeout",
    "yes",
}
# `-f FILE` is the path of a resource; a program may also hold one, or none, and positions.
OTHER_NAMES = {"file": "pipeline"}
PYTHON_ONLY = {"positions", "stream"}


def test_each_name_is_there_and_is_listed() -> None:
    """Before and after its first use; a misspelt one is refused."""
    command = "import logpipeline; print(*dir(logpipeline))"
    listed = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    ).stdout.split()

    assert set(logpipeline.__all__) <= {*listed}
    assert set(logpipeline.__all__) <= {*dir(logpipeline)}
    assert all(getattr(logpipeline, name).__doc__ for name in logpipeline.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'opn_reader'"):
        getattr(logpipeline, "opn_reader")  # noqa: B009  # mypy refuses it otherwise


def test_type_checkers_see_the_names_that_programs_get() -> None:
    """They read the imports, which are never run; programs get what `__getattr__` finds."""
    tree = ast.parse(PACKAGE.read_text())
    shown = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logpipeline.")
        for alias in node.names
    }

    assert sorted(shown) == sorted(logpipeline.__all__)
    for name, home in shown.items():
        module = __import__(str(home), fromlist=[name])
        assert getattr(logpipeline, name) is getattr(module, name)


def test_an_import_is_cheap() -> None:
    """Every process of the project imports the package, and few of them read streams."""
    command = f"import sys, logpipeline; print(*(n for n in {HEAVY} if n in sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=False
    )

    assert (loaded.stdout.strip(), loaded.stderr) == ("", "")


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
def test_arguments_are_the_options_of_the_command(opener: Any) -> None:
    """One vocabulary: what is learnt at the prompt is known in a program, and the other way."""
    actions = build_parser()._subparsers._group_actions[0]  # type: ignore[union-attr]
    parser: argparse.ArgumentParser = actions.choices["consume"]  # type: ignore[index]
    options = {action.dest for action in parser._actions} - COMMAND_ONLY
    arguments = {*inspect.signature(opener).parameters} - PYTHON_ONLY

    assert arguments == {OTHER_NAMES.get(name, name) for name in options}


def test_defaults_are_those_of_the_command() -> None:
    """Where both have one."""
    given = vars(build_parser().parse_args(["consume", "billing"]))
    parameters = inspect.signature(logpipeline.open_reader).parameters
    defaults = {name: each.default for name, each in parameters.items() if name in given}

    del defaults["name"]
    # No limit is 0 for the one, and nothing for the other.
    assert {name: value or None for name, value in defaults.items()} == {
        name: given[name] or None for name in defaults
    }
    assert len(defaults) > 15


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
def test_a_misspelt_argument_is_refused_at_the_call(opener: Any) -> None:
    """Not only once the loop begins."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'pipelin'"):
        opener("billing", pipelin="logpipeline.yaml")


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"stream": "LOGS", "pipeline": "logpipeline.yaml"}, "stream needs no resource"),
        ({"stream": "LOGS", "data": "data"}, "stream needs no resource"),
        ({"since": "2h", "from_seq": 7}, "since and from_seq both set the beginning"),
        ({"since": "2h", "deliver": "new"}, "deliver and since both set the beginning"),
        ({"since": "yesterday"}, "since 'yesterday': give a span such as 10m or 2h, or a time"),
        ({"from_seq": -1}, "sequences begin with 1"),
        ({"from_seq": 0}, "sequences begin with 1"),
        ({"deliver": "nwe"}, "deliver 'nwe': choose from all, new, last"),
        ({"on_error": "skip"}, "on_error 'skip': choose from stop, retry, dead-letter"),
        ({"tries": -1}, "tries: give a number from 1 on"),
        ({"count": -1}, "count: give a number from 1 on"),
        ({"max_age": "soon"}, "max_age: expected a time span"),
        ({"max_age": timedelta(seconds=-1)}, "max_age: expected a span of time"),
        ({"event_time": "iso"}, "event_time 'iso': choose from auto, iso8601"),
        ({"event_time": ["auto", "%q"]}, "%q is not known; known are %Y"),
        ({"zone": "Mars/Base"}, "zone 'Mars/Base': give a time zone"),
        ({"ack": "often"}, "is not an acknowledgement mode"),
    ],
)
def test_a_value_without_a_meaning_is_refused_at_the_call(
    opener: Any, wrong: dict[str, Any], said: str
) -> None:
    """With the name of its argument, and what to give."""
    with pytest.raises(logpipeline.BadOption, match=said):
        opener("billing", **wrong)


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (("all", None, None), {"deliver_policy": "all"}),
        (("last", None, None), {"deliver_policy": "last"}),
        (("all", None, 7), {"deliver_policy": "byStartSequence", "opt_start_seq": 7}),
        (
            ("all", datetime(2026, 11, 21, 10, 0, 0, 5, UTC), None),
            {"deliver_policy": "byStartTime", "opt_start_time": "2026-11-21T10:00:00.000005000Z"},
        ),
        (
            ("all", "2026-11-21T11:00:00.5+01:00", None),
            {"deliver_policy": "byStartTime", "opt_start_time": "2026-11-21T10:00:00.500000000Z"},
        ),
    ],
)
def test_a_beginning_is_given_in_words_or_as_a_time(given: Any, fields: dict[str, Any]) -> None:
    """In the form that the server takes."""
    assert start_of(*given) == fields


def test_streams_of_a_base_are_counted() -> None:
    """Those of another base, and what else begins alike, are none of them."""
    names = ["LOGS_0", "LOGS_1", "LOGS_2", "LOGS_dead", "LOGS_01", "KV_LOGS_state", "LOGS_0_0"]

    assert count_of("LOGS", names) == 3
    with pytest.raises(logpipeline.NoPipeline, match=r"there are no streams LOG_0, .*LOGS_dead"):
        count_of("LOG", names)
    with pytest.raises(logpipeline.NoPipeline, match="LOGS_1 is missing, and LOGS_2 is there"):
        count_of("LOGS", ["LOGS_0", "LOGS_2"])


def test_a_server_without_a_resource_is_given_or_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is given comes first."""
    monkeypatch.setenv("NATS_URL", "nats://a,nats://b")
    assert server_without_resource(None).servers == ("nats://a", "nats://b")
    assert server_without_resource("nats://c").servers == ("nats://c",)
    options = logpipeline.NatsOptions(servers=("nats://d",))
    assert server_without_resource(options) is options
    monkeypatch.delenv("NATS_URL")
    with pytest.raises(logpipeline.NoPipeline, match="give nats=URL, or set NATS_URL"):
        server_without_resource(None)


def test_a_span_is_a_text_or_a_timedelta() -> None:
    """Of the same length; a moment is so long ago."""
    assert span_ns("90s") == span_ns(timedelta(seconds=90)) == 90 * 10**9
    assert span_ns("100ms") == span_ns(timedelta(microseconds=100_000))
    assert abs(moment_ns("2h") - moment_ns(timedelta(hours=2))) < 60 * 10**9
    with pytest.raises(QuantityError, match="negative"):
        moment_ns(timedelta(hours=-2))
