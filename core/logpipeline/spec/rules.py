"""Rules between fields: one list, as CEL for the API server and as Python for one machine.

Rules of the whole resource are evaluated at its root and say ``self.spec.…``: the API server also
evaluates rules on an object's default, ``{}``, whose own fields are not filled in yet; at the root
they are. Rules of an entry of a list stand with the entry, which has no default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from logpipeline.redaction import BadExpression, compiled
from logpipeline.spec.components import VOLUME_KINDS, Collectors, LocalShipper, Match
from logpipeline.spec.declaration import CrossRule, matches, nanoseconds_cel, yaml_name
from logpipeline.spec.mistakes import Mistake
from logpipeline.spec.model import LogPipelineSpec
from logpipeline.spec.partition_list import is_rising, is_within, rising_cel, within_cel
from logpipeline.spec.pods import NAMESPACE_RULES
from logpipeline.spec.streams import MS_NS, ConsumerTemplate, StreamOverride
from logpipeline.spec.table_rules import COLUMN_ENTRY_RULES, COLUMN_RULES, TABLE_RULES, untried

_POLICY = "self.spec.collectors.deliverPolicy"
_HAS_TIME = "has(self.spec.collectors.optStartTime)"

COLLECTOR_RULES = (
    CrossRule(
        "collectors-start-time-policy",
        LogPipelineSpec,
        "collectors.optStartTime",
        f"!{_HAS_TIME} || {_POLICY} == 'byStartTime'",
        "goes only with deliverPolicy byStartTime",
        lambda spec: (
            spec.collectors.opt_start_time is None
            or spec.collectors.deliver_policy == "byStartTime"
        ),
    ),
    CrossRule(
        "collectors-need-start-time",
        LogPipelineSpec,
        "collectors.optStartTime",
        f"{_POLICY} != 'byStartTime' || {_HAS_TIME}",
        "is missing: deliverPolicy byStartTime needs the time to begin at, such as "
        "2026-01-31T12:00:00Z",
        lambda spec: (
            spec.collectors.deliver_policy != "byStartTime"
            or spec.collectors.opt_start_time is not None
        ),
    ),
)

_IS_OWN = "!self.spec.stream.external"
_USUAL_GROUP = Collectors().group

EXTERNAL_RULES = (
    CrossRule(
        "external-names",
        LogPipelineSpec,
        "stream.external",
        f"{_IS_OWN} || (has(self.spec.subject) && has(self.spec.stream.name))",
        "needs spec.subject and spec.stream.name, as the owner of the streams has them",
        lambda spec: (
            not spec.stream.external or (spec.subject is not None and spec.stream.name is not None)
        ),
    ),
    CrossRule(
        "external-group",
        LogPipelineSpec,
        "collectors.group",
        f"{_IS_OWN} || self.spec.collectors.replicas == 0 || "
        f"self.spec.collectors.group != '{_USUAL_GROUP}'",
        f"must be a group of its own on external streams: {_USUAL_GROUP} is the owner's",
        lambda spec: (
            not spec.stream.external
            or spec.collectors.replicas == 0
            or spec.collectors.group != _USUAL_GROUP
        ),
    ),
)

VARIABLES = ("cluster", "host", "namespace", "pod", "container", "partition", "path")
# fshipper's templates, with ${host} for {host}, are good as well.
_KNOWN = rf"^([^{{}}]|\{{({'|'.join(VARIABLES)})\}})*$"
_APART = r"\{(host|partition)\}"
_OUTSIDE = r"(^/)|(^|/)\.\.?(/|$)"

# A glob's folder is mounted where it is on the node, and would hide what the container has there:
# its programs, its settings, what the kernel shows, our own folders.
_TAKEN = "bin|dev|etc|lib|lib64|opt|proc|run|sbin|sys|tmp|usr|usr/bin|usr/lib|usr/local|var|var/lib"
_OURS = "etc/logpipeline|opt/logpipeline|var/lib/logpipeline"
_HIDING = (
    r"(^/[^/]*$)|(^/[^/]*[*?\[])|(//)|(/\.\.?(/|$))|(^/(proc|sys|dev)/)|"
    rf"(^/({_TAKEN}|{_OURS})/([^/]*$|[^/]*[*?\[]))"
)
_PERSISTENCE = "self.spec.collectors.persistence"

_YAML_NAMES = {
    name: yaml_name(field) for name, field in ConsumerTemplate.__dataclass_fields__.items()
}
_UNSET = {
    "flow_control": "!self.{name}",
    "backoff_ns": "!has(self.{name}) || self.{name}.size() == 0",
}

_PARTITIONS = "self.spec.partitions"
_SECRETS = ("creds", "nkey", "token", "user")
_MAX_AGE = nanoseconds_cel("self.spec.stream.maxAge")
_WINDOW = nanoseconds_cel("self.spec.stream.duplicateWindow")
_OVERRIDE_AGE = nanoseconds_cel("self.maxAge")
# The fields that a rule's CEL reads, without the functions that it calls on them.
_READ = re.compile(r"self\.(spec(?:\.\w+(?![\w(]))*)")


def _rules(field: str, name: str) -> tuple[CrossRule, ...]:
    value = f"self.spec.collectors.{name}"
    path = f"collectors.{name}"

    def of(spec: Any) -> str:
        return str(getattr(spec.collectors, field))

    known = ", ".join(f"{{{variable}}}" for variable in VARIABLES)
    return (
        CrossRule(
            f"{name}-known-variables", LogPipelineSpec, path,
            f"{value}.matches(r'{_KNOWN}')",
            f"holds a variable that is none of {known}",
            lambda spec: matches(_KNOWN, of(spec)),
        ),
        CrossRule(
            f"{name}-apart", LogPipelineSpec, path,
            f"{value}.matches(r'{_APART}')",
            "needs {host} or {partition}: two collectors would write the same file",
            lambda spec: matches(_APART, of(spec)),
        ),
        CrossRule(
            f"{name}-inside", LogPipelineSpec, path,
            f"!{value}.matches(r'{_OUTSIDE}')",
            "must be a relative path without . and .. as folders: it lies below the collector's",
            lambda spec: not matches(_OUTSIDE, of(spec)),
        ),
    )  # fmt: skip


TEMPLATE_RULES = (*_rules("path", "path"), *_rules("file_path", "filePath"))


def _reads_something(spec: Any) -> bool:
    shippers = spec.shippers
    is_needless = not shippers.enabled or shippers.mode == "sidecar" or bool(spec.local.shippers)
    return is_needless or shippers.container_logs or bool(shippers.host_files)


def _volume_kinds(spec: Any) -> int:
    volume = spec.collectors.persistence
    kinds = [volume.existing_claim, volume.host_path, volume.empty_dir] if volume else []
    return sum(kind is not None for kind in kinds)


VOLUME_RULES = (
    CrossRule(
        "one-kind-of-volume",
        LogPipelineSpec,
        "collectors.persistence",
        f"!has({_PERSISTENCE}) || "
        f"[{', '.join(f'has({_PERSISTENCE}.{kind})' for kind in VOLUME_KINDS)}]"
        ".filter(x, x).size() <= 1",
        f"set at most one of {', '.join(VOLUME_KINDS)}",
        lambda spec: _volume_kinds(spec) <= 1,
    ),
    CrossRule(
        "host-files-mountable",
        LogPipelineSpec,
        "shippers.hostFiles",
        "!has(self.spec.shippers.hostFiles) || self.spec.shippers.hostFiles.all(entry, "
        f"entry.include.all(path, !path.matches(r'{_HIDING}')))",
        "must name a folder before the first wildcard that the container does not need itself, "
        "such as /var/log, /srv/app or /opt/app, without . and ..",
        lambda spec: (
            not any(
                matches(_HIDING, path)
                for entry in spec.shippers.host_files
                for path in entry.include
            )
        ),
    ),
    CrossRule(
        "shippers-read-something",
        LogPipelineSpec,
        "shippers",
        "self.spec.shippers.containerLogs || !self.spec.shippers.enabled || "
        "self.spec.shippers.mode == 'sidecar' || "
        "(has(self.spec.shippers.hostFiles) && self.spec.shippers.hostFiles.size() > 0) || "
        "(has(self.spec.local.shippers) && self.spec.local.shippers.size() > 0)",
        "read nothing; leave containerLogs on, list hostFiles, or set enabled to false",
        _reads_something,
    ),
)


def _is_set(value: Any) -> bool:
    # Zero is set, and is what the user wrote.
    return bool(value) if isinstance(value, bool | tuple) else value is not None


def _goes_with(field: str, other: str, values: tuple[str, ...]) -> CrossRule:
    """Return the rule that *field* may only be set where *other* has one of *values*."""
    name, other_name = _YAML_NAMES[field], _YAML_NAMES[other]
    unset = _UNSET.get(field, "!has(self.{name})").format(name=name)
    choices = ", ".join(f"'{value}'" for value in values)

    def holds(consumer: Any) -> bool:
        return not _is_set(getattr(consumer, field)) or getattr(consumer, other) in values

    return CrossRule(
        f"consumer-{name}-{other_name}",
        ConsumerTemplate,
        name,
        f"{unset} || self.{other_name} in [{choices}]",
        f"goes only with {other_name} {' or '.join(values)}",
        holds,
    )


_PUSH_ONLY = (
    "deliver_subject", "deliver_group", "flow_control", "idle_heartbeat_ns", "rate_limit_bps",
)  # fmt: skip

_PULL_ONLY = (
    "max_waiting", "max_request_batch", "max_request_expires_ns", "max_request_max_bytes",
)  # fmt: skip

_ACK_ONLY = ("ack_wait_ns", "max_ack_pending", "backoff_ns")

CONSUMER_RULES = (
    *(_goes_with(field, "type", ("push",)) for field in _PUSH_ONLY),
    *(_goes_with(field, "type", ("pull",)) for field in _PULL_ONLY),
    *(_goes_with(field, "ack_policy", ("all", "explicit")) for field in _ACK_ONLY),
    _goes_with("opt_start_seq", "deliver_policy", ("byStartSequence",)),
    _goes_with("opt_start_time", "deliver_policy", ("byStartTime",)),
    CrossRule(
        "consumer-needs-start-sequence",
        ConsumerTemplate,
        "optStartSeq",
        "self.deliverPolicy != 'byStartSequence' || has(self.optStartSeq)",
        "is missing: deliverPolicy byStartSequence needs the sequence to begin at",
        lambda consumer: (
            consumer.deliver_policy != "byStartSequence" or consumer.opt_start_seq is not None
        ),
    ),
    CrossRule(
        "consumer-needs-start-time",
        ConsumerTemplate,
        "optStartTime",
        "self.deliverPolicy != 'byStartTime' || has(self.optStartTime)",
        "is missing: deliverPolicy byStartTime needs the time to begin at, such as "
        "2026-01-31T12:00:00Z",
        lambda consumer: (
            consumer.deliver_policy != "byStartTime" or consumer.opt_start_time is not None
        ),
    ),
    CrossRule(
        "consumer-needs-heartbeat",
        ConsumerTemplate,
        "idleHeartbeat",
        "!self.flowControl || has(self.idleHeartbeat)",
        "is missing: flowControl needs it, such as 5s",
        lambda consumer: not consumer.flow_control or consumer.idle_heartbeat_ns is not None,
    ),
    CrossRule(
        "consumer-backoff-or-wait",
        ConsumerTemplate,
        "ackWait",
        "!has(self.ackWait) || !has(self.backoff) || self.backoff.size() == 0",
        "goes not with backoff, whose first entry replaces it; set one of the two",
        lambda consumer: consumer.ack_wait_ns is None or not consumer.backoff_ns,
    ),
    CrossRule(
        "consumer-backoff-fits",
        ConsumerTemplate,
        "backoff",
        "!has(self.backoff) || self.maxDeliver <= 0 || self.backoff.size() <= self.maxDeliver",
        "has more entries than maxDeliver allows deliveries",
        lambda consumer: (
            consumer.max_deliver <= 0 or len(consumer.backoff_ns) <= consumer.max_deliver
        ),
    ),
    CrossRule(
        "consumer-partitions-rise",
        ConsumerTemplate,
        "partitions",
        f"!has(self.partitions) || {rising_cel('self.partitions')}",
        "has a range that ends before it begins; write 0-3, not 3-0",
        lambda consumer: consumer.partitions is None or is_rising(consumer.partitions),
    ),
)


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


def _is_expression(text: str) -> bool:
    try:
        compiled(text)
    except BadExpression:
        return False
    return True


# Beyond it one stream is what holds all of them up.
SINGLE_PARTITIONS_MAX = 64
_IS_APART = "self.spec.stream.layout != 'single'"

SINGLE_RULES = (
    CrossRule(
        "single-few-partitions",
        LogPipelineSpec,
        "partitions",
        f"{_IS_APART} || {_PARTITIONS} <= {SINGLE_PARTITIONS_MAX}",
        f"must not exceed {SINGLE_PARTITIONS_MAX} with stream.layout single: all of them wait for "
        "the one stream",
        lambda spec: spec.stream.layout != "single" or spec.partitions <= SINGLE_PARTITIONS_MAX,
    ),
    CrossRule(
        "single-without-overrides",
        LogPipelineSpec,
        "stream.overrides",
        f"{_IS_APART} || !has(self.spec.stream.overrides) || "
        "self.spec.stream.overrides.size() == 0",
        "go not with stream.layout single: set the limits of the stream itself",
        lambda spec: spec.stream.layout != "single" or not spec.stream.overrides,
    ),
    CrossRule(
        "single-consumers-read-all",
        LogPipelineSpec,
        "consumers",
        f"{_IS_APART} || !has(self.spec.consumers) || "
        "self.spec.consumers.all(entry, !has(entry.partitions))",
        "choose no partitions with stream.layout single: leave them out, or take filterHost",
        lambda spec: (
            spec.stream.layout != "single"
            or all(entry.partitions is None for entry in spec.consumers)
        ),
    ),
)

SPEC_RULES = (
    CrossRule(
        "redaction-expressions",
        LogPipelineSpec,
        "redaction.expressions",
        "!has(self.spec.redaction.expressions) || self.spec.redaction.expressions.all(entry, "
        "!entry.contains('\\\\A') && !entry.contains('\\\\z') && !entry.contains('\\\\Q') && "
        "!''.matches(entry))",
        "must be expressions of RE2 that find nothing in an empty text; take ^ and $ for the ends "
        "of a line, not \\A and \\z",
        lambda spec: all(map(_is_expression, spec.redaction.expressions)),
    ),
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
    *SINGLE_RULES,
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
    """Yield the mistakes between the fields of *value*, an entry of a list at *path*."""
    for rule in ENTRY_RULES:
        if isinstance(value, rule.kind) and not rule.holds(value):
            yield Mistake(f"{path}.{rule.path}" if rule.path else path, rule.message)


def check_spec(spec: LogPipelineSpec, known: tuple[Mistake, ...]) -> Iterator[Mistake]:
    """Yield the mistakes between the fields of *spec*, but for fields with *known* mistakes."""
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
