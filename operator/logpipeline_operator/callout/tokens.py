"""Tokens of pods: verifies that the cluster signed them, and reads the pod and its node.

They are the JWTs that the kubelet puts into a pod for one audience (projected service account
tokens). The API server publishes the keys that verify them, so that no request is needed, and
shippers can connect while the API server is down.
https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from logpipeline import json_text
from logpipeline_operator.callout.refusals import Cause

# The algorithms of API servers; a token with another one, such as none, is refused.
ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")
# The clock of the API server may differ.
LEEWAY_S = 10
TOKEN_BYTES_MAX = 16 * 1024


class BadToken(Exception):
    """An invalid token; the text says why, and never contains the token."""

    def __init__(self, why: str, cause: Cause = Cause.MALFORMED) -> None:
        self.cause = cause
        super().__init__(why)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountToken:
    """The content of a valid token: the *pod* of *namespace* that runs as *account* on *node*; it
    expires at *expires_s* of the wall clock. The pod is empty in a token that was made for a
    person; the node is empty there, too, and in clusters before Kubernetes 1.32.
    """

    namespace: str
    account: str
    pod: str
    node: str
    expires_s: int


class Keys:
    """The keys of a cluster's API servers."""

    def __init__(self, keys: Mapping[str, jwt.PyJWK]) -> None:
        self._keys = keys

    @staticmethod
    def parse(text: str) -> Keys:
        """Return the keys of *text*, a JSON Web Key Set as ``/openid/v1/jwks`` answers.

        Raises:
            ValueError: it is not such a set, or has no key.
        """
        try:
            found = jwt.PyJWKSet.from_dict(json_text.parse(text)).keys
        except (ValueError, TypeError, AttributeError, jwt.PyJWTError) as error:
            raise ValueError(f"no set of keys of an API server: {error}") from error
        return Keys({str(key.key_id): key for key in found})

    def read(self, token: str, audience: str) -> AccountToken:
        """Return the content of *token*, if it is valid now, and for *audience*.

        Raises:
            BadToken: it is invalid.
        """
        if not token:
            raise BadToken("there is none", Cause.NO_TOKEN)
        if len(token) > TOKEN_BYTES_MAX:
            raise BadToken(f"it has more than {TOKEN_BYTES_MAX} bytes")
        try:
            name = str(jwt.get_unverified_header(token).get("kid"))
            key = self._keys.get(name)
            if key is None:
                why = f"it is signed with a key that is not the cluster's: {name[:64]!r}"
                raise BadToken(why, Cause.UNKNOWN_KEY)
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise BadToken(str(error), _cause_of(error)) from error
        except (ValueError, RecursionError) as error:
            # The library encodes a token, and parses its JSON, before it looks at the signature: it
            # may hold lone surrogates, or be nested too deeply.
            raise BadToken(f"it cannot be read: {type(error).__name__}") from error
        return _account_of(claims)


def _cause_of(error: jwt.PyJWTError) -> Cause:
    causes = (
        (jwt.InvalidAudienceError, Cause.OTHER_AUDIENCE),
        ((jwt.ExpiredSignatureError, jwt.ImmatureSignatureError), Cause.NOT_VALID_NOW),
        ((jwt.InvalidSignatureError, jwt.InvalidAlgorithmError), Cause.UNKNOWN_KEY),
    )
    return next((cause for kinds, cause in causes if isinstance(error, kinds)), Cause.MALFORMED)


def _account_of(claims: Mapping[str, Any]) -> AccountToken:
    """Return the account in *claims*, whose signature was verified."""
    try:
        bound = claims["kubernetes.io"]
        return AccountToken(
            namespace=bound["namespace"],
            account=bound["serviceaccount"]["name"],
            pod=bound.get("pod", {}).get("name", ""),
            node=bound.get("node", {}).get("name", ""),
            expires_s=int(claims["exp"]),
        )
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadToken("it is not the token of a service account") from error
