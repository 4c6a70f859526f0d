"""The parts of children: configuration, volumes, folders, quantities, policies, the server."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.child_manifests import SETTINGS, built, child, children, pod_spec, resource
from cluster.child_manifests import settings as child_settings
from logpipeline.authority import permissions
from logpipeline.spec import LogPipeline, parse
from logpipeline_collector.config import from_pipeline as collector_config
from logpipeline_operator.children import config, credentials, nats_conf, shippers
from logpipeline_operator.children.collectors import data_folder
from logpipeline_operator.children.model import canonical
from logpipeline_operator.children.policies import build as policies
from logpipeline_operator.children.shippers import base_of, host_folders
from logpipeline_shipper.config import from_pipeline as shipper_config

PASSWORDS = {role: f"{role}-0123456789abcdef" for role in credentials.ROLES}
OWN_SERVERS: dict[str, Any] = {
    "servers": ["tls://nats.example.net:4223", "nats://other"],
    "tls": {"secret": {"name": "t"}, "ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"},
    "user": {"secret": {"name": "u"}, "user": "name", "password": "word"},
    "jsDomain": "hub",
}


def read_back(pipeline: LogPipeline) -> LogPipeline:
    """The resource as a component reads it from its ConfigMap."""
    return parse(yaml.safe_load(config.render(pipeline)))


def volumes(spec: dict[str, Any]) -> dict[str, Any]:
    """The volumes of a collector's pod by name."""
    pod = pod_spec(child(children(spec), "StatefulSet", "prod-collector"))
    return {volume["name"]: volume for volume in pod["volumes"]}


def test_a_collector_reads_what_the_pipeline_says() -> None:
    """Its own configuration, from its ConfigMap, is the one that the whole resource gives, with
    every field that it has.
    """
    spec = {
        "cluster": "c", "partitions": 7, "subject": "logs",
            "stream": {"name": "LOGS", "layout": "single", "foreignPartitions": 9},
        "collectors": {
            "group": "g", "path": "{host}/x.log", "filePath": "{host}/y", "output": "json",
            "rotation": {"maxBytes": "1Mi", "maxAge": "2h"}, "compression": "none",
            "retention": {"maxAge": "3h", "maxBytes": "1Gi", "minFreePercent": 7},
            "maxOpenFiles": 17, "commit": {"interval": "50ms", "maxBytes": "1Mi"},
            "takeoverAfter": "11s", "snapshotEvery": "6s",
            "deliverPolicy": "byStartTime", "optStartTime": "2026-01-31T12:00:00Z",
            "onEmptyVolume": "Continue",
        },
    }  # fmt: skip
    whole = resource(spec)

    def told(pipeline: LogPipeline) -> dict[str, Any]:
        nats = config.nats_options(whole, Path("/x"))
        made = collector_config(pipeline, member="m", data=Path("/data"), nats=nats)
        return {**flat(made), **flat(made.files)}

    assert told(read_back(config.for_collector(whole))) == told(whole)
    # A field that stands here at its default would not be missed.
    same = {name for name, value in told(whole).items() if value == told(resource({}))[name]}
    assert same == {
        "nats", "member", "folder", "pull_budget_bytes", "stop_deadline_s", "http_host",
        "http_port",
    }  # fmt: skip


def test_a_shipper_reads_what_the_pipeline_says() -> None:
    """The logs of containers and the files of its node, by the rules that the resource gives."""
    whole = resource(
        {
            "batch": {"maxBytes": "64Ki", "ack": "each"},
            "redaction": {"presets": ["card"], "expressions": ["a=(b)"], "mask": "0"},
            "shippers": {
                "hostFiles": [{"include": ["/srv/a/*"], "exclude": ["/srv/a/b"], "ack": "none"}],
                "readFrom": "end", "rescan": "1s", "maxOpenFiles": 17, "labels": ["app"],
                "maxInFlightBytes": "2Mi", "deletedFiles": {"maxAge": "2h"},
                "match": [{"exclude": {"namespaces": ["a"]}}],
            },
        }
    )  # fmt: skip
    read = read_back(config.for_shipper(whole))

    told = shipper_config(
        read, shipper="node", data=Path("/p"), nats=config.nats_options(whole, Path("/x"))
    )

    assert [host.pods_dir for host in told.hosts] == [Path("/var/log/pods"), None]
    assert (told.hosts[1].include, told.hosts[1].ack) == (("/srv/a/*",), "none")
    assert read.spec.batch == whole.spec.batch
    # What a pod did not read would leave the node unmasked.
    assert told.redaction == whole.spec.redaction
    assert read_back(config.for_sidecar(whole)).spec.redaction == whole.spec.redaction
    ignored: dict[str, Any] = {"host_files": (), "enabled": True}
    assert replace(read.spec.shippers, **ignored) == replace(whole.spec.shippers, **ignored)


def flat(value: Any) -> dict[str, Any]:
    """The fields of a dataclass."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def test_components_of_a_managed_server_log_in_as_their_own_roles() -> None:
    """Each with two files that hold its own user and password, and an inbox of its own."""
    for role, pipeline in (
        ("collector", config.for_collector(resource({}))),
        ("shipper", config.for_shipper(resource({}))),
    ):
        read = read_back(pipeline)
        volume = config.volume(resource({}), "m", role)
        (secret,) = (s["secret"] for s in volume["projected"]["sources"] if "secret" in s)

        assert read.spec.nats.servers == ("nats://prod-nats.logging.svc:4222",)
        assert read.spec.local.nats.user_file == "/etc/logpipeline/nats/user/user"
        assert read.spec.local.nats.inbox_prefix == f"_INBOX_{role}"
        assert [item["key"] for item in secret["items"]] == [f"{role}-user", f"{role}-password"]
        assert secret["name"] == "prod-nats-auth"


def test_components_log_in_to_one_s_own_servers_as_the_resource_says() -> None:
    """Its Secrets are projected below one folder, where the configuration names them."""
    pipeline = resource({"nats": OWN_SERVERS})
    read = read_back(config.for_collector(pipeline))
    sources = config.volume(pipeline, "m", "collector")["projected"]["sources"]
    paths = {i["path"] for s in sources for i in s.get("secret", {}).get("items", [])}

    assert read.spec.nats.servers == pipeline.spec.nats.servers
    assert read.spec.nats.js_domain == "hub"
    local = read.spec.local.nats
    assert local.inbox_prefix == "_INBOX"
    assert {
        local.ca_file,
        local.cert_file,
        local.key_file,
        local.user_file,
        local.password_file,
    } == {f"/etc/logpipeline/{path}" for path in paths}
    operator = config.nats_options(pipeline, Path("/x"))
    assert (operator.ca_file, operator.user_file) == (Path("/x/tls/ca.crt"), Path("/x/user/name"))


def test_no_password_is_in_what_everybody_may_read() -> None:
    """They are in the Secret alone; the server's configuration refers to them."""
    made = str(children({"nats": {"managed": {"replicas": 3}}}))
    secret = credentials.users_secret(resource({}), PASSWORDS)

    assert not any(password in made for password in PASSWORDS.values())
    assert all(password in str(secret["stringData"]) for password in PASSWORDS.values())


@pytest.mark.parametrize("password", ["", "short", 'a"b' * 8, "a@b" * 8, "$a" * 10, "a b" * 8])
def test_a_password_that_could_mean_something_else_is_refused(password: str) -> None:
    """Quotes, variables, and what ends a user in a URL."""
    with pytest.raises(ValueError, match="password of shipper"):
        credentials.users_secret(resource({}), {**PASSWORDS, "shipper": password})


def test_the_passwords_of_a_secret_are_found_in_it() -> None:
    """Each that can be used: what a Secret lacks, or holds garbage in place of, is made anew."""
    held = credentials.users_secret(resource({}), PASSWORDS)["stringData"]
    spoilt = held | {"shipper-password": 'a"b' * 8, "routes.conf": "garbage"}

    assert {role: credentials.password_in(held, role) for role in credentials.ROLES} == PASSWORDS
    assert credentials.password_in({}, credentials.OPERATOR) == ""
    assert credentials.password_in(spoilt, credentials.SHIPPER) == ""
    assert credentials.password_in(spoilt, credentials.ROUTE) == ""


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ({"existingClaim": "c"}, {"persistentVolumeClaim": {"claimName": "c"}}),
        ({"hostPath": "/srv/x"}, {"hostPath": {"path": "/srv/x", "type": "Directory"}}),
        ({"emptyDir": {}}, {"emptyDir": {}}),
        ({"emptyDir": {"sizeLimit": "1500000"}}, {"emptyDir": {"sizeLimit": "1500k"}}),
    ],
)
def test_a_collector_has_the_volume_that_was_chosen(
    kind: dict[str, Any], source: dict[str, Any]
) -> None:
    """And then no claim of its own."""
    spec = {"collectors": {"persistence": kind}}

    assert volumes(spec)["data"] == {"name": "data", **source}
    assert (
        "volumeClaimTemplates" not in child(children(spec), "StatefulSet", "prod-collector")["spec"]
    )


@pytest.mark.parametrize("spec", [{}, {"collectors": {"persistence": {}}}])
def test_a_collector_has_a_claim_of_its_own_by_default(spec: dict[str, Any]) -> None:
    """Of 10Gi, which outlives it."""
    stateful_set = child(children(spec), "StatefulSet", "prod-collector")["spec"]
    (claim,) = stateful_set["volumeClaimTemplates"]

    assert claim["spec"]["resources"] == {"requests": {"storage": "10Gi"}}
    assert "storageClassName" not in claim["spec"]
    assert stateful_set["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain", "whenScaled": "Retain",
    }  # fmt: skip
    assert "data" not in volumes(spec)


def test_collectors_that_share_a_volume_have_folders_of_their_own() -> None:
    """Two in one folder would write the same state."""
    folders = {}
    for kind in ("existingClaim", "hostPath"):
        value = "c" if kind == "existingClaim" else "/srv/x"
        pipeline = resource({"collectors": {"persistence": {kind: value}, "directory": "/d/$(X)"}})
        pod = pod_spec(child(built(pipeline), "StatefulSet", "prod-collector"))
        (container,) = pod["containers"]
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "data")
        data = container["args"][container["args"].index("--data") + 1]
        folders[kind] = (mount.get("subPathExpr"), data, data_folder(pipeline, "m"))

    assert folders == {
        "existingClaim": ("$(POD_NAME)", "/d/$$(X)", "/d/$(X)"),
        "hostPath": (None, "/d/$$(X)/$(POD_NAME)", "/d/$(X)/m"),
    }


@pytest.mark.parametrize(
    ("glob", "base"),
    [
        ("/var/log/*.log", "/var/log"),
        ("/var/log/syslog", "/var/log"),
        ("/srv/**/x.log", "/srv"),
        ("/srv/a[12]/b/c.log", "/srv"),
        ("/srv/a/b?/c", "/srv/a"),
    ],
)
def test_a_glob_begins_in_a_folder(glob: str, base: str) -> None:
    """The one above its first wildcard, or above its file."""
    assert base_of(glob) == base


def test_a_folder_is_mounted_once_where_it_is_on_the_node() -> None:
    """One that lies in another comes with that one; paths are the same inside and outside."""
    spec = {
        "shippers": {
            "hostFiles": [
                {"include": ["/var/log/*.log", "/srv/app/x.log"]},
                {"include": ["/srv/app/sub/**/y.log"]},
            ]
        }
    }
    pipeline = resource(spec)
    pod = pod_spec(child(children(spec), "DaemonSet", "prod-shipper"))
    sources = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
    mounts = {m["name"]: m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}

    assert host_folders(pipeline) == ["/srv/app", "/var/log"]
    assert sources.pop("positions") == "/var/lib/logpipeline/logging/prod"
    assert sources == {name: mounts[name] for name in sources}
    own = resource({"shippers": {"positionsHostPath": "/var/pos"}})
    assert shippers.positions_folder(own) == "/var/pos"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (1, "1"), (0.5, "500m"), ("1.5", "1500m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
        ("1500000", "1500k"), ("0", "0"), ("100m", "100m"), ("1000m", "1"), ("0.0000000001", "1n"),
        ("1048576", "1048576"), ("1e3", "1e3"), ("512Ki", "512Ki"), ("0.5Ki", "512"),
        ("banana", "banana"), ("", ""), (True, True), (None, None), ("9" * 100, "9" * 100),
    ],
)  # fmt: skip
def test_quantities_are_written_as_kubernetes_stores_them(given: object, stored: object) -> None:
    """So that nothing differs; what is no quantity is left to the API server to refuse."""
    assert canonical(given) == stored


def test_the_server_keeps_below_its_disk_and_takes_every_batch() -> None:
    """A full disk stops it for good; a batch it does not take would never get through."""
    pipeline = resource({"nats": {"managed": {"storage": "100Gi"}}, "batch": {"maxBytes": "1Mi"}})
    text = nats_conf.render(pipeline)

    assert f"max_file_store: {95 * 2**30}" in text
    # A volume does not shrink with the resource.
    larger = nats_conf.render(pipeline, claimed_bytes=200 * 2**30)
    assert f"max_file_store: {190 * 2**30}" in larger
    assert nats_conf.render(pipeline, claimed_bytes=2**30) == text
    assert "max_payload: 2097152" in text
    assert 'sync_interval: "always"' in text
    assert nats_conf.payload_bytes(resource({})) == 2**20


@pytest.mark.parametrize(("replicas", "is_cluster"), [(1, False), (3, True)])
def test_servers_of_a_cluster_show_each_other_who_they_are(replicas: int, is_cluster: bool) -> None:
    """One alone has no routes, and is restarted also for a stream that is broken."""
    spec = {"nats": {"managed": {"replicas": replicas}}}
    pod = pod_spec(child(children(spec), "StatefulSet", "prod-nats"))
    (volume,) = (v for v in pod["volumes"] if v["name"] == "config")
    (container,) = pod["containers"]

    assert ("routes.conf" in nats_conf.render(resource(spec))) is is_cluster
    assert ("routes.conf" in str(volume)) is is_cluster
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"
    asked = children(spec, child_settings(users="0a1b"))
    conf = child(asked, "ConfigMap", "prod-nats")["data"]["nats.conf"]
    server = pod_spec(child(asked, "StatefulSet", "prod-nats"))["containers"][0]
    assert 'http_base_path: "/0a1b"' in conf
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server[probe]["httpGet"]["path"].startswith("/0a1b/healthz")
    alive = container["livenessProbe"]["httpGet"]["path"]
    assert (alive == "/healthz") is not is_cluster
    assert not any("assword" in word for word in [*container["command"], *container["args"]])


@pytest.mark.parametrize(("interval", "looks"), [("always", False), ("10s", True)])
def test_a_node_reads_only_where_a_power_cut_could_lose_lines(interval: str, looks: bool) -> None:
    """Then a shipper must see whether its last message is still there, to send it again."""
    pipeline = resource({"nats": {"managed": {"syncInterval": interval}}})
    allowed = permissions(pipeline, credentials.SHIPPER)["publish"]["allow"]

    assert any("DIRECT.GET" in subject for subject in allowed) is looks
    lines = [subject for subject in allowed if "ask" not in subject]
    assert all(subject.endswith(f"{pipeline.names.subject}.>") for subject in lines)


def test_policies_let_through_what_is_needed() -> None:
    """To one's own servers by their ports, to names, and metrics from anywhere in the cluster."""
    spec = {"networkPolicy": {"enabled": True}, "nats": OWN_SERVERS}
    made = policies(resource(spec), SETTINGS)
    collector = child(made, "NetworkPolicy", "prod-collector")["spec"]

    assert [p["metadata"]["name"] for p in made] == ["prod-collector", "prod-shipper"]
    assert [port["port"] for port in collector["egress"][0]["ports"]] == [4222, 4223]
    assert [port["port"] for port in collector["egress"][1]["ports"]] == [53, 53]
    assert [port["port"] for port in collector["ingress"][0]["ports"]] == [9102]
    assert policies(resource({}), SETTINGS) == []
