"""Findings from errors of NATS and of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from logpipeline.nats.bucket import Conflict
from logpipeline.nats.connection import (
    ConnectFailed,
    Denied,
    NoResponders,
    OutcomeUnknown,
    TooLarge,
)
from logpipeline.nats.jetstream import ApiError
from logpipeline.plan.observe import JetStreamOff
from logpipeline.spec import SpecError
from logpipeline_operator.children.model import NoSparkApi, Undecided
from logpipeline_operator.cluster.client import ClusterError
from logpipeline_operator.status.facts import Finding, Part, part_of
from logpipeline_operator.status.reasons import Reason
from logpipeline_operator.status.text import listed

# Error codes of JetStream that have a reason of their own; others are reported as they are.
_JETSTREAM_CODES = {
    10002: Reason.ACCOUNT_LIMIT,
    10005: Reason.ACCOUNT_LIMIT,
    10026: Reason.ACCOUNT_LIMIT,
    10027: Reason.ACCOUNT_LIMIT,
    10028: Reason.ACCOUNT_LIMIT,
    10047: Reason.ACCOUNT_LIMIT,
    10035: Reason.JETSTREAM_DISABLED,
    10039: Reason.JETSTREAM_DISABLED,
    10076: Reason.JETSTREAM_DISABLED,
    10065: Reason.SUBJECTS_OVERLAP,
    10074: Reason.TOO_FEW_SERVERS,
    10008: Reason.NATS_SILENT,
    10009: Reason.NATS_SILENT,
    10023: Reason.NATS_SILENT,
}
# Words in connection errors of nats-server, nats-py and OpenSSL, the most certain first.
_CONNECT_WORDS = (
    (Reason.NATS_CREDENTIALS_REFUSED, ("authorization", "authentication", "credential", "nkey")),
    (
        Reason.NATS_TLS_FAILED,
        ("certificate", "ssl", "tls", "secure connection", "handshake", "unknown ca"),
    ),
    (Reason.NATS_PERMISSION_DENIED, ("permissions violation",)),
)
# The rest is counted: a longer list is not read.
REFUSED_SHOWN_MAX = 5
_QUOTA_WORDS = ("exceeded quota", "failed quota", "limitrange", "maximum cpu", "maximum memory")
_ADMISSION_WORDS = ("podsecurity", "pod security", "admission webhook", "security context")


def of_field_conflict(child: str, path: str, manager: str) -> Finding:
    """Return the finding that *manager* sets the field *path* of *child* again and again."""
    what = f"{child}: {manager} sets {path} again and again, so the operator leaves it for an hour"
    return Finding(reason=Reason.FIELD_CONFLICT, part=part_of(child), what=what)


def of_ending(resource: Mapping[str, Any]) -> Finding:
    """Return the finding that *resource* is being deleted, with the finalizers it waits for."""
    metadata = resource["metadata"]
    waiting = listed([str(name) for name in metadata.get("finalizers") or []])
    since = f"it has been in deletion since {metadata['deletionTimestamp']}"
    what = f"{since}, and waits for {waiting or 'Kubernetes'}"
    return Finding(reason=Reason.ENDING, part=Part.PIPELINE, what=what)


def of_failed_look(error: Exception) -> Finding:
    """Return the finding that a look ended with *error*, which has no finding of its own."""
    what = f"the operator's last look failed: {type(error).__name__}: {error}"
    if isinstance(error, TimeoutError):
        what = "the operator's last look took too long, and was ended"
    return Finding(reason=Reason.LOOK_FAILED, part=Part.PIPELINE, what=what)


def of_nats(error: Exception, *, denied: str = "") -> Finding:
    """Return the finding for *error* of `logpipeline.nats`. *denied* is the last permission that
    the server denied on this connection: the request for it only times out.
    """
    if isinstance(error, Denied):
        return _nats(Reason.NATS_PERMISSION_DENIED, str(error))
    if denied and isinstance(error, OutcomeUnknown | NoResponders):
        return _nats(Reason.NATS_PERMISSION_DENIED, f"NATS denies a permission: {denied}")
    if isinstance(error, JetStreamOff):
        return _nats(Reason.JETSTREAM_DISABLED, str(error), advice="")
    if isinstance(error, ConnectFailed):
        return _connect_failed(str(error))
    if isinstance(error, ApiError):
        return _refused(error)
    if isinstance(error, TooLarge):
        return _nats(Reason.PAYLOAD_TOO_SMALL, str(error))
    if isinstance(error, NoResponders | OutcomeUnknown | Conflict | TimeoutError):
        return _nats(Reason.NATS_SILENT, str(error) or "no answer")
    return _nats(Reason.NATS_UNREACHABLE, str(error) or type(error).__name__)


def of_refusal(text: str) -> Reason:
    """Return the reason for a refused step of a plan, by the server's error code in its *text*."""
    found = re.search(r"\((\d{5})\)", text)
    code = int(found.group(1)) if found else 0
    return _JETSTREAM_CODES.get(code, Reason.STREAM_REFUSED)


def of_secret(text: str) -> Finding:
    """Return the finding for a problem with a Secret; *text* names it and says what to do."""
    is_missing = "does not exist" in text
    reason = Reason.SECRET_MISSING if is_missing else Reason.SECRET_INCOMPLETE
    advice = "" if is_missing or ";" in text else None
    return Finding(reason=reason, part=Part.NATS, what=text, advice=advice)


def of_kubernetes(child: str, error: ClusterError) -> Finding:
    """Return the problem that the API server refused *child* (``StatefulSet prod-collector``)."""
    meaning = _kubernetes_reason(error.status, error.reason, error.message.lower())
    what = f"{child}: Kubernetes says: {error.message or error.reason} ({error.status})"
    return Finding(reason=meaning, part=part_of(child), what=what)


def of_refused_choices(refused: Sequence[str]) -> Finding:
    """Return the finding that a class refuses the fields that the texts *refused* name."""
    what = f"the class does not allow: {listed(refused, shown_max=REFUSED_SHOWN_MAX)}"
    return Finding(reason=Reason.NOT_ALLOWED_BY_CLASS, part=Part.PIPELINE, what=what)


def of_class(name: str, error: SpecError | None) -> Finding:
    """Return the finding that the class *name* does not exist, or has mistakes."""
    why = "does not exist" if error is None else f"has mistakes: {error.mistakes[0]}"
    what = f"the LogPipelineClass {name} {why}"
    return Finding(reason=Reason.CLASS_UNUSABLE, part=Part.PIPELINE, what=what)


def of_unknown_namespaces(why: Exception) -> Finding:
    """Return the finding that the operator may not list namespaces."""
    what = (
        "spec.shippers.podNamespaces is Selector, and the operator may not list namespaces "
        f"({why}); the shippers go on with the namespaces that were listed last"
    )
    return Finding(reason=Reason.NAMESPACES_UNKNOWN, part=Part.SHIPPERS, what=what)


def of_undecided(error: Undecided) -> Finding:
    """Return the finding that the children of a component could not be decided."""
    part, what = Part(error.component.value), str(error)
    if not isinstance(error, NoSparkApi):
        return Finding(reason=Reason.IMAGE_UNKNOWN, part=part, what=what, advice="")
    reason = Reason.SPARK_OPERATOR_MISSING if error.is_known else Reason.KUBERNETES_AWAY
    return Finding(reason=reason, part=part, what=what)


def of_foreign_child(child: str) -> Finding:
    """Return the finding that an object with the name of *child* belongs to another owner."""
    what = f"{child}: it exists already, and belongs to another owner"
    return Finding(reason=Reason.FOREIGN_CHILD, part=part_of(child), what=what)


def of_pod_refusal(controller: str, message: str) -> Finding:
    """Return the finding for an event FailedCreate of *controller* (``StatefulSet
    prod-collector``).
    """
    reason = _admission_reason(message.lower()) or Reason.POD_REFUSED
    return Finding(reason=reason, part=part_of(controller), what=f"{controller}: {message}")


def _connect_failed(text: str) -> Finding:
    lower = text.lower()
    # The text begins with the server's address, which may contain any of these words.
    why = lower.partition(": ")[2] or lower
    for reason, words in _CONNECT_WORDS:
        if any(word in why for word in words):
            return _nats(reason, text)
    return _nats(Reason.NATS_UNREACHABLE, text)


def _refused(error: ApiError) -> Finding:
    reason = _JETSTREAM_CODES.get(error.err_code)
    if reason is None:
        # Without a known code, the status tells whether the server or the request is the cause.
        is_busy = error.code in (408, 500, 503)
        reason = Reason.NATS_SILENT if is_busy else Reason.STREAM_REFUSED
    return _nats(reason, str(error))


def _kubernetes_reason(status: int, reason: str, message: str) -> Reason:
    if status == HTTPStatus.FORBIDDEN:
        if "being terminated" in message:
            return Reason.NAMESPACE_ENDS
        # Admission refuses with the same status, such as a claim that cannot grow.
        is_right = " cannot " in message or not message
        refused = Reason.KUBERNETES_FORBIDDEN if is_right else Reason.KUBERNETES_REFUSED
        return _admission_reason(message) or refused
    if status == HTTPStatus.UNAUTHORIZED:
        return Reason.KUBERNETES_FORBIDDEN
    if status == HTTPStatus.NOT_FOUND:
        return Reason.NAMESPACE_ENDS if "namespaces" in message else Reason.KIND_MISSING
    if status == HTTPStatus.CONFLICT:
        # Any other conflict is a race; the next reconciliation tries again.
        is_field = "field manager" in message or "conflict with" in message
        return Reason.FIELD_CONFLICT if is_field else Reason.KUBERNETES_AWAY
    if (
        status == HTTPStatus.TOO_MANY_REQUESTS
        or status >= 500
        or reason in ("Timeout", "ServerTimeout")
    ):
        return Reason.KUBERNETES_AWAY
    return Reason.KUBERNETES_REFUSED


def _admission_reason(message: str) -> Reason | None:
    if any(word in message for word in _QUOTA_WORDS):
        return Reason.QUOTA_EXCEEDED
    if any(word in message for word in _ADMISSION_WORDS):
        return Reason.POD_SECURITY
    return None


def _nats(reason: Reason, what: str, *, advice: str | None = None) -> Finding:
    return Finding(reason=reason, part=Part.NATS, what=what, advice=advice)
