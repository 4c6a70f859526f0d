"""A certificate authority for one cluster, and a certificate for each part of it.

Everybody is known by a certificate, as in a cluster of kubeadm, and nobody skips the check of one.
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cluster.bare.network import Addresses
from cluster.bare.running import run

DAYS = "365"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
# What the system's own file would add to a certificate differs from system to system.
CONFIGURATION = "[req]\ndistinguished_name = name\n[name]\n"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is meant by the certificate in *file*.crt, and under which addresses it serves."""

    file: str
    name: str
    group: str = ""
    serves: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        return f"/O={self.group}/CN={self.name}" if self.group else f"/CN={self.name}"


def identities(addresses: Addresses, nodes: tuple[str, ...]) -> list[Identity]:
    """Everybody in a cluster who needs a certificate."""
    service = "kubernetes.default"
    names = ("localhost", "kubernetes", service, f"{service}.svc", f"{service}.svc.cluster.local")
    ips = ("127.0.0.1", str(addresses.node(0)), str(addresses.api_service))
    serves = (*(f"DNS:{name}" for name in names), *(f"IP:{ip}" for ip in ips))
    return [
        Identity("apiserver", "kube-apiserver", serves=serves),
        Identity("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("proxy", "system:kube-proxy"),
        Identity("coredns", "system:coredns"),
        *(
            Identity(node, f"system:node:{node}", "system:nodes", (f"IP:{addresses.node(index)}",))
            for index, node in enumerate(nodes)
        ),
    ]


def of_an_api(ips: tuple[str, ...]) -> list[Identity]:
    """Everybody in a cluster without nodes who needs a certificate."""
    serves = ("DNS:localhost", *(f"IP:{ip}" for ip in ips))
    return [
        Identity("apiserver", "kube-apiserver", serves=serves),
        Identity("admin", "kubernetes-admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager"),
    ]


def make(folder: Path, wanted: list[Identity]) -> None:
    """Make the authority and all *wanted* certificates in *folder*, with a key for tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "openssl.cnf").write_text(CONFIGURATION)
    _make_authority(folder)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda identity: _make_one(folder, identity), wanted))
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", folder / "sa.key")
    run("openssl", "ec", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")


def kubeconfig(folder: Path, server: str, identity: str) -> str:
    """A kubeconfig, with all inside, for the one who has the certificate *identity*.crt."""
    user = {
        "client-certificate-data": _encoded(folder / f"{identity}.crt"),
        "client-key-data": _encoded(folder / f"{identity}.key"),
    }
    cluster = {"server": server, "certificate-authority-data": _encoded(folder / "ca.crt")}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "clusters": [{"name": "default", "cluster": cluster}],
        "users": [{"name": "default", "user": user}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    }
    return json.dumps(content, indent=2)


def _make_authority(folder: Path) -> None:
    _request(
        folder,
        "ca",
        "/CN=kubernetes-ca",
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
    )


def _make_one(folder: Path, identity: Identity) -> None:
    extensions = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        "extendedKeyUsage=clientAuth,serverAuth",
        "authorityKeyIdentifier=keyid",
    ]
    if identity.serves:
        extensions.append("subjectAltName=" + ",".join(identity.serves))
    _request(folder, identity.file, identity.subject, *extensions, signer="ca")


def _request(folder: Path, file: str, subject: str, *extensions: str, signer: str = "") -> None:
    signing = ["-CA", f"{folder}/{signer}.crt", "-CAkey", f"{folder}/{signer}.key"]
    output = ["-keyout", f"{folder}/{file}.key", "-out", f"{folder}/{file}.crt"]
    added = [part for one in extensions for part in ("-addext", one)]
    run(
        *("openssl", "req", "-x509", "-config", f"{folder}/openssl.cnf", *KEY, "-days", DAYS),
        *(signing if signer else []),
        *("-subj", subject, "-addext", "subjectKeyIdentifier=hash", *added, *output),
    )


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
