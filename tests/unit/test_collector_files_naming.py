"""Whatever a stranger calls his host, pod or file: its path stays inside, and is nobody else's."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logpipeline.origin import Origin, origin_of
from logpipeline.wire import Batch
from logpipeline_collector.files.naming import COMPONENT_BYTES_MAX, Template, component, folders

HOSTILE = [
    "..", ".", "", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "\x1b[2J",
    "*", ">", " ", "a" * 300, "é", "a.b", "A", "%2E", "%", "CON", "\udcff", "a%2Fb",
]  # fmt: skip
NAMES = st.text(max_size=40) | st.sampled_from(HOSTILE) | st.text("./%~ab", max_size=8)


@given(NAMES)
def test_a_name_is_one_harmless_component(name: str) -> None:
    """No slash, no dots alone, no leading dot, no control character, not too long."""
    part = component(name)

    assert part
    assert "/" not in part
    assert not part.startswith(".")
    assert part.isascii()
    assert part.isprintable()
    assert len(part) <= COMPONENT_BYTES_MAX


@given(NAMES, NAMES)
def test_different_names_are_different_components(one: str, other: str) -> None:
    """Replacing bad characters by one good one would let two hosts share a file."""
    assert (component(one) == component(other)) == (one == other)


def test_names_that_differ_only_at_their_ends_stay_different() -> None:
    """They are cut, and told apart by a hash."""
    assert component("x" * 400 + "a") != component("x" * 400 + "b")


@given(NAMES, NAMES, NAMES, st.text(max_size=60))
def test_a_path_stays_below_its_host(host: str, namespace: str, pod: str, path: str) -> None:
    """With any template of the defaults."""
    origin = Origin(host, namespace, pod, "c", path)
    for text in ("{host}/{namespace}/{pod}/{container}.log", "{host}/_files/{path}"):
        made = Template(text, cluster="", partition=3).place(origin, "")
        assert os.path.normpath(made) == made
        assert made.startswith(component(host) + "/")


PATHS = st.text(max_size=30) | st.text("/._%l", max_size=6)


@given(PATHS, PATHS)
def test_two_files_of_a_host_are_two_files(one: str, other: str) -> None:
    """Also where one of them is no absolute path."""
    assert (folders(one) == folders(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [("/a", "a"), ("/a", "//a"), ("/a/", "/a"), ("/_lines.log", ""), ("/", "")]
)
def test_paths_that_are_nearly_the_same_are_two_files(one: str, other: str) -> None:
    """A slash more or less, and the name that a stranger's lines have."""
    assert folders(one) != folders(other)


def test_a_containers_file_is_named_by_its_pod() -> None:
    """As `kubectl logs` names it, without uid and restart."""
    batch = Batch(
        source="ns/web-1/0a1b/app/0", generation="0" * 16, start=0, end=1, lines=1, format="cri"
    )

    assert origin_of("node-a", batch)[:4] == ("node-a", "ns", "web-1", "app")


def test_a_message_without_headers_has_a_file_of_its_host() -> None:
    """fshipper tells no path."""
    text = "{host}/_files/{path}"

    assert (
        Template(text, cluster="", partition=0).place(origin_of("h", None), "")
        == "h/_files/_lines.log"
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{cluster}/{host}-%Y%m%d.log", "prod/h-20261121.log"),
        ("p{partition}/{host}.log", "p7/h.log"),
        ("${host}/all-%H%M.log", "h/all-1000.log"),
    ],
)
def test_templates_know_time_and_variables(text: str, path: str) -> None:
    """Time is that of the lines, in UTC; variables as fshipper writes them are accepted."""
    template = Template(text, cluster="prod", partition=7)
    period = template.period(1795255200_000000000)

    assert template.place(Origin("h", "", "", "", "/x"), period) == path
