"""Makes the policy by which the API server itself refuses what a class does not allow.

It is made from the table of choices. The operator refuses the same, for clusters without the
policy, for classes that change later, and for what never passes an admission as a LogPipeline,
such as `kubectl scale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

from logpipeline.spec.api import ADOPT_ANNOTATION, CLASS_KIND, GROUP, PLURAL, VERSION
from logpipeline.spec.choices import CHOICES, NAMELESS, Choice, How
from logpipeline.spec.classes import DEFAULT_CLASS
from logpipeline.spec.components import PodNamespaces
from logpipeline.spec.crd import as_yaml
from logpipeline.spec.declaration import quantity_cel

NAME = "logpipeline-classes"
API = "admissionregistration.k8s.io/v1"
_ADOPTS = "object.metadata.?annotations[?'" + ADOPT_ANNOTATION + "'].orValue('') == 'true'"
_ADOPTED = _ADOPTS.replace("object.", "oldObject.", 1)
_IS_OF_ANOTHER = f"params.metadata.name != object.spec.?className.orValue('{DEFAULT_CLASS}')"
_WIDTHS = str(list(get_args(PodNamespaces)))

Predicate = Callable[[str], str]
Manifest = dict[str, Any]


def policy() -> Manifest:
    """Return the ValidatingAdmissionPolicy."""
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": f"{GROUP}/{VERSION}", "kind": CLASS_KIND},
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [PLURAL],
                    }
                ]
            },
            "matchConditions": [
                {
                    # A class that became narrower must not keep a pipeline from being labelled, and
                    # its finalizer from being removed.
                    "name": "asks-for-something-new",
                    "expression": (
                        "!has(object.metadata.deletionTimestamp) && (oldObject == null || "
                        f"object.spec != oldObject.spec || ({_ADOPTS}) != ({_ADOPTED}))"
                    ),
                }
            ],
            "variables": [{"name": "isOfAnother", "expression": _IS_OF_ANOTHER}],
            "validations": list(_validations()),
        },
    }


def binding() -> Manifest:
    """Return the binding, which shows every class to the policy: it minds the pipeline's only."""
    return {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {
            "policyName": NAME,
            "validationActions": ["Deny"],
            # Without any class nothing is allowed; the operator says the same.
            "paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"},
        },
    }


def render() -> str:
    """Return both as YAML."""
    head = (
        "# Made by `make generate` from core/logpipeline/spec; change it there.\n"
        "# For Kubernetes 1.30 and newer.\n"
    )
    return head + "---\n".join(as_yaml(each) for each in (policy(), binding()))


def _validations() -> Iterator[Manifest]:
    namespace = "object.metadata.namespace"
    yield _validation("metadata.namespace", "namespaces", _named(namespace, "namespaces"))
    for choice in CHOICES:
        rule = _everywhere("object.spec", choice.path.split("."), _predicate(choice), depth=0)
        yield _validation(f"spec.{choice.path}", choice.field, rule)
    path = f"metadata.annotations[{ADOPT_ANNOTATION}]"
    yield _validation(path, "adopt", f"!({_ADOPTS}) || {_limit('adopt')}")


def _validation(path: str, field: str, rule: str) -> Manifest:
    said = f"' does not allow that, by its spec.{field}'"
    return {
        "expression": f"variables.isOfAnother || ({rule})",
        "messageExpression": f"'{path}: LogPipelineClass ' + params.metadata.name + {said}",
        "reason": "Forbidden",
    }


def _everywhere(owner: str, names: list[str], holds: Predicate, *, depth: int) -> str:
    """Return the CEL that *holds* is true of each value below *owner* at *names*."""
    plain = []
    for name in names:
        bare = name.rstrip("[]{}?")
        plain.append(bare)
        if bare != name:
            break
    chain = owner + "".join(f".?{name}" for name in plain)
    rest, last, item = names[len(plain) :], names[len(plain) - 1], f"v{depth}"
    if last.endswith("?"):
        return holds(f"{chain}.orValue('{NAMELESS}')")
    if last.endswith("[]") and rest:
        inner = _everywhere(item, rest, holds, depth=depth + 1)
        return f"{chain}.optMap(l{depth}, l{depth}.all({item}, {inner})).orValue(true)"
    if last.endswith(("[]", "{}")):
        inner = holds(item)
        return f"{chain}.optMap(l{depth}, l{depth}.all({item}, {inner})).orValue(true)"
    return f"{chain}.optMap({item}, {holds(item)}).orValue(true)"


def _predicate(choice: Choice) -> Predicate:
    limit = _limit(choice.field)
    if choice.how is How.NAMED:
        return lambda value: _named(value, choice.field)
    if choice.how is How.URL:
        return lambda value: _url(value, choice.field)
    if choice.how in (How.BELOW, How.WITHIN):
        is_same = choice.how is How.BELOW
        return lambda value: _within(value, limit, is_same=is_same)
    if choice.how is How.FLAG:
        # An object that is there asks for something; false and nothing do not.
        return lambda value: f"{limit} || (type({value}) == bool && {value} == false)"
    if choice.how is How.WIDTH:
        return lambda value: f"{_WIDTHS}.indexOf({value}) <= {_WIDTHS}.indexOf({limit})"
    if choice.how is How.BYTES:
        size = quantity_cel(limit)
        return lambda value: f"{quantity_cel(value)}.compareTo({size}) <= 0"
    return lambda value: f"{value} <= {limit}"


def _limit(field: str) -> str:
    return f"params.spec.{field}"


def _named(value: str, field: str) -> str:
    return f"{_list(field)}.exists(n, n == {value} || ({_is_start(value)}))"


def _url(value: str, field: str) -> str:
    behind = f"{value}.substring(n.size() - 1)"
    is_same_host = f"n == '*' || n.endsWith('://*') || !{behind}.contains('@')"
    started = f"{_is_start(value)} && ({is_same_host})"
    return f"{_list(field)}.exists(n, n == {value} || ({started}))"


def _is_start(value: str) -> str:
    return f"n.endsWith('*') && {value}.startsWith(n.substring(0, n.size() - 1))"


def _within(value: str, limit: str, *, is_same: bool) -> str:
    start = "(f.endsWith('/') ? f : f + '/')"
    same = f"f == {value} || " if is_same else ""
    inside = f"!{value}.contains('/..') && {value}.startsWith({start})"
    field = limit.removeprefix("params.spec.")
    return f"{_list(field)}.exists(f, {same}({inside}))"


def _list(field: str) -> str:
    """Return the list *field* of the class; an empty one has no default, and may be missing."""
    return f"params.spec.?{field}.orValue([])"
