"""Rules between fields: one list, as CEL for the API server and as Python for one machine.

Rules of the whole resource are evaluated at its root and say ``self.spec.…``: the API server also
evaluates rules on an object's default, ``{}``, whose own fields are not filled in yet; at the root
they are. Rules of an entry of a list stand with the entry, which has no default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logpipeline.spec.collector_rules import COLLECTOR_RULES
from logpipeline.spec.column_rules import COLUMN_ENTRY_RULES, COLUMN_RULES, untried
from logpipeline.spec.components import LocalShipper, Match
from logpipeline.spec.consumer_rules import CONSUMER_RULES
from logpipeline.spec.crossrule import CrossRule, nanoseconds_cel
from logpipeline.spec.external_rules import EXTERNAL_RULES
from logpipeline.spec.mistakes import Mistake
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.namespaces import NAMESPACE_RULES
from logpipeline.spec.selection import is_rising, is_within, rising_cel, within_cel
from logpipeline.spec.streams import MS_NS, StreamOverride
from logpipeline.spec.table_rules import TABLE_RULES
from logpipeline.spec.template_rules import TEMPLATE_RULES
from logpipeline.spec.volume_rules import VOLUME_RULES

_PARTITIONS = "self.spec.partitions"
_SECRETS = ("creds", "nkey", "token", "user")
_MAX_AGE = nanoseconds_cel("self.spec.stream.maxAge")
_WINDOW = nanoseconds_cel("self.spec.stream.duplicateWindow")
_OVERRIDE_AGE = nanoseconds_cel("self.maxAge")
# The fields that a rule's CEL reads, without the functions that it calls on them.
_READ = re.compile(r"self\.(spec(?:\.\w+(?![\w(]))*)")


def _given(values: list[Any]) -> int:
    return sum(value is not None for value in values)


def _count_cel(owner: str, names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"has({owner}.{name})" for name in names) + "].filter(x, x).size()"


def _paired(first: str, second: str) -> CrossRule:
    """Return the rule that of two files of `local.nats` both are given, or none."""
    return CrossRule(
        f"local-{first}-and-{second}",
        LogPipelineSpec,
        "local.nats",
        f"has(self.spec.local.nats.{first}File) == has(self.spec.local.nats.{second}File)",
        f"needs both of {first}File and {second}File, or none",
        lambda spec: (
            (getattr(spec.local.nats, f"{first}_file") is None)
            == (getattr(spec.local.nats, f"{second}_file") is None)
        ),
    )


SPEC_RULES = (
    CrossRule(
        "collectors-within-partitions",
        LogPipelineSpec,
        "collectors.replicas",
        f"self.spec.collectors.replicas <= ({_PARTITIONS} > 0 ? {_PARTITIONS} : 1)",
        "must not exceed partitions: surplus collectors would own no partition",
        lambda spec: spec.collectors.replicas <= max(spec.partitions, 1),
    ),
    CrossRule(
        "one-login",
        LogPipelineSpec,
        "nats",
        f"{_count_cel('self.spec.nats', _SECRETS)} <= 1",
        f"set at most one of {', '.join(_SECRETS)}",
        lambda spec: _given([getattr(spec.nats, name) for name in _SECRETS]) <= 1,
    ),
    CrossRule(
        "one-local-login",
        LogPipelineSpec,
        "local.nats",
        f"{_count_cel('self.spec.local.nats', tuple(f'{name}File' for name in _SECRETS))} <= 1",
        f"set at most one of {', '.join(f'{name}File' for name in _SECRETS)}",
        lambda spec: _given([getattr(spec.local.nats, f"{name}_file") for name in _SECRETS]) <= 1,
    ),
    CrossRule(
        "tls-cert-and-key",
        LogPipelineSpec,
        "nats.tls",
        "!has(self.spec.nats.tls) || has(self.spec.nats.tls.cert) == has(self.spec.nats.tls.key)",
        "needs both of cert and key, or none",
        lambda spec: (
            spec.nats.tls is None or (spec.nats.tls.cert is None) == (spec.nats.tls.key is None)
        ),
    ),
    CrossRule(
        "tls-names-a-file",
        LogPipelineSpec,
        "nats.tls",
        "!has(self.spec.nats.tls) || has(self.spec.nats.tls.ca) || has(self.spec.nats.tls.cert)",
        "needs ca, or cert and key: without them nothing of the Secret is used, and no TLS",
        lambda spec: (
            spec.nats.tls is None or spec.nats.tls.ca is not None or spec.nats.tls.cert is not None
        ),
    ),
    CrossRule(
        "tls-first-needs-tls",
        LogPipelineSpec,
        "nats.tlsFirst",
        "!self.spec.nats.tlsFirst || has(self.spec.nats.tls) || "
        "has(self.spec.local.nats.caFile) || has(self.spec.local.nats.certFile) || "
        "(has(self.spec.nats.servers) && "
        "self.spec.nats.servers.exists(url, url.startsWith('tls://')))",
        "needs tls, or servers that begin with tls://",
        lambda spec: (
            not spec.nats.tls_first
            or spec.nats.tls is not None
            or spec.local.nats.ca_file is not None
            or spec.local.nats.cert_file is not None
            or any(url.startswith("tls://") for url in spec.nats.servers)
        ),
    ),
    _paired("cert", "key"),
    _paired("user", "password"),
    CrossRule(
        "age-none-or-kept",
        LogPipelineSpec,
        "stream.maxAge",
        f"{_MAX_AGE} == 0.0 || {_MAX_AGE} >= 100e6",
        "must be at least 100ms, or 0s for no limit",
        lambda spec: spec.stream.max_age_ns == 0 or spec.stream.max_age_ns >= 100 * MS_NS,
    ),
    CrossRule(
        "window-within-age",
        LogPipelineSpec,
        "stream.duplicateWindow",
        f"{_MAX_AGE} == 0.0 || {_WINDOW} <= {_MAX_AGE}",
        "must not exceed maxAge: the server remembers no longer than it keeps",
        lambda spec: (
            spec.stream.max_age_ns == 0 or spec.stream.duplicate_window_ns <= spec.stream.max_age_ns
        ),
    ),
    CrossRule(
        "overrides-within-partitions",
        LogPipelineSpec,
        "stream.overrides",
        "!has(self.spec.stream.overrides) || self.spec.stream.overrides.all(entry, "
        f"{within_cel('entry.partitions', _PARTITIONS)})",
        "names a partition that is not there; they are numbered from 0",
        lambda spec: all(
            is_within(entry.partitions, spec.partitions) for entry in spec.stream.overrides
        ),
    ),
    CrossRule(
        "consumers-within-partitions",
        LogPipelineSpec,
        "consumers",
        "!has(self.spec.consumers) || self.spec.consumers.all(entry, !has(entry.partitions) || "
        f"{within_cel('entry.partitions', _PARTITIONS)})",
        "names a partition that is not there; they are numbered from 0",
        lambda spec: all(
            entry.partitions is None or is_within(entry.partitions, spec.partitions)
            for entry in spec.consumers
        ),
    ),
    CrossRule(
        "selector-selects-namespaces",
        LogPipelineSpec,
        "shippers.podNamespaceSelector",
        "has(self.spec.shippers.podNamespaceSelector) == (has(self.spec.shippers.podNamespaces) && "
        "self.spec.shippers.podNamespaces == 'Selector')",
        "belongs to podNamespaces: Selector, and is needed by it; leave both out to read what the "
        "class selects",
        lambda spec: (
            (spec.shippers.pod_namespace_selector is not None)
            == (spec.shippers.pod_namespaces == "Selector")
        ),
    ),
    *COLLECTOR_RULES,
    *EXTERNAL_RULES,
    *TEMPLATE_RULES,
    *VOLUME_RULES,
    *TABLE_RULES,
    *COLUMN_RULES,
)

ENTRY_RULES = (
    *CONSUMER_RULES,
    *NAMESPACE_RULES,
    *COLUMN_ENTRY_RULES,
    CrossRule(
        "override-age-none-or-kept",
        StreamOverride,
        "maxAge",
        f"!has(self.maxAge) || {_OVERRIDE_AGE} == 0.0 || {_OVERRIDE_AGE} >= 100e6",
        "must be at least 100ms, or 0s for no limit",
        lambda entry: not entry.max_age_ns or entry.max_age_ns >= 100 * MS_NS,
    ),
    CrossRule(
        "override-partitions-rise",
        StreamOverride,
        "partitions",
        rising_cel("self.partitions"),
        "has a range that ends before it begins; write 0-3, not 3-0",
        lambda entry: is_rising(entry.partitions),
    ),
    CrossRule(
        "select-or-exclude",
        Match,
        "",
        "has(self.select) != has(self.exclude)",
        "needs exactly one of select, exclude",
        lambda match: (match.select is None) != (match.exclude is None),
    ),
    CrossRule(
        "ack-of-selected",
        Match,
        "ack",
        "!has(self.ack) || has(self.select)",
        "is for what is selected; lines that are left out are not sent",
        lambda match: match.ack is None or match.select is not None,
    ),
    CrossRule(
        "shipper-reads-something",
        LocalShipper,
        "",
        "(has(self.files) && self.files.size() > 0) || has(self.pods) || has(self.hostsBelow)",
        "reads nothing; set files, pods or hostsBelow",
        lambda shipper: bool(shipper.files or shipper.pods or shipper.hosts_below),
    ),
)


def check_object(value: Any, path: str) -> Iterator[Mistake]:
    """Yield what is wrong between the fields of *value*, an entry of a list at *path*."""
    for rule in ENTRY_RULES:
        if isinstance(value, rule.kind) and not rule.holds(value):
            yield Mistake(f"{path}.{rule.path}" if rule.path else path, rule.message)


def check_spec(spec: LogPipelineSpec, known: tuple[Mistake, ...]) -> Iterator[Mistake]:
    """Yield what is wrong between the fields of *spec*, but for fields with *known* mistakes."""
    for rule in SPEC_RULES:
        # A field with a mistake stands at its default, of which nothing should be said.
        if not _touches(rule, known) and not rule.holds(spec):
            yield Mistake(f"spec.{rule.path}", rule.message)
    if not any(mistake.path.startswith("spec.table") for mistake in known):
        yield from untried(spec)


def _touches(rule: CrossRule, known: tuple[Mistake, ...]) -> bool:
    return any(
        mistake.path.startswith(read) or read.startswith(f"{mistake.path}.")
        for read in _READ.findall(rule.cel)
        for mistake in known
        if mistake.path.startswith("spec")
    )
