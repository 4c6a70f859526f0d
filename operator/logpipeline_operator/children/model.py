"""What the modules that build children have in common: settings, roles, ports, and a way to leave
out what is not set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Manifest = dict[str, Any]

COLLECTOR_PORT = 9102
CALLOUT_PORT = 9105
SHIPPER_PORT = 9101
NATS_PORT = 4222
NATS_MONITOR_PORT = 8222
NATS_CLUSTER_PORT = 6222
TABLE_PORT = 9104
# Fixed, so that policies can name them: where executors find their driver, and everybody blocks.
SPARK_DRIVER_PORT = 7078
SPARK_BLOCKS_PORT = 7079
DNS_PORT = 53

# Said though it is the default: where a StatefulSet names its strategy and nothing more, Kubernetes
# makes a pod that is gone anew in its former revision, and deletes it, for ever, while none of them
# becomes ready.
FROM_FIRST = {"partition": 0}


class Component(StrEnum):
    """Who runs in a pod of a pipeline."""

    COLLECTOR = "collector"
    SHIPPER = "shipper"
    NATS = "nats"
    TABLE = "table"
    # Made by the table's driver, and not by us.
    EXECUTOR = "executor"


class NoImage(ValueError):
    """Nobody said which image a component's pods run."""

    def __init__(self, component: Component, field: str) -> None:
        self.component = component
        super().__init__(
            f"no image is known for {component}: set {field}, or the operator's "
            f"LOGPIPELINE_IMAGE_{component.upper()}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What the operator's own settings say about children, and what its cluster knows."""

    image_collector: str = ""
    image_shipper: str = ""
    image_nats: str = ""
    image_table: str = ""
    # Of the callout beside a managed server; without it all shippers share one user there.
    image_callout: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    # Lets shippers of all namespaces read labels of pods and annotations; without it they select
    # by path alone.
    shipper_cluster_role: str = ""
    # The same for shippers of their own namespace, bound in it, as Kind/name.
    shipper_role: str = ""
    # Lets a driver make pods for its executors: a ClusterRole, or a Role in every namespace that
    # the operator looks after, as Kind/name; without it accounts have to have the right already.
    spark_role: str = ""
    # The API of SparkApplications that the cluster has, empty where there is none.
    spark_api: str = ""
    has_pod_monitors: bool = False
    # An API server before 1.35 drops the field, and we would find it changed for ever.
    has_max_unavailable: bool = False
    # They change with the Secrets of the managed server's users and of the table's: a server
    # reads them at its start alone.
    nats_users: str = ""
    nats_table_user: str = ""
    # Whether the managed server has accounts. One that began without does not get any: it would not
    # find its streams, which lie where their account is.
    nats_has_accounts: bool = False
    # What proves the tokens of this cluster's pods, as a JSON Web Key Set; empty where these do not
    # name their node.
    token_keys: str = ""
    # The namespaces whose pods shippers read where labels of namespaces say it.
    pod_namespaces: tuple[str, ...] = ()
    # Changes with the Secret of the callout's user.
    nats_callout_user: str = ""
    # Whether the managed server was made when TLS was there, so that its claims say so.
    nats_began_with_tls: bool = False
    # What clients trust that server by, and what its pods say of its certificate: it reads that at
    # its start alone.
    nats_ca: str = ""
    nats_certificate: str = ""

    @property
    def has_callout(self) -> bool:
        """Whether shippers log in to a managed server with the tokens of their pods. What it says
        of nodes needs an account of theirs.
        """
        return bool(self.nats_has_accounts and self.image_callout and self.nats_callout_user)

    def image(self, component: Component) -> str:
        """Return the image of *component*, or an empty text."""
        return {
            Component.COLLECTOR: self.image_collector,
            Component.SHIPPER: self.image_shipper,
            Component.NATS: self.image_nats,
            Component.TABLE: self.image_table,
            Component.EXECUTOR: self.image_table,
        }[component]


def given(fields: Mapping[str, Any]) -> Manifest:
    """Return *fields* without those that are None or empty: what is not said is not ours."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value != "" and value != {} and value != []
    }


def without_nulls(value: Any) -> Any:
    """Return a user's *value* as the API server stores it: a null is a field left out."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(item) for item in value if item is not None]
    return value
