"""Which user a pod is to its pipeline's server: a shipper that speaks for its own node alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logpipeline.authority import NODES_ACCOUNT, SHIPPER, permissions, user_of_host
from logpipeline.spec import LogPipeline
from logpipeline.subjects import BadHost, check_host
from logpipeline_operator.callout.claims import Issuer, Request
from logpipeline_operator.callout.tokens import BadToken, Keys, PodToken
from logpipeline_operator.children import names, nats_auth

# A user that was issued goes on until its token ends, and not longer than this.
USER_S_MAX = 3600


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server is told, and for our own log why a client was refused, else empty."""

    payload: bytes
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Answers:
    """Decides for the server of *pipeline*, by the *keys* of its cluster."""

    pipeline: LogPipeline
    issuer: Issuer
    keys: Callable[[], Keys]

    def answer(self, request: Request, now_s: int) -> Answer:
        """Return what is answered to *request*."""
        try:
            token = self.keys().read(request.token, nats_auth.audience(self.pipeline))
            host = _host(self.pipeline, token)
        except (BadToken, BadHost) as error:
            why = f"the token of a pod is wanted: {error}"
            return Answer(self.issuer.refuse(request, why, now_s), why)
        user = user_of_host(host)
        return Answer(
            self.issuer.admit(
                request,
                user=user,
                account=NODES_ACCOUNT,
                permissions=permissions(self.pipeline, SHIPPER, user=user, hosts=[host]),
                expires_s=min(token.expires_s, now_s + USER_S_MAX),
                now_s=now_s,
            )
        )


def _host(pipeline: LogPipeline, token: PodToken) -> str:
    account = pipeline.spec.shippers.service_account_name or names.shipper(pipeline)
    if (token.namespace, token.account) != (pipeline.namespace, account):
        raise BadToken(
            f"it is that of {token.namespace}/{token.account}, and {pipeline.namespace}/{account} "
            "is the shippers'"
        )
    if not token.node:
        raise BadToken("it does not name the pod's node, as those of Kubernetes 1.32 do")
    return check_host(token.node)
