"""Which user somebody is to a pipeline's server: a shipper, which speaks for the node of its pod
alone, or somebody who looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from logpipeline.authority import (
    NODES_ACCOUNT,
    READER,
    READERS_ACCOUNT,
    SHIPPER,
    Permissions,
    permissions,
    user_of_host,
    user_of_reader,
)
from logpipeline.spec import LogPipeline
from logpipeline.subjects import BadHost, check_host
from logpipeline_operator.callout.claims import Issuer, Request
from logpipeline_operator.callout.refusals import Cause
from logpipeline_operator.callout.tokens import AccountToken, BadToken, Keys
from logpipeline_operator.children import names, nats_auth

# A user that was issued goes on until its token ends, and not longer than this.
USER_S_MAX = 3600


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server is told, and for our own log why a client was refused, else empty; *cause* is
    the kind of that.
    """

    payload: bytes
    refused: str = ""
    cause: Cause | None = None


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
            who = _who(self.pipeline, token, request.token)
        except (BadToken, BadHost) as error:
            why = f"the token of a shipper's pod, or of a reader, is wanted: {error}"
            return Answer(self.issuer.refuse(request, why, now_s), why, _cause(error, request))
        return Answer(
            self.issuer.admit(
                request,
                user=who.user,
                account=who.account,
                permissions=who.permissions,
                expires_s=min(token.expires_s, now_s + USER_S_MAX),
                now_s=now_s,
            )
        )


def _cause(error: BadToken | BadHost, request: Request) -> Cause:
    if isinstance(error, BadHost):
        return Cause.NO_NODE
    is_user = error.cause is Cause.NO_TOKEN and request.has_user
    return Cause.UNKNOWN_USER if is_user else error.cause


class _Who(NamedTuple):
    """A *user* of one of the server's accounts."""

    user: str
    account: str
    permissions: Permissions


def _who(pipeline: LogPipeline, token: AccountToken, text: str) -> _Who:
    """Return who shows *token*, whose *text* was proved."""
    shipper = pipeline.spec.shippers.service_account_name or names.shipper(pipeline)
    if token.namespace == pipeline.namespace and token.account == shipper:
        if not token.node:
            why = "it does not name a pod's node, as those of Kubernetes 1.32 do"
            raise BadToken(why, Cause.NO_NODE)
        host = check_host(token.node)
        user = user_of_host(host)
        allowed = permissions(pipeline, SHIPPER, user=user, hosts=[host])
        return _Who(user, NODES_ACCOUNT, allowed)
    if token.namespace == pipeline.namespace and token.account == names.reader(pipeline):
        user = user_of_reader(text)
        return _Who(user, READERS_ACCOUNT, permissions(pipeline, READER, user=user))
    raise BadToken(f"it is that of {token.namespace}/{token.account}", Cause.OTHER_ACCOUNT)
