"""What runs on the first node beside its kubelet: etcd, the API server and the controllers."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.bare.machine import Program
from cluster.bare.network import Addresses
from cluster.bare.places import ClusterPlaces

API_PORT = 6443
DOMAIN = "cluster.local"
ETCD = "http://127.0.0.1:2379"
ETCD_PEERS = "http://127.0.0.1:2380"
LOOPBACK = "127.0.0.1"
# Addresses of Services that nobody routes.
SERVICES_OF_AN_API = "10.0.0.0/16"
# A name for the machine that runs the tests, for pods that connect to a server there.
MACHINE_NAME = "machine.test"

# Who did what is enough to compare used rights with granted ones. The cluster's own renewals and
# heartbeats would be most of the file.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:nodes"]},
        {"level": "None", "users": ["system:kube-scheduler", "system:kube-proxy"]},
        {"level": "None", "users": ["system:apiserver", "system:coredns"]},
        {"level": "None", "nonResourceURLs": ["/healthz*", "/readyz*", "/livez*"]},
        {"level": "Metadata"},
    ],
}


def api_url(addresses: Addresses) -> str:
    """Where the API server is, from the machine as from the nodes."""
    return f"https://{addresses.node(0)}:{API_PORT}"


def programs(places: ClusterPlaces, addresses: Addresses, binaries: Path) -> list[Program]:
    """The programs of the control plane; writes the files that they read."""
    _write_audit_policy(places)
    (places.folder / "Corefile").write_text(_corefile(places, addresses))
    return [
        _etcd(places, binaries, ETCD, ETCD_PEERS),
        _api_server(places, addresses, binaries),
        _controller_manager(places, addresses, binaries),
        _scheduler(places, binaries),
        Program("coredns", (str(binaries / "coredns"), "-conf", str(places.folder / "Corefile"))),
    ]


def programs_of_an_api(places: ClusterPlaces, port: int, binaries: Path) -> list[Program]:
    """The programs of a cluster without nodes; writes the files that they read.

    Of a scheduler's pods none would run; the controllers are there because much of what the API
    promises is done by them: a namespace that goes with its objects, children that go with their
    owner, a ServiceAccount in each namespace, the status of what has pods.
    """
    _write_audit_policy(places)
    # A socket in a folder of its own is reached by its user alone, and no other cluster takes it.
    store = f"unix://{places.folder}/etcd.sock"
    api = {
        **_api_flags(places, store, port),
        "bind-address": LOOPBACK,
        "advertise-address": LOOPBACK,
        # No pod asks for the Service of the API, which may not lead to loopback.
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": SERVICES_OF_AN_API,
        "authorization-mode": "RBAC",
    }
    controllers = {**_controller_flags(places), "secure-port": 0}
    return [
        _etcd(places, binaries, store, f"unix://{places.folder}/etcd-peer.sock"),
        Program("kube-apiserver", _command(binaries / "kube-apiserver", api)),
        Program(
            "kube-controller-manager", _command(binaries / "kube-controller-manager", controllers)
        ),
    ]


def client_file(places: ClusterPlaces, identity: str) -> Path:
    """The kubeconfig of one of the cluster's own programs."""
    return places.certificates / f"{identity}.kubeconfig"


def _write_audit_policy(places: ClusterPlaces) -> None:
    (places.folder / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY, indent=2))


def _etcd(places: ClusterPlaces, binaries: Path, clients: str, peers: str) -> Program:
    flags = {
        "data-dir": places.folder / "etcd",
        "listen-client-urls": clients,
        "listen-peer-urls": peers,
        # It wants an address to tell others, of whom there are none.
        "advertise-client-urls": ETCD,
    }
    # Nobody wants a test's cluster back after a power cut.
    return Program("etcd", _command(binaries / "etcd", flags, "--unsafe-no-fsync"))


def _api_server(places: ClusterPlaces, addresses: Addresses, binaries: Path) -> Program:
    keys = places.certificates
    flags = {
        **_api_flags(places, ETCD, API_PORT),
        "advertise-address": addresses.node(0),
        "service-cluster-ip-range": addresses.services,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "kubelet-certificate-authority": keys / "ca.crt",
        "kubelet-client-certificate": keys / "kubelet-client.crt",
        "kubelet-client-key": keys / "kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP",
    }
    return Program("kube-apiserver", _command(binaries / "kube-apiserver", flags))


def _api_flags(places: ClusterPlaces, store: str, port: int) -> dict[str, object]:
    keys = places.certificates
    return {
        "etcd-servers": store,
        "secure-port": port,
        "allow-privileged": "true",
        "tls-cert-file": keys / "apiserver.crt",
        "tls-private-key-file": keys / "apiserver.key",
        "client-ca-file": keys / "ca.crt",
        # Nobody extends this API server; without these it complains about that every minute.
        "requestheader-client-ca-file": keys / "ca.crt",
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "service-account-issuer": f"https://kubernetes.default.svc.{DOMAIN}",
        "service-account-key-file": keys / "sa.pub",
        "service-account-signing-key-file": keys / "sa.key",
        "audit-policy-file": places.folder / "audit-policy.json",
        "audit-log-path": places.audit_log,
        # Written before the answer is given: what a test did stands there when it looks.
        "audit-log-mode": "blocking",
        "audit-log-maxsize": 4_000,
    }


def _controller_manager(places: ClusterPlaces, addresses: Addresses, binaries: Path) -> Program:
    flags = {
        **_controller_flags(places),
        "cluster-cidr": addresses.pods,
        "node-monitor-grace-period": "20s",
    }
    return Program("kube-controller-manager", _command(binaries / "kube-controller-manager", flags))


def _controller_flags(places: ClusterPlaces) -> dict[str, object]:
    return {
        **_client_flags(places, "controller-manager"),
        "service-account-private-key-file": places.certificates / "sa.key",
        "root-ca-file": places.certificates / "ca.crt",
        "use-service-account-credentials": "true",
    }


def _scheduler(places: ClusterPlaces, binaries: Path) -> Program:
    flags = _client_flags(places, "scheduler")
    return Program("kube-scheduler", _command(binaries / "kube-scheduler", flags))


def _client_flags(places: ClusterPlaces, identity: str) -> dict[str, object]:
    file = client_file(places, identity)
    kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    # There is one of each: nobody to elect, and nothing to wait for after a restart.
    return {**dict.fromkeys(kinds, file), "leader-elect": "false", "bind-address": "127.0.0.1"}


def _command(program: str | Path, flags: dict[str, object], *more: str) -> tuple[str, ...]:
    return (str(program), *(f"--{name}={value}" for name, value in flags.items()), *more)


def _corefile(places: ClusterPlaces, addresses: Addresses) -> str:
    # Names outside do not exist here, and are told so at once: no test may need the internet.
    return f"""\
{DOMAIN} in-addr.arpa {{
    bind {addresses.node(0)}
    errors
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {client_file(places, "coredns")}
    }}
    cache 5
}}
{MACHINE_NAME} {{
    bind {addresses.node(0)}
    hosts {{
        {addresses.machine} {MACHINE_NAME}
    }}
}}
. {{
    bind {addresses.node(0)}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
