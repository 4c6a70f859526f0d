"""Rules between the fields of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

from logpipeline.line_expressions import tried
from logpipeline.spec.declaration import CrossRule
from logpipeline.spec.mistakes import Mistake, shown
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.table import RESERVED, LineField, ParseRule, TimeRule

_PARSE = "self.spec.table.parse"
_TIME = "self.spec.table.time"
# The directives of strptime that `time` knows.
DIRECTIVES = "YymdebBHIMSfpzjT%"

_TABLE = "self.spec.table"
_IS_BUCKET = f"(has({_TABLE}.path) && {_TABLE}.path.startsWith('s3://'))"
_VOLUME = f"{_TABLE}.persistence"


def _declared(spec: Any) -> Iterator[LineField]:
    return (field for rule in spec.table.parse for field in rule.fields)


def _has_one_type_each(spec: Any) -> bool:
    types: dict[str, str] = {}
    return all(types.setdefault(field.name, field.type) == field.type for field in _declared(spec))


def _names_declared(spec: Any) -> bool:
    names = {field.name for field in _declared(spec)}
    return all(rule.field is None or rule.field in names for rule in spec.table.time)


COLUMN_RULES = (
    CrossRule(
        "column-of-one-type",
        LogPipelineSpec,
        "table.parse",
        f"!has({_PARSE}) || {_PARSE}.all(a, !has(a.fields) || a.fields.all(f, "
        f"{_PARSE}.all(b, !has(b.fields) || "
        "b.fields.all(g, f.name != g.name || f.type == g.type))))",
        "gives one column two types; a table has one column of a name, so give it the same type "
        "in all rules, or another name",
        _has_one_type_each,
    ),
    CrossRule(
        "time-of-declared-field",
        LogPipelineSpec,
        "table.time",
        f"!has({_TIME}) || {_TIME}.all(t, !has(t.field) || (has({_PARSE}) && "
        f"{_PARSE}.exists(a, has(a.fields) && a.fields.exists(f, f.name == t.field))))",
        "names a field that no rule of parse declares",
        _names_declared,
    ),
)

COLUMN_ENTRY_RULES = (
    CrossRule(
        "regex-has-pattern",
        ParseRule,
        "pattern",
        "has(self.pattern) == (self.format == 'regex')",
        "belongs to format regex, and is needed by it",
        lambda rule: (rule.pattern is not None) == (rule.format == "regex"),
    ),
    CrossRule(
        "column-not-ours",
        LineField,
        "name",
        "!(self.name in [" + ", ".join(f"'{name}'" for name in RESERVED) + "])",
        "is a column or folder that each table has; give it another name, and its key as `from`",
        lambda field: field.name not in RESERVED,
    ),
    CrossRule(
        "time-format-or-pattern",
        TimeRule,
        "pattern",
        "!has(self.pattern) || self.format == 'auto'",
        "is in place of format; leave one of them out",
        lambda rule: rule.pattern is None or rule.format == "auto",
    ),
)


def untried(spec: LogPipelineSpec) -> Iterator[Mistake]:
    """Yield mistakes that the API server cannot find: it tries no expression and knows no zone."""
    table = spec.table
    for number, rule in enumerate(table.parse):
        yield from _of_rule(rule, f"spec.table.parse[{number}]")
    for number, time in enumerate(table.time):
        if time.pattern is not None and (reason := why_no_pattern(time.pattern)):
            yield Mistake(f"spec.table.time[{number}].pattern", reason)
    if not is_zone(table.zone):
        yield Mistake("spec.table.zone", f"no such time zone: {shown(table.zone)}")


def _of_rule(rule: ParseRule, path: str) -> Iterator[Mistake]:
    keys = [field.key for field in rule.fields]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            found = f"{shown(key)} is taken by another field of this rule"
            yield Mistake(f"{path}.fields[{number}].from", found)
    if rule.pattern is None:
        return
    expression = tried(rule.pattern)
    if expression.why:
        yield Mistake(f"{path}.pattern", expression.why)
        return
    for number, key in enumerate(keys):
        if key not in expression.groups:
            yield Mistake(f"{path}.fields[{number}]", f"the pattern has no group {shown(key)}")


def why_no_pattern(pattern: str) -> str:
    """Return why no time can be read by a *pattern* of strptime; empty if one can."""
    used = re.findall(r"%(.?)", pattern, re.DOTALL)
    for name in used:
        if name not in DIRECTIVES or not name:
            known = " ".join(f"%{each}" for each in DIRECTIVES)
            return f"%{name} is not known; known are {known}"
    given = [name for name in used if name != "%"]
    if len(set(given)) < len(given):
        return "has a directive twice"
    has_day = "j" in given or ({"d", "e"} & set(given) and {"m", "b", "B"} & set(given))
    has_time = "T" in given or {"H", "I"} & set(given)
    return "" if has_day and has_time else "needs a day, a month and an hour at least"


def is_zone(name: str) -> bool:
    """Return whether *name*, which fits ZONE, is a time zone that is known here."""
    if name[:1] in "+-":
        return int(name[1:3]) < 24 and int(name[4:]) < 60
    if name == "UTC":
        return True
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return False
    return True


def _is_bucket(spec: Any) -> bool:
    return (spec.table.path or "").startswith("s3://")


def _is_shared(spec: Any) -> bool:
    volume = spec.table.persistence
    return _is_bucket(spec) or (volume is not None and volume.existing_claim is not None)


TABLE_RULES = (
    CrossRule(
        "table-executors-somewhere",
        LogPipelineSpec,
        "table.executors.instances",
        f"{_TABLE}.runner != 'embedded' || {_TABLE}.executors.instances == 0",
        "needs runner native or sparkApplication: an embedded Spark is one pod",
        lambda spec: spec.table.runner != "embedded" or spec.table.executors.instances == 0,
    ),
    CrossRule(
        "table-application-executors",
        LogPipelineSpec,
        "table.executors.instances",
        f"{_TABLE}.runner != 'sparkApplication' || {_TABLE}.executors.instances > 0",
        "must be 1 or more with runner sparkApplication: its driver has executors do the work",
        lambda spec: spec.table.runner != "sparkApplication" or spec.table.executors.instances > 0,
    ),
    CrossRule(
        "table-executors-reach-it",
        LogPipelineSpec,
        "table.path",
        f"{_TABLE}.executors.instances == 0 || {_IS_BUCKET} || "
        f"(has({_VOLUME}) && has({_VOLUME}.existingClaim))",
        "must be s3://…, or persistence an existingClaim that all can mount: executors write it",
        lambda spec: spec.table.executors.instances == 0 or _is_shared(spec),
    ),
    CrossRule(
        "table-one-kind-of-volume",
        LogPipelineSpec,
        "table.persistence",
        f"!has({_VOLUME}) || !(has({_VOLUME}.existingClaim) && has({_VOLUME}.emptyDir))",
        "set at most one of existingClaim, emptyDir",
        lambda spec: (
            spec.table.persistence is None
            or spec.table.persistence.existing_claim is None
            or spec.table.persistence.empty_dir is None
        ),
    ),
    CrossRule(
        "table-catalog",
        LogPipelineSpec,
        "table.catalog",
        f"{_TABLE}.format != 'iceberg' || (has({_TABLE}.catalog) && 'table' in {_TABLE}.catalog)",
        "needs `table`, such as logs.prod, and the properties of its catalog",
        lambda spec: spec.table.format != "iceberg" or "table" in spec.table.catalog,
    ),
    CrossRule(
        "table-needs-direct",
        LogPipelineSpec,
        "stream.allowDirect",
        f"!has({_TABLE}.enabled) || !{_TABLE}.enabled || self.spec.stream.allowDirect",
        "must stay on: the table's job reads by direct get",
        lambda spec: not spec.table.enabled or spec.stream.allow_direct,
    ),
)
