"""What a pod's token proves, what a server asks, and what the children of a pipeline are told."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from typing import Any

import jwt
import nkeys
import pytest

from cluster.child_manifests import child, children, resource
from cluster.child_manifests import settings as child_settings
from cluster.pod_tokens import ApiServer
from logpipeline.authority import user_of_reader
from logpipeline_operator.callout.claims import BadRequest, Issuer, Request, new_seed
from logpipeline_operator.callout.service import Answers
from logpipeline_operator.callout.tokens import AccountToken, BadToken, Keys
from logpipeline_operator.children import credentials

AUDIENCE = "prod-nats.logging.nats.logpipeline.dev"
API = ApiServer()
KEYS = Keys.parse(API.jwks())
USERS_SEED = bytes(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER)).decode()
ISSUER = Issuer(new_seed(bytes(range(32))))


def asked(**changes: Any) -> bytes:
    """A request as a server sends it, with *changes* of what it asks."""
    claims = {
        "server_id": {"id": "NSERVER"},
        "user_nkey": "UCLIENT",
        "connect_opts": {"auth_token": "t"},
        "client_info": {"host": "10.0.0.7"},
        "type": "authorization_request",
        **changes,
    }
    return b".".join((b"e30", _packed({"nats": claims}), b"c2ln"))


def _packed(value: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def claims_of(token: bytes) -> dict[str, Any]:
    """What *token* claims."""
    text = token.split(b".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
    return claims


def test_a_pods_token_says_who_and_where_it_is() -> None:
    """Namespace, account, pod, node, and how long that holds."""
    found = KEYS.read(API.token(AUDIENCE, lives_s=600), AUDIENCE)

    assert found == AccountToken(
        namespace="logging",
        account="prod-shipper",
        pod="prod-shipper-x7k2p",
        node="node-1",
        expires_s=found.expires_s,
    )
    assert 590 < found.expires_s - time.time() < 601


def _unsigned(token: str) -> str:
    claims = jwt.decode(token, options={"verify_signature": False})
    return jwt.encode(claims, "", "none", headers={"kid": API.key_id})


def _signed_with_what_is_public(token: str) -> str:
    # The confusion of algorithms: a public key taken for a secret.
    claims = jwt.decode(token, options={"verify_signature": False})
    return jwt.encode(claims, "n" * 64, "HS256", headers={"kid": API.key_id})


@pytest.mark.parametrize(
    ("token", "why", "cause"),
    [
        ("", "there is none", "no-token"),
        ("x" * 20_000, "more than", "malformed"),
        ("no.token.at-all", "(?i)invalid", "malformed"),
        (API.token("another"), "(?i)audience", "other-audience"),
        (API.token(AUDIENCE, lives_s=-60), "expired", "not-valid-now"),
        (
            API.token(AUDIENCE, claims={"nbf": int(time.time()) + 600}),
            "not yet valid",
            "not-valid-now",
        ),
        (ApiServer("key-2").token(AUDIENCE), "not the cluster's", "unknown-key"),
        (ApiServer("key-1").token(AUDIENCE), "(?i)signature", "unknown-key"),
        (_unsigned(API.token(AUDIENCE)), "(?i)alg", "unknown-key"),
        (_signed_with_what_is_public(API.token(AUDIENCE)), "(?i)alg", "unknown-key"),
        (
            API.token(AUDIENCE, claims={"kubernetes.io": {"namespace": "logging"}}),
            "a service account",
            "malformed",
        ),
        (
            API.token(AUDIENCE, claims={"kubernetes.io": "logging"}),
            "a service account",
            "malformed",
        ),
    ],
)
def test_other_tokens_prove_nothing(token: str, why: str, cause: str) -> None:
    """Whatever is wrong, it is said without the token, and counted by its kind."""
    with pytest.raises(BadToken, match=why) as caught:
        KEYS.read(token, AUDIENCE)

    assert caught.value.cause.value == cause
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": []}', '{"keys": [{"kty": "RSA"}]}'])
def test_what_holds_no_key_is_refused(text: str) -> None:
    """An API server that answers something else must not empty the keys."""
    with pytest.raises(ValueError, match="no set of keys"):
        Keys.parse(text)


def test_a_servers_request_is_read() -> None:
    """Who connects, with which token, from where."""
    assert Request.decode(asked()) == Request(
        user_key="UCLIENT", server_id="NSERVER", token="t", address="10.0.0.7"
    )


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"..",
        b"a.b.c",
        b"x" * 100_000,
        asked(type="user"),
        asked(connect_opts=[]),
        asked(server_id=1),
    ],
    ids=range(7),
)
def test_what_is_no_request_is_refused(payload: bytes) -> None:
    """It may come from anybody who may publish there."""
    with pytest.raises(BadRequest):
        Request.decode(payload)


@pytest.mark.parametrize("seed", ["", "x", USERS_SEED])
def test_what_is_no_accounts_seed_is_refused(seed: str) -> None:
    """A user's seed would sign what no server believes."""
    with pytest.raises(ValueError, match="seed"):
        Issuer(seed)


def test_a_node_gets_a_user_of_its_own() -> None:
    """In the account of nodes, for its own host, and no longer than its token lasts."""
    pipeline = resource({"partitions": 2})
    now_s = int(time.time())
    request = replace(Request.decode(asked()), token=API.token(AUDIENCE, lives_s=600))
    answer = Answers(pipeline, ISSUER, lambda: KEYS).answer(request, now_s)
    response = claims_of(answer.payload)
    user = claims_of(response["nats"]["jwt"].encode())

    assert (response["sub"], response["aud"], response["iss"]) == (
        "UCLIENT", "NSERVER", ISSUER.public_key,
    )  # fmt: skip
    assert (user["sub"], user["aud"], user["name"]) == ("UCLIENT", "NODES", "shipper-node-1")
    assert now_s + 599 <= user["exp"] <= now_s + 601
    allowed = user["nats"]["pub"]["allow"] + user["nats"]["sub"]["allow"]
    assert all("node-1" in subject or "status" in subject for subject in allowed)


def test_a_token_for_a_node_without_a_pod_there_is_no_shippers() -> None:
    """`kubectl create token --bound-object-kind=Node` makes one for any node."""
    token = API.token(AUDIENCE, pod=None)
    request = replace(Request.decode(asked()), token=token)
    answer = Answers(resource({"partitions": 2}), ISSUER, lambda: KEYS).answer(request, 1)
    response = claims_of(answer.payload)["nats"]

    assert not response.get("jwt")
    assert "does not name a pod" in response["error"]


def test_who_looks_gets_a_user_that_only_looks() -> None:
    """In an account without streams, with an inbox that no other reader hears."""
    token = API.token(AUDIENCE, account="prod-reader", pod=None, node=None)
    request = replace(Request.decode(asked()), token=token)
    answer = Answers(resource({"partitions": 2}), ISSUER, lambda: KEYS).answer(request, 1)
    user = claims_of(claims_of(answer.payload)["nats"]["jwt"].encode())
    allowed = user["nats"]["pub"]["allow"]

    assert user["aud"] == "READERS"
    assert user["nats"]["sub"]["allow"] == [f"_INBOX_{user_of_reader(token)}.>"]
    assert "resp" not in user["nats"]
    reads = ("INFO", "DIRECT.GET", "STREAM.LIST", "CONSUMER.LIST")
    assert [each for each in allowed if not any(word in each for word in reads)] == [
        "_lp.lp_dlogging_dprod.status.collector",
        "_lp.lp_dlogging_dprod.status.shipper",
    ]


def test_a_server_with_a_callout_gives_nodes_no_password() -> None:
    """Its container has no right in the cluster, and the shippers' pods hold tokens alone."""
    settings = child_settings(
        image_callout="o:1",
        has_accounts=True,
        callout_user="hash",
        token_keys=API.jwks(),
    )
    found = children({}, settings)
    server = child(found, "StatefulSet", "prod-nats")["spec"]["template"]["spec"]
    shipper = child(found, "DaemonSet", "prod-shipper")["spec"]["template"]["spec"]
    text = child(found, "ConfigMap", "prod-nats")["data"]["nats.conf"]

    assert [each["name"] for each in server["containers"]] == ["nats", "callout"]
    assert server["automountServiceAccountToken"] is False
    assert "secret" not in json.dumps(shipper["volumes"])
    assert credentials.CALLOUT_FILE in text
    assert "auth_callout" in text
    assert "auth_callout" not in child(children({}), "ConfigMap", "prod-nats")["data"]["nats.conf"]
    assert "secret" in json.dumps(child(children({}), "DaemonSet", "prod-shipper"))


def test_new_keys_restart_no_server() -> None:
    """The callout reads them again."""
    given: dict[str, Any] = {"image_callout": "o:1", "has_accounts": True, "callout_user": "hash"}
    one, two = (
        child(children({}, child_settings(**given, token_keys=keys)), "StatefulSet", "prod-nats")
        for keys in (API.jwks(), ApiServer("key-2").jwks())
    )

    assert one == two


def test_a_callouts_image_is_pulled_with_our_secrets_beside_those_of_a_server() -> None:
    """A server's image may be somebody else's, from a registry of its own."""
    settings = child_settings(
        image_callout="o:1",
        has_accounts=True,
        callout_user="hash",
        image_pull_secrets=("ours", "theirs"),
    )
    managed = {"managed": {"imagePullSecrets": [{"name": "theirs"}]}}
    server = child(children({"nats": managed}, settings), "StatefulSet", "prod-nats")

    assert server["spec"]["template"]["spec"]["imagePullSecrets"] == [
        {"name": "theirs"},
        {"name": "ours"},
    ]
