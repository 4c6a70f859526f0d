"""What servers answer becomes a reason that a user can act on."""

from __future__ import annotations

import pytest

from logpipeline.nats.connection import (
    ConnectFailed,
    Denied,
    NoResponders,
    NotSent,
    OutcomeUnknown,
    TooLarge,
)
from logpipeline.nats.jetstream import ApiError
from logpipeline.plan.observe import JetStreamOff
from logpipeline_operator.children.model import Component, NoImage
from logpipeline_operator.cluster.client import ClusterError
from logpipeline_operator.status import Part, Reason
from logpipeline_operator.status import errors as errors_of

AT = "cannot connect to NATS at tls://nats-certificate-authorization.example.net:4222: "
NATS_CASES = [
    (ConnectFailed(AT + "no server answers there; is it running?"), Reason.NATS_UNREACHABLE),
    (ConnectFailed(AT + "no answer"), Reason.NATS_UNREACHABLE),
    (
        ConnectFailed(AT + "nats: 'Authorization Violation' (the server asks for credentials)"),
        Reason.NATS_CREDENTIALS_REFUSED,
    ),
    (
        ConnectFailed(AT + "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
        Reason.NATS_TLS_FAILED,
    ),
    (ConnectFailed(AT + "nats: secure connection not available"), Reason.NATS_TLS_FAILED),
    (Denied("$JS.API.INFO"), Reason.NATS_PERMISSION_DENIED),
    (JetStreamOff("the nats-server has no JetStream: enable it"), Reason.JETSTREAM_DISABLED),
    (OutcomeUnknown("no answer on $JS.API.INFO in 5 s"), Reason.NATS_SILENT),
    (NoResponders("nothing answers on x"), Reason.NATS_SILENT),
    (NotSent("not connected to NATS"), Reason.NATS_UNREACHABLE),
    (TooLarge(2, 1), Reason.PAYLOAD_TOO_SMALL),
    (ApiError("INFO", 503, 10008, "temporarily unavailable"), Reason.NATS_SILENT),
    (ApiError("STREAM.CREATE.X", 400, 10027, "maximum streams"), Reason.ACCOUNT_LIMIT),
    (ApiError("STREAM.CREATE.X", 400, 10999, "odd"), Reason.STREAM_REFUSED),
    (ApiError("INFO", 503, 0, "odd"), Reason.NATS_SILENT),
    (OSError(), Reason.NATS_UNREACHABLE),
]


@pytest.mark.parametrize(("error", "reason"), NATS_CASES)
def test_errors_of_nats(error: Exception, reason: Reason) -> None:
    """Each way in which NATS fails tells what to do about it, and is not taken for another."""
    found = errors_of.of_nats(error)

    assert (found.reason, found.part) == (reason, Part.NATS)
    assert found.message


def test_a_denied_permission_is_no_silence() -> None:
    """The server does not answer what is not permitted; what it said aside tells."""
    error = OutcomeUnknown("no answer on $JS.API.INFO in 5 s")
    found = errors_of.of_nats(error, denied="permissions violation for publish to $js.api.info")

    assert found.reason is Reason.NATS_PERMISSION_DENIED
    assert "$js.api.info" in found.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("the Secret nats does not exist; create it", Reason.SECRET_MISSING),
        ("the Secret nats has no key ca.crt (it has: a); add it", Reason.SECRET_INCOMPLETE),
        ("ca.crt of the Secret nats: Invalid base64", Reason.SECRET_INCOMPLETE),
    ],
)
def test_problems_with_secrets(text: str, reason: Reason) -> None:
    """A Secret that is not there is another thing than one that lacks a key."""
    found = errors_of.of_secret(text)

    assert found.reason is reason
    assert text in found.message


FORBIDDEN = 'statefulsets.apps is forbidden: User "x" cannot patch resource'
CANNOT_GROW = 'persistentvolumeclaims "x" is forbidden: only dynamically provisioned pvc can grow'
KUBERNETES_CASES = [
    (403, "Forbidden", FORBIDDEN, Reason.KUBERNETES_FORBIDDEN),
    (401, "Unauthorized", "Unauthorized", Reason.KUBERNETES_FORBIDDEN),
    (403, "Forbidden", 'pods "x" is forbidden: exceeded quota: q', Reason.QUOTA_EXCEEDED),
    (403, "Forbidden", CANNOT_GROW, Reason.KUBERNETES_REFUSED),
    (403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "x"', Reason.POD_SECURITY),
    (403, "Forbidden", "namespace team because it is being terminated", Reason.NAMESPACE_ENDS),
    (404, "NotFound", "the server could not find the requested resource", Reason.KIND_MISSING),
    (404, "NotFound", 'namespaces "team" not found', Reason.NAMESPACE_ENDS),
    (409, "Conflict", 'Apply failed with 1 conflict: conflict with "hpa"', Reason.FIELD_CONFLICT),
    (409, "Conflict", "the object has been modified", Reason.KUBERNETES_AWAY),
    (422, "Invalid", "spec.template.spec.tolerations[0]: Invalid", Reason.KUBERNETES_REFUSED),
    (400, "BadRequest", "admission webhook denied the request", Reason.KUBERNETES_REFUSED),
    (429, "TooManyRequests", "", Reason.KUBERNETES_AWAY),
    (500, "InternalError", "", Reason.KUBERNETES_AWAY),
]


@pytest.mark.parametrize(("status", "word", "message", "reason"), KUBERNETES_CASES)
def test_refusals_of_kubernetes(status: int, word: str, message: str, reason: Reason) -> None:
    """Each refusal of the API server names the child, what it said, and what to do."""
    child = "StatefulSet prod-collector"
    found = errors_of.of_kubernetes(child, ClusterError(status, word, message))

    assert (found.reason, found.part) == (reason, Part.COLLECTORS)
    assert found.message.startswith(f"{child}: Kubernetes says: {message or word}")
    assert found.message.endswith(reason.value.do)


@pytest.mark.parametrize(
    ("child", "part"),
    [
        ("StatefulSet prod-collector", Part.COLLECTORS),
        ("DaemonSet prod-shipper", Part.SHIPPERS),
        ("ConfigMap prod-sidecar", Part.SHIPPERS),
        ("ClusterRoleBinding logpipeline-shipper:team:prod-nats", Part.SHIPPERS),
        ("Service prod-nats-headless", Part.NATS),
        ("LogPipeline prod", Part.PIPELINE),
    ],
)
def test_a_child_belongs_to_a_part(child: str, part: Part) -> None:
    """What is wrong with a child shows in the condition of its part."""
    assert errors_of.of_foreign_child(child).part is part


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "prod-collector-0" is forbidden: exceeded quota: small', Reason.QUOTA_EXCEEDED),
        ('violates PodSecurity "restricted:latest": hostPath volumes', Reason.POD_SECURITY),
        ("serviceaccount prod-collector not found", Reason.POD_REFUSED),
    ],
)
def test_pods_that_a_controller_may_not_make(message: str, reason: Reason) -> None:
    """Only an event tells of it; a StatefulSet has no condition for it."""
    found = errors_of.of_pod_refusal("StatefulSet prod-collector", message)

    assert (found.reason, found.part) == (reason, Part.COLLECTORS)


def test_an_image_that_nobody_named() -> None:
    """Without an image no pod can be made, and the message says where to set it."""
    found = errors_of.of_undecided(NoImage(Component.SHIPPER, "spec.shippers.image"))

    assert (found.reason, found.part) == (Reason.IMAGE_UNKNOWN, Part.SHIPPERS)
    assert "spec.shippers.image" in found.message
    assert "LOGPIPELINE_IMAGE_SHIPPER" in found.message
