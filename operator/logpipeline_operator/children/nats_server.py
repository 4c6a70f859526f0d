"""The managed nats-server of a pipeline that names no servers: one, or a cluster of three. Beside
each server runs the callout, which decides on clients by the tokens of their pods.

The callout has no right in Kubernetes: the operator gives it the keys that verify tokens. So
shippers can connect while operator and API server are down. It also watches the server's files, and
ends a server whose files were removed.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline.spec.api import GROUP
from logpipeline_operator.children import (
    config,
    credentials,
    model,
    names,
    nats_conf,
    nats_tls,
    pods,
    services,
)
from logpipeline_operator.children.model import (
    CALLOUT_PORT,
    FROM_FIRST,
    NATS_CLUSTER_PORT,
    NATS_MONITOR_PORT,
    NATS_PORT,
    ChildSettings,
    Component,
    Manifest,
    given,
)

CONFIG_FILE = "nats.conf"
# The hash of the users that a pod's server was started with.
USERS_ANNOTATION = f"{GROUP}/nats-users"
TABLE_USER_ANNOTATION = f"{GROUP}/nats-table-user"
RESOURCES: Manifest = {"requests": {"cpu": "100m", "memory": "256Mi"}}
# At its end it writes the indexes of its streams; without them the next start reads every message.
GRACE_S = 60
# A store whose indexes are missing is read through at the start: an hour for some terabytes.
START_PROBES = 360
START_PERIOD_S = 10
PORTS = {"client": NATS_PORT, "monitor": NATS_MONITOR_PORT}
CLUSTER_PORTS = {**PORTS, "cluster": NATS_CLUSTER_PORT}


def build(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the children of the managed server, except its Secrets, whose passwords are made once;
    none if the resource names servers.

    Raises:
        NoImage: neither the resource nor the operator names one.
    """
    if pipeline.spec.nats.servers:
        return []
    name, component = names.nats(pipeline), Component.NATS
    text = nats_conf.render(
        pipeline,
        has_accounts=settings.server.has_accounts,
        has_callout=settings.has_callout,
        users=settings.server.users,
        claimed_bytes=settings.server.claimed_bytes,
    )
    children = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": model.metadata(pipeline, name, component),
            "data": {CONFIG_FILE: text},
        },
        services.service(
            pipeline, component, names.nats_headless(pipeline), CLUSTER_PORTS, is_headless=True
        ),
        services.service(pipeline, component, name, PORTS, is_headless=False),
        services.disruption_budget(pipeline, component, name),
        _stateful_set(pipeline, settings, text),
    ]
    if nats_tls.is_on(pipeline):
        children.append(nats_tls.ca_config_map(pipeline, settings.server.ca))
    if pipeline.spec.nats.managed.service_account_name is None:
        children.append(services.service_account(pipeline, component, name))
    return [*children, *_callout_children(pipeline, settings)]


def _stateful_set(pipeline: LogPipeline, settings: ChildSettings, text: str) -> Manifest:
    managed, name = pipeline.spec.nats.managed, names.nats(pipeline)
    volume = _config_volume(pipeline, settings)
    plan = pods.Pods(
        component=Component.NATS,
        field="spec.nats.managed.image",
        options=managed,
        container=_container(pipeline, settings),
        volumes=[volume],
        security=pods.RESTRICTED_POD,
        service_account=name,
        resources=RESOURCES,
        grace_s=GRACE_S,
        config_hash=config.hash_of(text, volume),
        is_spread=True,
    )
    claim = services.claim_template(
        pipeline,
        Component.NATS,
        nats_conf.CLAIM,
        size_bytes=managed.storage,
        storage_class=managed.storage_class_name,
    )
    if settings.server.has_accounts:
        claim["metadata"]["labels"][model.ACCOUNTS_LABEL] = "true"
    if settings.server.began_with_tls:
        claim["metadata"]["labels"][model.TLS_LABEL] = "true"
    template = pods.template(pipeline, plan, settings)
    template["metadata"]["annotations"] |= given(
        {
            USERS_ANNOTATION: settings.server.users,
            TABLE_USER_ANNOTATION: settings.server.table_user,
            nats_tls.MARK_ANNOTATION: settings.server.certificate,
        }
    )
    _add_callout(template, pipeline, settings)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": model.metadata(pipeline, name, Component.NATS),
        "spec": {
            "serviceName": names.nats_headless(pipeline),
            "replicas": managed.replicas,
            # A cluster that starts needs most of its servers at once.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": model.selector(pipeline, Component.NATS)},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": FROM_FIRST},
            "template": template,
            "volumeClaimTemplates": [claim],
        },
    }


def _config_volume(pipeline: LogPipeline, settings: ChildSettings) -> Manifest:
    files = [credentials.USERS_FILE]
    if pipeline.spec.nats.managed.replicas > 1:
        files.append(credentials.ROUTES_FILE)
    secrets = [(names.nats_auth(pipeline), {file: file for file in files})]
    if pipeline.spec.table.enabled:
        table = credentials.secret_of(pipeline, credentials.TABLE)
        secrets.append((table, {credentials.TABLE_FILE: credentials.TABLE_FILE}))
    if settings.has_callout:
        callout_user = credentials.secret_of(pipeline, credentials.CALLOUT)
        secrets.append((callout_user, {credentials.CALLOUT_FILE: credentials.CALLOUT_FILE}))
    if nats_tls.is_on(pipeline):
        own = {file: f"tls/{file}" for file in nats_tls.SERVER_FILES}
        secrets.append((names.nats_tls(pipeline), own))
    return {
        "name": "config",
        "projected": {
            "defaultMode": 0o440,
            "sources": [
                {
                    "configMap": {
                        "name": names.nats(pipeline),
                        "items": [{"key": CONFIG_FILE, "path": CONFIG_FILE}],
                    }
                },
                *(
                    {
                        "secret": {
                            "name": secret,
                            "items": [{"key": key, "path": path} for key, path in files.items()],
                        }
                    }
                    for secret, files in secrets
                ),
            ],
        },
    }


def _container(pipeline: LogPipeline, settings: ChildSettings) -> pods.Container:
    ports = CLUSTER_PORTS if pipeline.spec.nats.managed.replicas > 1 else PORTS
    return pods.Container(
        command=["nats-server"],
        args=["--config", f"{nats_conf.FOLDER}/{CONFIG_FILE}"],
        env=[pods.from_field("POD_NAME", "metadata.name")],
        ports=[{"name": name, "containerPort": number} for name, number in ports.items()],
        mounts=[
            {"name": "config", "mountPath": nats_conf.FOLDER, "readOnly": True},
            {"name": nats_conf.CLAIM, "mountPath": nats_conf.STORE},
        ],
        probes=_probes(pipeline, nats_conf.pages(settings.server.users)),
        security=pods.RESTRICTED_CONTAINER,
    )


def _probes(pipeline: LogPipeline, below: str) -> Manifest:
    """Return the probes, of pages *below* that path. Only the full check notices a full disk or a
    broken stream, which a restart mends. In a cluster a stream that catches up fails it, too, and
    a restart would make it begin again: there it decides only whether the pod is ready.
    """
    is_cluster = pipeline.spec.nats.managed.replicas > 1
    full, of_server = f"{below}/healthz", f"{below}/healthz?js-server-only=true"
    alive = of_server if is_cluster else full
    return {
        "startupProbe": pods.http_probe(
            of_server,
            "monitor",
            period_s=START_PERIOD_S,
            failures=START_PROBES,
        ),
        "livenessProbe": pods.http_probe(alive, "monitor", period_s=30, failures=6),
        "readinessProbe": pods.http_probe(full, "monitor", period_s=5, failures=3),
    }


CALLOUT = "callout"
KEYS_FILE = "jwks.json"
CALLOUT_USER_ANNOTATION = f"{GROUP}/nats-callout-user"
CALLOUT_CONFIG_ANNOTATION = f"{GROUP}/callout-config-hash"
CALLOUT_RESOURCES: Manifest = {"requests": {"cpu": "10m", "memory": "48Mi"}}
# The kubelet writes a new token long before the old one expires.
TOKEN_S = 3600


def _callout_children(pipeline: LogPipeline, settings: ChildSettings) -> list[Manifest]:
    """Return the callout's children except its Secret; none without a callout."""
    if not settings.has_callout:
        return []
    text = config.render(config.for_callout(pipeline))
    keys = {KEYS_FILE: settings.features.token_keys}
    return [
        config.config_map(pipeline, names.callout_auth(pipeline), Component.NATS, text, keys),
        # Users with the right to make its tokens may read from the server; it has no right in the
        # cluster.
        services.service_account(pipeline, Component.NATS, names.reader(pipeline)),
    ]


def _add_callout(template: Manifest, pipeline: LogPipeline, settings: ChildSettings) -> None:
    """Add the callout, if there is one, to the *template* of a managed server's pods."""
    if not settings.has_callout:
        return
    spec = template["spec"]
    spec["containers"].append(_callout_container(settings))
    # So that the callout can end a server whose files were removed.
    spec["shareProcessNamespace"] = True
    spec["volumes"].append(_callout_volume(pipeline))
    # The pipeline may name Secrets for its own server image; the callout's needs the operator's.
    pulling = spec.get("imagePullSecrets", [])
    pulling += [each for each in pods.pull_secrets(settings) if each not in pulling]
    spec |= given({"imagePullSecrets": pulling})
    # The callout reads changed keys again, and everything else only at its start.
    text = config.render(config.for_callout(pipeline))
    template["metadata"]["annotations"] |= {
        CALLOUT_USER_ANNOTATION: settings.server.callout_user,
        CALLOUT_CONFIG_ANNOTATION: config.hash_of(text),
    }


def token_source(pipeline: LogPipeline, below: str) -> Manifest:
    """Return the source of a projected volume that puts a shipper's token *below* its folder."""
    return {
        "serviceAccountToken": {
            "audience": credentials.audience(pipeline),
            "expirationSeconds": TOKEN_S,
            "path": f"{below}/{config.TOKEN_PATH}",
        }
    }


def _callout_volume(pipeline: LogPipeline) -> Manifest:
    name = names.callout_auth(pipeline)
    volume = config.volume(pipeline, name, credentials.CALLOUT, (config.FILE, KEYS_FILE))
    seed = credentials.ISSUER_SEED
    items = [{"key": seed, "path": seed}]
    volume["projected"]["sources"].append({"secret": {"name": name, "items": items}})
    return {**volume, "name": CALLOUT}


def _callout_container(settings: ChildSettings) -> Manifest:
    return {
        "name": CALLOUT,
        "image": settings.install.image_callout,
        "args": [
            "callout",
            "-f", str(config.FOLDER / config.FILE),
            "--keys", str(config.FOLDER / KEYS_FILE),
            "--issuer", str(config.FOLDER / credentials.ISSUER_SEED),
            "--nats", f"nats://127.0.0.1:{NATS_PORT}",
            "--store", nats_conf.STORE,
            "--pages", f"http://127.0.0.1:{NATS_MONITOR_PORT}{nats_conf.pages(settings.server.users)}",
            "--http", f"0.0.0.0:{CALLOUT_PORT}",
        ],
        "ports": [{"protocol": "TCP", "name": "http", "containerPort": CALLOUT_PORT}],
        "volumeMounts": [
            {"name": CALLOUT, "mountPath": str(config.FOLDER), "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": nats_conf.CLAIM, "mountPath": nats_conf.STORE, "readOnly": True},
        ],
        "securityContext": pods.RESTRICTED_CONTAINER,
        "resources": CALLOUT_RESOURCES,
        "livenessProbe": pods.http_probe("/healthz", "http", period_s=10, failures=6),
        **given({"imagePullPolicy": settings.install.image_pull_policy}),
    }  # fmt: skip
