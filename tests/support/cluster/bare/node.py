"""What runs on each node: containerd, kubelet and kube-proxy, and the files that they read."""

from __future__ import annotations

import json
from pathlib import Path

from cluster.bare.containers import BESIDE_CONTAINERS
from cluster.bare.control_plane import DOMAIN, client_file
from cluster.bare.images import PAUSE
from cluster.bare.machine import Program
from cluster.bare.network import Addresses
from cluster.bare.places import ClusterPlaces

# Debian's and Fedora's packages of the CNI plugins, and where kind has them.
PLUGIN_FOLDERS = ("/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin")


def plugins_folder() -> Path | None:
    """Where this machine has the CNI plugins that are used here."""
    found = (Path(folder) for folder in PLUGIN_FOLDERS)
    return next((folder for folder in found if (folder / "ptp").exists()), None)


def programs(
    places: ClusterPlaces, addresses: Addresses, node: str, index: int, binaries: Path
) -> list[Program]:
    """The programs of *node*; writes the files that they read."""
    folder = places.node(node)
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    (folder / "cni" / "10-pods.conflist").write_text(json.dumps(_pod_network(addresses, index)))
    (folder / "containerd.toml").write_text(_containerd(places, node))
    (folder / "resolv.conf").write_text(f"nameserver {addresses.node(0)}\n")
    kubelet = json.dumps(_kubelet(places, addresses, node), indent=2)
    (folder / "kubelet.json").write_text(kubelet)
    proxy = json.dumps(_proxy(places, addresses), indent=2)
    (folder / "kube-proxy.json").write_text(proxy)
    return [
        Program(
            "containerd",
            (*BESIDE_CONTAINERS, "containerd", "--config", str(folder / "containerd.toml")),
        ),
        Program(
            "kubelet",
            (
                str(binaries / "kubelet"),
                f"--config={folder}/kubelet.json",
                f"--kubeconfig={client_file(places, node)}",
                f"--hostname-override={node}",
                f"--node-ip={addresses.node(index)}",
            ),
            after=str(places.containerd_socket(node)),
        ),
        Program(
            "kube-proxy",
            (
                str(binaries / "kube-proxy"),
                f"--config={folder}/kube-proxy.json",
                f"--hostname-override={node}",
            ),
        ),
    ]


def _pod_network(addresses: Addresses, index: int) -> dict[str, object]:
    # A wire for each pod and no bridge: all traffic is routed, so that kube-proxy sees all of it.
    wire = {
        "type": "ptp",
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": str(addresses.pods_of(index))}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [wire, ports]}


def _containerd(places: ClusterPlaces, node: str) -> str:
    return f"""\
version = 2
[grpc]
  address = "{places.containerd_socket(node)}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  stream_server_port = "0"
  restrict_oom_score_adj = true  # where CAP_SYS_RESOURCE is missing, as in a container
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins_folder()}"
    conf_dir = "{places.node(node)}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def _kubelet(places: ClusterPlaces, addresses: Addresses, node: str) -> dict[str, object]:
    keys = places.certificates
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{keys}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{keys}/{node}.crt",
        "tlsPrivateKeyFile": f"{keys}/{node}.key",
        "containerRuntimeEndpoint": f"unix://{places.containerd_socket(node)}",
        "clusterDomain": DOMAIN,
        "clusterDNS": [str(addresses.dns_service)],
        "resolvConf": f"{places.node(node)}/resolv.conf",
        "readOnlyPort": 0,
        # The machine's control groups are not ours to arrange; limits of containers hold.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        # The disk is the machine's: others fill it, and pods would be evicted for it.
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "containerLogMaxSize": "10Mi",
        "containerLogMaxFiles": 5,
        "nodeStatusReportFrequency": "1m",
        "syncFrequency": "10s",
    }


def _proxy(places: ClusterPlaces, addresses: Addresses) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": str(addresses.pods),
        "clientConnection": {"kubeconfig": str(client_file(places, "proxy"))},
        "metricsBindAddress": "127.0.0.1:10249",
        # Limits of the whole machine stay as they are.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
