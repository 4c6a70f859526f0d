"""Requests of a nats-server to an auth callout, and the answers: JWTs, signed with nkeys.

https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_callout
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import nkeys

from logpipeline import json_text

REQUEST_BYTES_MAX = 64 * 1024
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_REQUEST = "authorization_request"
_VERSION = 2
# No limit, as a user of the server's own configuration has none.
_UNLIMITED = -1

Claims = dict[str, Any]


class BadRequest(Exception):
    """A message that is not a request of a nats-server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client that wants to connect: *user_key* names its connection, *server_id* the server that
    asks, *token* is what it presents, *address* where it comes from; *has_user*: it names a user.
    """

    user_key: str
    server_id: str
    token: str
    address: str
    has_user: bool = False

    @staticmethod
    def decode(payload: bytes) -> Request:
        """Return the request that a server sent. Its signature is not checked: a false server only
        gets the rights of the token that it shows.

        Raises:
            BadRequest: *payload* is not such a request.
        """
        if len(payload) > REQUEST_BYTES_MAX:
            raise BadRequest(f"{len(payload)} bytes, more than {REQUEST_BYTES_MAX}")
        try:
            asked = json_text.parse(_unpacked(payload.split(b".")[1]))["nats"]
            if asked["type"] != _REQUEST:
                raise BadRequest(f"of another kind: {asked['type']!r:.40}")
            return Request(
                user_key=str(asked["user_nkey"]),
                server_id=str(asked["server_id"]["id"]),
                token=str(asked["connect_opts"].get("auth_token", "")),
                address=str(asked["client_info"].get("host", "")),
                has_user=bool(asked["connect_opts"].get("user")),
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise BadRequest(f"no request of an auth callout: {payload[:40]!r}") from error


class Issuer:
    """Signs the answers to the server, with the key of an account."""

    def __init__(self, seed: str) -> None:
        """Take the *seed* of an account's nkey (``SA…``).

        Raises:
            ValueError: it is not such a seed.
        """
        try:
            self._pair = nkeys.from_seed(bytearray(seed.strip().encode()))
            self.public_key = self._pair.public_key.decode()
        except (nkeys.NkeysError, binascii.Error) as error:
            raise ValueError("not the seed of an nkey; give one that begins with SA") from error
        if not self.public_key.startswith("A"):
            raise ValueError("not the seed of an account; give one that begins with SA")

    def refuse(self, request: Request, why: str, now_s: int) -> bytes:
        """Return the answer that refuses *request*; *why* is for the server's log."""
        return self._respond(request, {"error": why}, now_s)

    def admit(
        self,
        request: Request,
        *,
        user: str,
        account: str,
        permissions: Claims,
        expires_s: int,
        now_s: int,
    ) -> bytes:
        """Return the answer that admits *request* as *user* of *account*, until *expires_s*, with
        *permissions* in the format of the server's configuration.
        """
        claims = {
            "sub": request.user_key,
            "aud": account,
            "name": user,
            "exp": expires_s,
            "nats": {
                "type": "user",
                "version": _VERSION,
                "subs": _UNLIMITED,
                "data": _UNLIMITED,
                "payload": _UNLIMITED,
                **_as_claims(permissions),
            },
        }
        return self._respond(request, {"jwt": self._sign(claims, now_s).decode()}, now_s)

    def _respond(self, request: Request, answer: Claims, now_s: int) -> bytes:
        claims = {
            "sub": request.user_key,
            "aud": request.server_id,
            "nats": {"type": "authorization_response", "version": _VERSION, **answer},
        }
        return self._sign(claims, now_s)

    def _sign(self, claims: Claims, now_s: int) -> bytes:
        claims = {**claims, "iat": now_s, "iss": self.public_key}
        digest = hashlib.sha256(_json(claims)).digest()
        claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
        signed = _packed(_json(_HEADER)) + b"." + _packed(_json(claims))
        return signed + b"." + _packed(self._pair.sign(signed))


def new_seed(random: bytes) -> str:
    """Return the seed of an account's nkey, of 32 *random* bytes."""
    return bytes(nkeys.encode_seed(random, nkeys.PREFIX_BYTE_ACCOUNT)).decode()


def _as_claims(permissions: Claims) -> Claims:
    """Return *permissions*, in the format of the server's configuration, in that of a JWT."""
    claims = {
        "pub": {"allow": permissions["publish"]["allow"]},
        "sub": {"allow": permissions["subscribe"]["allow"]},
    }
    if answers := permissions.get("allow_responses"):
        claims["resp"] = {"max": answers["max"], "ttl": _nanoseconds(answers["expires"])}
    return claims


def _nanoseconds(span: str) -> int:
    assert span.endswith("m"), span
    return int(span[:-1]) * 60 * 10**9


def _json(claims: Claims) -> bytes:
    return json.dumps(claims, separators=(",", ":")).encode()


def _packed(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unpacked(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
