"""The API server refuses what the parser refuses, at the same fields, and takes what it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from api_server.mutations import Spec, bad, edges, full, good, mixed, out_of_range
from cluster.handle import Cluster
from logpipeline.spec import SpecError, parse
from logpipeline.spec.declaration import Rule
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.rules import ENTRY_RULES, SPEC_RULES

# A share that fits into a minute beside other work; `make soak` has its own number.
EXAMPLES = settings().max_examples // 2
LIMIT_S = 3_600
RULES = {rule.message for rule in (*SPEC_RULES, *ENTRY_RULES)}
_STUMBLED = re.compile(r"invalid data, expected .* evaluating rule: (\S+) ")
API = {"version": "logpipeline.dev/v1alpha1", "url": "logpipelines"}
# An expression with a mistake ends its rule; the rule's message says which field it is.
_UNPARSED = re.compile(r"error parsing regexp: .* evaluating rule: (spec\.\S+) ")
DRY = {"dryRun": "All", "fieldValidation": "Strict"}

Judge = Callable[[Spec], dict[str, str]]


def resource(spec: Spec, **metadata: Any) -> dict[str, Any]:
    """A LogPipeline with *spec*."""
    return {
        "apiVersion": "logpipeline.dev/v1alpha1",
        "kind": "LogPipeline",
        "metadata": {"name": "a", **metadata},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Judge:
    """What the API server finds wrong with a spec, by field; nothing is stored."""

    def judge(spec: Spec) -> dict[str, str]:
        content = json.dumps(resource(spec))
        answer = cluster.api.post(**API, namespace="default", params=DRY, data=content).json()
        if answer.get("kind") == "LogPipeline":
            return {}
        causes = (answer.get("details") or {}).get("causes")
        assert causes, answer
        # "<nil>" says that rules were left out, which is so whenever a field is wrong.
        found: dict[str, str] = {}
        told = [_told(cause) for cause in causes]
        for where, message in sorted(told, key=lambda each: is_rule(each[1])):
            # Of a field that is wrong alone, and by a rule as well, the former counts.
            found.setdefault(where, message)
        found.pop("<nil>", None)
        return found

    return judge


def _told(cause: dict[str, str]) -> tuple[str, str]:
    """Field and message of a *cause*. A list in the place of a time passes the server's own look at
    types, and only the first rule that reads it stumbles: its text names the field.
    """
    if stumbled := _STUMBLED.search(cause["message"]):
        name = stumbled[1]
        where = name if name.startswith("spec.") else f"{cause['field']}.{name}"
        return place(where), "must be of another type"
    if unparsed := _UNPARSED.search(cause["message"]):
        return place(unparsed[1]), cause["message"]
    return place(cause["field"]), cause["message"]


def place(path: str) -> str:
    """A field's path as both of them can be asked to write it: entries of lists stand for all."""
    return re.sub(r"\[[^]]*\]", "[]", path).removeprefix(".")


def without_rules(found: dict[str, str]) -> set[str]:
    """The fields that are wrong alone. Of rules between fields nobody speaks where one of these is
    wrong: the server never, the parser as far as the rule reads it.
    """
    return {where for where, message in found.items() if not is_rule(message)}


def is_rule(message: str) -> bool:
    """Whether it tells of a rule between fields."""
    return any(rule in message for rule in RULES)


def parsed(spec: Spec) -> dict[str, str]:
    """What the parser finds wrong with a spec, by field."""
    try:
        parse(resource(spec))
    except SpecError as error:
        found: dict[str, str] = {}
        # Of two entries of a list, one may be wrong alone, and one by a rule.
        for mistake in sorted(error.mistakes, key=lambda each: is_rule(each.message)):
            found.setdefault(place(mistake.path), mistake.message)
        return found
    return {}


# The server tries no expression and knows no zone: `column_rules.untried` does.
UNTRIED = {
    "spec.table.parse[].pattern",
    "spec.table.parse[].fields[]",
    "spec.table.parse[].fields[].from",
    "spec.table.time[].pattern",
    "spec.table.zone",
}


def disagreed(theirs: set[str], ours: set[str]) -> set[str]:
    """The fields that one of them alone finds wrong, but for what only the parser can."""
    return (theirs - ours) | (ours - theirs - UNTRIED)


SHARE = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("text", ["(", "a*", r"\Aa", "a(?=b)", "a{1001}", "a", "(?<x>é)[^b]+$"])
def test_server_and_parser_take_the_same_expressions(server: Judge, text: str) -> None:
    """Both know RE2's, and want one that finds something."""
    spec = {"redaction": {"expressions": ["fine", text]}}

    found = server(spec)

    assert found.keys() == parsed(spec).keys()
    assert all(is_rule(message) for message in found.values())


@pytest.mark.parametrize("has_unit", [False, True], ids=["numbers", "quantities"])
@pytest.mark.parametrize("which", [0, 1])
def test_server_and_parser_draw_each_line_at_the_same_value(
    server: Judge, which: int, has_unit: bool
) -> None:
    """Of every number, size, time span and length, both take the last good one and not the next."""

    def at(side: int, hint: Any, rule: Rule) -> Any:
        pairs = edges(hint, rule) if bool(rule.unit) is has_unit else ()
        return pairs[which][side] if which < len(pairs) else None

    fits, exceeds = (full(partial(at, side), LogPipelineSpec) for side in (0, 1))

    assert without_rules(server(fits)) == without_rules(parsed(fits)) == set()
    assert without_rules(server(exceeds)) == without_rules(parsed(exceeds)) != set()


@SHARE
@given(spec=mixed(bad, LogPipelineSpec))
@pytest.mark.timeout(LIMIT_S)
def test_server_and_parser_refuse_the_same_fields(server: Judge, spec: Spec) -> None:
    """Whatever stands in a field, both take it, or both name that very field."""
    theirs, ours = server(spec), parsed(spec)
    # Where another field is wrong as well no rule is read: nobody stumbles over the list.
    lists = {
        where
        for where, message in ours.items()
        if where.endswith("optStartTime") and "found a list" in message
    }

    assert disagreed(without_rules(theirs) | lists, without_rules(ours)) == set()


@SHARE
@given(spec=mixed(out_of_range, LogPipelineSpec))
@pytest.mark.timeout(LIMIT_S)
def test_server_and_parser_have_the_same_limits(server: Judge, spec: Spec) -> None:
    """A size or a time span that is too small or too large for one of them is so for the other."""
    theirs, ours = server(spec), parsed(spec)

    assert disagreed(without_rules(theirs), without_rules(ours)) == set()


@SHARE
@given(spec=mixed(good, LogPipelineSpec))
@pytest.mark.timeout(LIMIT_S)
def test_server_and_parser_have_the_same_rules_between_fields(server: Judge, spec: Spec) -> None:
    """Where each field is good alone, both find the same fields that do not go together."""
    theirs, ours = server(spec), parsed(spec)

    assert ours.keys() - theirs.keys() <= UNTRIED
    # The parser says nothing of a list one of whose entries is wrong already.
    assert all(any(mine.startswith(where) for mine in ours) for where in theirs)
