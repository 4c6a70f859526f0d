"""Tokens as an API server signs them for pods, and the keys that it publishes."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

TOKEN_S = 600


@dataclass
class ApiServer:
    """The part of an API server that signs tokens, with a key of its own."""

    key_id: str = "key-1"
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    def jwks(self) -> str:
        """Return what ``/openid/v1/jwks`` answers."""
        numbers = self.key.public_key().public_numbers()
        entry = {
            "kty": "RSA", "alg": "RS256", "use": "sig", "kid": self.key_id,
            "n": _base64(numbers.n), "e": _base64(numbers.e),
        }  # fmt: skip
        return json.dumps({"keys": [entry]})

    def token(
        self,
        audience: str,
        *,
        namespace: str = "logging",
        account: str = "prod-shipper",
        pod: str | None = "prod-shipper-x7k2p",
        node: str | None = "node-1",
        lives_s: float = TOKEN_S,
        claims: dict[str, Any] | None = None,
    ) -> str:
        """Return the token of a pod, or of a person where that is None, with other *claims*."""
        now_s = int(time.time())
        bound: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": account, "uid": "2"},
        }
        if pod is not None:
            bound["pod"] = {"name": pod, "uid": "1"}
        if node is not None:
            bound["node"] = {"name": node, "uid": "3"}
        made = {
            "aud": [audience],
            "exp": now_s + lives_s,
            "iat": now_s,
            "iss": "https://kubernetes.default.svc.cluster.local",
            "kubernetes.io": bound,
            "nbf": now_s,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            **(claims or {}),
        }
        return jwt.encode(made, self.key, "RS256", headers={"kid": self.key_id})


def _base64(number: int) -> str:
    raw = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
