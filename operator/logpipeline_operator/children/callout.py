"""What answers a managed server that asks who a client is: a container beside it, which gets from
the operator how the tokens of this cluster's pods are proved.

It has no right in the cluster, and needs neither the API server nor the operator while it runs:
shippers come and go whoever of these is away. It looks at the server's files as well, and ends a
server under which they were removed.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import GROUP
from logpipeline_operator.children import config, names, nats_auth, nats_conf, pods
from logpipeline_operator.children.model import (
    CALLOUT_PORT,
    NATS_MONITOR_PORT,
    NATS_PORT,
    ChildSettings,
    Component,
    Manifest,
    given,
)

CONTAINER = "callout"
KEYS_FILE = "jwks.json"
USER_ANNOTATION = f"{GROUP}/nats-callout-user"
CONFIG_ANNOTATION = f"{GROUP}/callout-config-hash"
RESOURCES: Manifest = {"requests": {"cpu": "10m", "memory": "48Mi"}}
# The kubelet puts a new token there long before the old one ends.
TOKEN_S = 3600


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return what the callout reads, but for its Secret; nothing where there is none."""
    if not settings.has_callout:
        return []
    text = config.render(config.for_callout(pipeline))
    keys = {KEYS_FILE: settings.token_keys}
    return [
        config.config_map(pipeline, names.callout_auth(pipeline), Component.NATS, text, keys),
        # Who may make tokens of it may look, and nothing else: it has no right in the cluster.
        pods.service_account(pipeline, Component.NATS, names.reader(pipeline)),
    ]


def add_to(template: Manifest, pipeline: LogPipeline, settings: ChildSettings) -> None:
    """Add the callout to the *template* of a managed server's pods, where there is one."""
    if not settings.has_callout:
        return
    spec = template["spec"]
    spec["containers"].append(_container(settings))
    # To end a server that writes into files which are gone.
    spec["shareProcessNamespace"] = True
    spec["volumes"].append(_volume(pipeline))
    # The pipeline may name Secrets for a server's image of its own; ours is from elsewhere.
    pulling = spec.get("imagePullSecrets", [])
    pulling += [each for each in pods.pull_secrets(settings) if each not in pulling]
    spec |= given({"imagePullSecrets": pulling})
    # Keys may change, and are read again; all else is read at the start.
    text = config.render(config.for_callout(pipeline))
    template["metadata"]["annotations"] |= {
        USER_ANNOTATION: settings.nats_callout_user,
        CONFIG_ANNOTATION: config.hash_of(text),
    }


def token_source(pipeline: LogPipeline, below: str) -> Manifest:
    """Return the source of a projected volume that puts a shipper's token *below* its folder."""
    return {
        "serviceAccountToken": {
            "audience": nats_auth.audience(pipeline),
            "expirationSeconds": TOKEN_S,
            "path": f"{below}/{config.TOKEN_PATH}",
        }
    }


def _volume(pipeline: LogPipeline) -> Manifest:
    name = names.callout_auth(pipeline)
    volume = config.volume(pipeline, name, nats_auth.CALLOUT, (config.FILE, KEYS_FILE))
    seed = nats_auth.ISSUER_SEED
    items = [{"key": seed, "path": seed}]
    volume["projected"]["sources"].append({"secret": {"name": name, "items": items}})
    return {**volume, "name": CONTAINER}


def _container(settings: ChildSettings) -> Manifest:
    return {
        "name": CONTAINER,
        "image": settings.image_callout,
        "args": [
            "callout",
            "-f", str(config.FOLDER / config.FILE),
            "--keys", str(config.FOLDER / KEYS_FILE),
            "--issuer", str(config.FOLDER / nats_auth.ISSUER_SEED),
            "--nats", f"nats://127.0.0.1:{NATS_PORT}",
            "--store", nats_conf.STORE,
            "--pages", f"http://127.0.0.1:{NATS_MONITOR_PORT}{nats_conf.pages(settings.nats_users)}",
            "--http", f"0.0.0.0:{CALLOUT_PORT}",
        ],
        "ports": [{"protocol": "TCP", "name": "http", "containerPort": CALLOUT_PORT}],
        "volumeMounts": [
            {"name": CONTAINER, "mountPath": str(config.FOLDER), "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": nats_conf.CLAIM, "mountPath": nats_conf.STORE, "readOnly": True},
        ],
        "securityContext": pods.RESTRICTED_CONTAINER,
        "resources": RESOURCES,
        "livenessProbe": pods.http_probe("/healthz", "http", period_s=10, failures=6),
        **given({"imagePullPolicy": settings.image_pull_policy}),
    }  # fmt: skip
