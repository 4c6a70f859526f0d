"""Values for every field of the resource, good ones and bad ones, made from what fields declare:
one that is added tomorrow is tried out without a word here.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from datetime import UTC
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from logpipeline.quantity import BYTES_MAX, DURATION_NS_MAX, format_bytes, format_duration
from logpipeline.spec.declaration import Rule, is_required, matches, rule_of, yaml_name

Values = st.SearchStrategy[Any]
Spec = dict[str, Any]
# Which values a field may get.
Choose = Callable[[Any, Rule], Values]

INT64_MAX = 2**63 - 1
# Integers beyond are no doubles of their own.
EXACT_MAX = 2**53
GLOB = "/var/log/*.log"
# What users, hostile ones too, write where a text belongs; also text that no pattern takes.
HOSTILE = (
    "", " ", ".", "..", "../../etc/passwd", "a/b", "*", ">", "a b", "a\nb", "a\r\n", "\x00",
    "\x1b[31m", "é", "\u202e", "\U0001f600", "%s", "${HOME}", "{host}", "$(rm -rf /)",
    "'; DROP TABLE", "null", "true",
)  # fmt: skip
NO_TEXTS: tuple[Any, ...] = (7, True, ["a"], {}, 1.5)
NO_INTEGERS: tuple[Any, ...] = ("7", True, 1.5, [1], {}, "")
NO_BOOLEANS: tuple[Any, ...] = ("true", 1, [True], {}, "yes")
NO_OBJECTS: tuple[Any, ...] = ("a", 7, [], ["a"], True)
NO_LISTS: tuple[Any, ...] = ("a", 7, {}, False)
NO_BYTES: tuple[Any, ...] = ("10GB", "-1", "1e3", " 1Gi", "Gi", "", 1.5, True, "1" * 33, ["1Gi"])
NO_DURATIONS: tuple[Any, ...] = (
    "1 day", "", "-1s", "5", 5, "1s1h", "1x", " 1s", True, "1" * 32 + "s",
)  # fmt: skip


def objects(choose: Choose, kind: type[Any]) -> st.SearchStrategy[Spec]:
    """Objects of *kind*: all required fields and some of the others, each as *choose* has it."""
    hints = get_type_hints(kind)
    required: dict[str, Values] = {}
    optional: dict[str, Values] = {}
    for field in dataclasses.fields(kind):
        into = required if is_required(field) else optional
        into[yaml_name(field)] = choose(hints[field.name], rule_of(field))
    return st.fixed_dictionaries(required, optional=optional)


def mixed(wrong: Choose, kind: type[Any]) -> st.SearchStrategy[Spec]:
    """Objects of *kind* in which some fields, at any depth, are *wrong*."""

    def choose(hint: Any, rule: Rule) -> Values:
        inside, is_list = _plain(hint)
        if not dataclasses.is_dataclass(inside):
            return good(hint, rule) | wrong(hint, rule)
        within = mixed(wrong, _class(inside))
        return _lists(within, rule) if is_list else within

    return objects(choose, kind)


def full(pick: Callable[[Any, Rule], Any], kind: type[Any]) -> Spec:
    """An object of *kind* with every field, at any depth, as *pick* has it; None leaves it out."""
    hints, made = get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        inside, is_list = _plain(hints[field.name])
        value = pick(hints[field.name], rule_of(field))
        if dataclasses.is_dataclass(inside):
            value = full(pick, _class(inside))
            value = [value] if is_list else value
        if value is None and is_required(field):
            value = [GLOB] if is_list else _usual(hints[field.name], rule_of(field))
        if value is not None:
            made[yaml_name(field)] = value
    return made


def _usual(hint: Any, rule: Rule) -> Any:
    """A value that a required field takes."""
    return get_args(hint)[0] if get_origin(hint) is Literal else _example(rule)


def edges(hint: Any, rule: Rule) -> tuple[tuple[Any, Any], ...]:
    """The values at the limits of a number or a length: the last good one, the first bad one."""
    kind, is_list = _plain(hint)
    pairs: list[tuple[Any, Any]] = []
    if kind is int:
        least, most = _range(rule)
        numbers = [(least, least - 1), (most, most + 1)]
        if rule.unit is None:
            pairs = [pair for pair in numbers if max(map(abs, pair)) < INT64_MAX]
        else:
            # No size is below nothing, and CEL compares time spans as doubles.
            is_exact = rule.unit == "bytes" or most < EXACT_MAX
            numbers = [pair for pair in numbers if pair[1] >= 0 and (is_exact or pair[0] == least)]
            pairs = [(_quantity(rule, one), _quantity(rule, other)) for one, other in numbers]
    elif kind is str and rule.max_length is not None and rule.pattern is None:
        pairs = [("a" * rule.max_length, "a" * (rule.max_length + 1))]
    if is_list:
        pairs = [([one], [other]) for one, other in pairs]
    return tuple(pairs)


def good(hint: Any, rule: Rule) -> Values:
    """Values that a field takes, those at its limits often among them."""
    kind, is_list = _plain(hint)
    if is_list:
        return _lists(_good_item(kind, rule), rule)
    return _good_item(kind, rule)


def bad(hint: Any, rule: Rule) -> Values:
    """Values that the schema itself refuses, whatever the other fields are."""
    kind, is_list = _plain(hint)
    item = _bad_item(kind, rule)
    if not is_list:
        return item
    wrong = [st.sampled_from(NO_LISTS)]
    if item is not _NOTHING:
        wrong.append(item.map(lambda value: [value]))
    if rule.max_items is not None and rule.unique_by is None:
        many = rule.max_items + 1
        wrong.append(_good_item(kind, rule).map(lambda value: [value] * many))
    if rule.min_items:
        wrong.append(st.just([]))
    return st.one_of(wrong)


def out_of_range(hint: Any, rule: Rule) -> Values:
    """Sizes and time spans beyond a field's limits, which rules in CEL refuse; good values where
    a field has no such limits.
    """
    kind, is_list = _plain(hint)
    if rule.unit is None or kind is not int:
        return good(hint, rule)
    least, most = _range(rule)
    greatest = BYTES_MAX if rule.unit == "bytes" else DURATION_NS_MAX
    # CEL compares time spans as doubles, which are a microsecond apart at 292 years.
    texts = [
        _quantity(rule, number) for number in (most + most // 10**9 + 1, 2 * most, 4 * greatest)
    ]
    if least:
        texts += [_quantity(rule, least - 1), _quantity(rule, 0)]
    values = st.sampled_from(texts)
    return values.map(lambda value: [value]) if is_list else values


def _plain(hint: Any) -> tuple[Any, bool]:
    """The type without ``| None`` and without the list around it, and whether there was one."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [part for part in get_args(hint) if part is not type(None)]
        if len(kinds) == 1:
            return _plain(kinds[0])
        return hint, False
    if get_origin(hint) is tuple:
        return get_args(hint)[0], True
    return hint, False


_NOTHING: Values = st.nothing()
_LONG = st.integers(1100, 5000).map("A".__mul__)
_TIMES = st.datetimes(timezones=st.just(UTC), allow_imaginary=False).map(
    lambda time: time.isoformat().replace("+00:00", "Z")
)


def _lists(items: Values, rule: Rule) -> Values:
    most = min(rule.max_items or 3, 3)
    by = rule.unique_by
    key: Any = None
    if by is not None:
        # Bad items may be of any type, also one without a hash.
        key = (lambda item: repr(item.get(by))) if by else repr
    return st.lists(items, min_size=rule.min_items or 0, max_size=most, unique_by=key)


def _good_item(kind: Any, rule: Rule) -> Values:
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return st.sampled_from([0, 1, 3, "50%", "1"])
    if get_origin(kind) is dict:
        return st.dictionaries(st.sampled_from(["a", "b.c/d", "e"]), st.just("v"), max_size=2)
    if dataclasses.is_dataclass(kind):
        return objects(good, _class(kind))
    if rule.unit is not None:
        return _good_quantity(rule)
    if kind is bool:
        return st.booleans()
    if kind is int:
        least, most = _range(rule)
        return st.sampled_from([least, most]) | st.integers(least, most)
    return _good_text(rule)


def _bad_item(kind: Any, rule: Rule) -> Values:
    if get_origin(kind) is Literal:
        first = get_args(kind)[0]
        near = (
            [first + 1, -1, "1"] if isinstance(first, int) else [first.upper(), first + " ", 1, ""]
        )
        return st.sampled_from(near).filter(lambda value: value not in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return st.sampled_from([1.5, True, [1], {}])
    if get_origin(kind) is dict or dataclasses.is_dataclass(kind):
        return st.sampled_from(NO_OBJECTS)
    if rule.unit is not None:
        return st.sampled_from(NO_BYTES if rule.unit == "bytes" else NO_DURATIONS)
    if kind is bool:
        return st.sampled_from(NO_BOOLEANS)
    if kind is int:
        beyond = [
            *([rule.minimum - 1, -INT64_MAX] if rule.minimum is not None else []),
            *([rule.maximum + 1, INT64_MAX] if rule.maximum is not None else []),
        ]
        return st.sampled_from([*NO_INTEGERS, *beyond])
    texts = st.sampled_from(HOSTILE) | st.text(max_size=20) | _LONG
    return st.sampled_from(NO_TEXTS) | texts.filter(lambda text: not _is_good_text(rule, text))


def _good_text(rule: Rule) -> Values:
    hostile = st.sampled_from(HOSTILE) | st.text(max_size=20)
    if rule.pattern is None:
        return hostile.filter(lambda text: _is_good_text(rule, text))
    if rule.is_time:
        return _TIMES
    # Longer than the longest that is allowed is for `bad`.
    texts = st.from_regex(rule.pattern).filter(lambda text: _is_good_text(rule, text))
    return texts if rule.example is None else texts | st.just(_example(rule))


def _range(rule: Rule) -> tuple[int, int]:
    """The least and the greatest number that a field takes."""
    if rule.unit is None:
        least, most = -INT64_MAX, INT64_MAX
    else:
        least, most = 0, BYTES_MAX if rule.unit == "bytes" else DURATION_NS_MAX
    return (
        least if rule.minimum is None else rule.minimum,
        most if rule.maximum is None else rule.maximum,
    )


def _example(rule: Rule) -> str:
    assert rule.example is not None
    return rule.example.split(" or ")[0]


def _is_good_text(rule: Rule, text: str) -> bool:
    return (rule.min_length or 0) <= len(text) <= (rule.max_length or len(text)) and (
        rule.pattern is None or matches(rule.pattern, text)
    )


def _good_quantity(rule: Rule) -> Values:
    least, most = _range(rule)
    numbers = st.sampled_from([least, most, least + 1, most - 1]) | st.integers(least, most)
    if rule.unit == "bytes":
        return numbers.map(format_bytes) | numbers
    return numbers.map(format_duration)


def _quantity(rule: Rule, number: int) -> str:
    return format_bytes(number) if rule.unit == "bytes" else format_duration(number)


def _class(kind: Any) -> type[Any]:
    assert isinstance(kind, type)
    return kind
