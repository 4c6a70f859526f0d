"""The addresses of a cluster, and the wires between its nodes and the machine.

Each node is a network namespace with one address on a bridge of the cluster's own, and a subnet for
its pods; the machine has an address on that bridge and routes to pods and Services. So two clusters
never meet, nothing is written into the machine's iptables, and all of it goes with the bridge.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from cluster.bare.running import ToolError, run, succeeds

# Clusters take 10.<number>.0.0/16 in this range: below and above, others have their homes.
NUMBERS = range(140, 180)
NODES_MAX = 60
INTERFACE_NAME_CHARS_MAX = 15


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the cluster number *number*; pure arithmetic."""

    number: int

    @property
    def machine(self) -> IPv4Address:
        """The machine itself, as the pods reach it."""
        return IPv4Address(f"10.{self.number}.0.1")

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network(f"10.{self.number}.64.0/18")

    @property
    def services(self) -> IPv4Network:
        return IPv4Network(f"10.{self.number}.128.0/20")

    @property
    def api_service(self) -> IPv4Address:
        return self.services[1]

    @property
    def dns_service(self) -> IPv4Address:
        return self.services[10]

    def node(self, index: int) -> IPv4Address:
        assert 0 <= index < NODES_MAX
        return IPv4Address(f"10.{self.number}.0.{10 + index}")

    def pods_of(self, index: int) -> IPv4Network:
        assert 0 <= index < NODES_MAX
        return IPv4Network(f"10.{self.number}.{64 + index}.0/24")


def free_number(taken: set[int]) -> int:
    """Choose a number whose addresses neither a cluster in *taken* nor the machine's routes use."""
    routed = {int(number) for number in re.findall(r"\b10\.(\d+)\.", run("ip", "route"))}
    for number in NUMBERS:
        if number not in taken | routed:
            return number
    raise ToolError(f"no free network among 10.{NUMBERS.start}-{NUMBERS.stop - 1}.0.0/16")


def bridge_of(name: str) -> str:
    """The name of a cluster's bridge: of bounded length, other for each cluster."""
    return f"lp{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def add_bridge(name: str, addresses: Addresses) -> None:
    """Make the cluster's bridge and give the machine its address on it."""
    bridge = bridge_of(name)
    run("ip", "link", "add", bridge, "type", "bridge")
    run("ip", "address", "add", f"{addresses.machine}/24", "dev", bridge)
    run("ip", "link", "set", bridge, "up")


def connect(name: str, addresses: Addresses, index: int, process: int) -> None:
    """Put a wire between the bridge and the network namespace of *process*, as its eth0."""
    wire = f"{bridge_of(name)}n{index}"
    assert len(wire) <= INTERFACE_NAME_CHARS_MAX
    peer = ["peer", "name", "eth0", "netns", str(process)]
    run("ip", "link", "add", wire, "master", bridge_of(name), "up", "type", "veth", *peer)
    run("ip", "route", "add", str(addresses.pods_of(index)), "via", str(addresses.node(index)))
    if index == 0:
        run("ip", "route", "add", str(addresses.services), "via", str(addresses.node(index)))


def commands_inside(addresses: Addresses, index: int, nodes: int) -> list[list[str]]:
    """What a node runs once its eth0 is there: its address, and the way to other nodes' pods."""
    others = [other for other in range(nodes) if other != index]
    routes = [(str(addresses.pods_of(other)), str(addresses.node(other))) for other in others]
    routes.append(("default", str(addresses.machine)))
    return [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{addresses.node(index)}/24", "dev", "eth0"],
        ["ip", "link", "set", "eth0", "up"],
        *(["ip", "route", "add", target, "via", gateway] for target, gateway in routes),
    ]


def wires_of(name: str) -> list[str]:
    """The machine's network interfaces that belong to the cluster, the bridge last."""
    found = Path("/sys/class/net").glob(f"{bridge_of(name)}*")
    return sorted((interface.name for interface in found), key=len, reverse=True)


def remove(name: str) -> None:
    """Remove the cluster's bridge and wires, and with them the machine's address and routes.

    A wire goes by itself with its node, but not before the kernel has given up on the node's last
    connections, which may take minutes: until then nobody could take its name.
    """
    for interface in wires_of(name):
        is_gone = succeeds("ip", "link", "delete", interface)
        if not is_gone and Path(f"/sys/class/net/{interface}").exists():
            raise ToolError(f"the network interface {interface} could not be removed")
