"""fshipper's variables: what is missing, wrong or contradicts itself is said in one sentence."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import yaml

from logpipeline.origin import origin_of
from logpipeline.spec import parse
from logpipeline.spec.api import API_VERSION, KIND
from logpipeline_cli import fshipper
from logpipeline_cli.arguments import build_parser
from logpipeline_cli.commands import components
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.parts import PARENT_VARIABLE
from logpipeline_collector.files.naming import Template

PAGE = Path(__file__).parents[2] / "docs" / "fshipper.md"
URL = "127.0.0.1:4222"
SHIP = {"SHIPPER_FILE": "/var/log/app.log", "SHIPPER_SUBJECT": "shipper", "NATS_URL": URL}
COLLECT = {
    "SHIPPER_SUBJECT": "shipper",
    "SHIPPER_DIRECTORY": "/srv/logs",
    "SHIPPER_OUTPUT": "app.log",
    "NATS_URL": URL,
}


def words(*given: str) -> argparse.Namespace:
    return build_parser().parse_args(given)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*fshipper.SHIP, *fshipper.COLLECT, "NATS_URL", "HOSTNAME", PARENT_VARIABLE}:
        monkeypatch.delenv(name, raising=False)


def refused(
    monkeypatch: pytest.MonkeyPatch, command: str, variables: dict[str, str], *more: str
) -> str:
    """Return why the command does not start."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CliError) as error:
        {"ship": components.ship, "collect": components.collect}[command](words(command, *more))
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SHIPPER_FILE": ""}, "SHIPPER_FILE is not set"),
        ({"SHIPPER_SUBJECT": ""}, "SHIPPER_SUBJECT is not set"),
        ({"SHIPPER_SUBJECT": "a.*"}, "without wildcards"),
        ({"SHIPPER_SUBJECT": "a..b"}, "without wildcards"),
        ({"SHIPPER_SUBJECT": "$JS.API"}, "without wildcards"),
        ({"SHIPPER_PARTITIONS": "ten"}, "a number from 0"),
        ({"SHIPPER_PARTITIONS": "-1"}, "a number from 0"),
        ({"SHIPPER_FILE": "/var"}, "is a folder"),
        ({"SHIPPER_FILE": "/dev/null"}, "not a regular file"),
        ({"NATS_URL": ""}, "NATS_URL"),
        ({"NATS_URL": "http://x"}, "not a NATS URL"),
        ({"NATS_URL": "nats://user:secret@:4222"}, "not a NATS URL"),
        ({"NATS_URL": "x:port"}, "not a NATS URL"),
        ({"NATS_CREDS": "/nowhere/creds"}, "NATS_CREDS /nowhere/creds cannot be read"),
        ({"NATS_CERTIFICATE": "/etc/hostname"}, "go together"),
    ],
)
def test_a_producer_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], said: str
) -> None:
    """And shows no password."""
    message = refused(monkeypatch, "ship", SHIP | changes)

    assert said in message
    assert "secret" not in message


def test_credentials_that_need_another_package_name_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the start, instead of trying again for ever."""
    (tmp_path / "creds").touch()
    monkeypatch.setattr(fshipper, "find_spec", lambda name: None)
    message = refused(monkeypatch, "ship", SHIP | {"NATS_CREDS": str(tmp_path / "creds")})

    assert "pip install 'logpipeline[nkeys]'" in message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SHIPPER_DIRECTORY": ""}, "SHIPPER_DIRECTORY is not set"),
        ({"SHIPPER_OUTPUT": ""}, "SHIPPER_OUTPUT is not set"),
        ({"SHIPPER_OUTPUT": "../x"}, "leaves the host's folder"),
        ({"SHIPPER_STREAM_TARGET": "out.>"}, "SHIPPER_STREAM_TARGET"),
        ({"SHIPPER_READ_PARTITIONS": "1-3"}, "0,1,2"),
        ({"SHIPPER_READ_PARTITIONS": "0,,1"}, "0,1,2"),
        ({"SHIPPER_READ_PARTITIONS": "0,3", "SHIPPER_PARTITIONS": "3"}, "names partition 3"),
        ({"SHIPPER_READ_PARTITIONS": "1", "SHIPPER_PARTITIONS": "0"}, "names partition 1"),
    ],
)
def test_a_consumer_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], said: str
) -> None:
    """Before it writes anything."""
    assert said in refused(monkeypatch, "collect", COLLECT | changes)


def test_a_file_that_may_not_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At the start, though it would be tried again for ever."""

    def denied(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "app.log"
    file.touch()
    # Nothing is denied to root, as whom tests may run.
    monkeypatch.setattr(Path, "open", denied)

    said = refused(monkeypatch, "ship", SHIP | {"SHIPPER_FILE": str(file)})

    assert said == f"SHIPPER_FILE {file} cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("command", "variables", "more", "said"),
    [
        ("ship", SHIP, ("-f", "x.yaml"), "-f and SHIPPER_FILE, SHIPPER_SUBJECT contradict"),
        ("collect", COLLECT, ("-f", "x.yaml", "--member", "a"), "contradict each other"),
        ("ship", SHIP, ("--name", "web"), "--name needs a resource"),
        ("collect", COLLECT, ("--member", "a"), "--member needs a resource"),
        ("collect", COLLECT, ("--data", "/x"), "--data needs a resource"),
        ("ship", {}, (), "give -f FILE, or set fshipper's variables: SHIPPER_FILE"),
        ("collect", {}, (), "give -f FILE, or set fshipper's variables: SHIPPER_SUBJECT"),
        ("collect", {}, ("-f", "x.yaml"), "--member collector-0"),
    ],
)
def test_contradictions_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    variables: dict[str, str],
    more: tuple[str, ...],
    said: str,
) -> None:
    """A resource and variables never fill each other's gaps."""
    assert said in refused(monkeypatch, command, variables, *more)


def test_parts_that_up_starts_heed_no_variables() -> None:
    """What its user's shell has set says nothing of them."""
    started = SHIP | {PARENT_VARIABLE: "1"}

    assert not fshipper.is_meant(words("ship", "-f", "x"), started, fshipper.SHIP, {})


def test_what_is_not_set_has_fshippers_defaults() -> None:
    """One partition, read and written; the host is HOSTNAME, unless a word says it."""
    named = SHIP | {"HOSTNAME": "web1"}

    assert fshipper.one_file(named, None).host == "web1"
    assert fshipper.one_file(named, "web2").host == "web2"
    assert fshipper.one_file(named, None).partitions == 0
    assert fshipper.read_partitions(COLLECT) == (0,)
    assert fshipper.read_partitions(COLLECT | {"SHIPPER_READ_PARTITIONS": "2, 0,2"}) == (2, 0)
    assert fshipper.server_of(SHIP, None).servers == (URL,)


def test_the_page_names_every_variable_and_its_resources_are_good() -> None:
    """Whoever copies from it gets what it shows."""
    text = PAGE.read_text()
    found = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for block in found:
        resource = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "a"}}
        parse({**resource, **yaml.safe_load(block)})

    assert len(found) == 3
    usual = parse({**resource, "spec": {}}).spec.collectors.file_path
    place = Template(usual, cluster="", partition=0).place(origin_of("HOST", None), "")
    assert f"`{place.replace('HOST', '<host>')}`" in text
    for name in {*fshipper.SHIP, *fshipper.COLLECT}:
        assert f"| `{name}` |" in text
