"""What all builders of children use: settings, components, ports, labels, metadata, and quantities
in canonical form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from typing import Any

from logpipeline.quantity import format_bytes
from logpipeline.spec import LogPipeline
from logpipeline.spec.api import API_VERSION, COMPONENT_LABEL, GROUP, KIND, PIPELINE_LABEL

Manifest = dict[str, Any]

COLLECTOR_PORT = 9102
CALLOUT_PORT = 9105
SHIPPER_PORT = 9101
NATS_PORT = 4222
NATS_MONITOR_PORT = 8222
NATS_CLUSTER_PORT = 6222
TABLE_PORT = 9104
# Fixed, so that policies can name them: the driver's port for executors, and all pods' for blocks.
SPARK_DRIVER_PORT = 7078
SPARK_BLOCKS_PORT = 7079
DNS_PORT = 53

# It is the default, and must be written all the same: if a StatefulSet names only its strategy,
# Kubernetes makes a missing pod in its former revision, deletes it, and repeats this for ever while
# no pod becomes ready.
FROM_FIRST = {"partition": 0}

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([A-Za-z]*|[eE][+-]?[0-9]+)")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# Kubernetes rounds up to nano units, and writes binary quantities below _BINARY_MIN as plain
# numbers.
_NANO = Decimal("1e-9")
_BINARY_MIN = 1024
_DIGITS_MAX = 64

NAME_LABEL = "app.kubernetes.io/name"
INSTANCE_LABEL = "app.kubernetes.io/instance"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
# Only on bindings without a namespace, or in other namespaces that shippers read.
NAMESPACE_LABEL = f"{GROUP}/namespace"
# On claims of a managed server whose streams lie in an account.
ACCOUNTS_LABEL = f"{GROUP}/nats-accounts"
# On claims of a managed server that speaks TLS unless its resource says otherwise.
TLS_LABEL = f"{GROUP}/nats-tls"

NAME = "logpipeline"
MANAGED_BY = "logpipeline-operator"
OPERATOR_COMPONENT = "operator"


class Component(StrEnum):
    """The program in a pod of a pipeline."""

    COLLECTOR = "collector"
    SHIPPER = "shipper"
    NATS = "nats"
    TABLE = "table"
    # The table's driver makes these pods, not the operator.
    EXECUTOR = "executor"


class Undecided(ValueError):
    """The children of *component* cannot be decided; the message says why."""

    def __init__(self, component: Component, why: str) -> None:
        self.component = component
        super().__init__(why)


class NoImage(Undecided):
    """Neither the resource nor the operator names the image of a component."""

    def __init__(self, component: Component, field: str) -> None:
        # Executors run the table's image.
        component = Component.TABLE if component is Component.EXECUTOR else component
        super().__init__(
            component,
            f"no image is known for {component}: set {field}, or the operator's "
            f"LOGPIPELINE_IMAGE_{component.upper()}",
        )


class NoSparkApi(Undecided):
    """The table needs an operator for Spark; *is_known* if the cluster certainly has none."""

    def __init__(self, *, is_known: bool) -> None:
        self.is_known = is_known
        apis = "spark.apache.org/v1 and sparkoperator.k8s.io/v1beta2"
        why = (
            f"the cluster has none of {apis}"
            if is_known
            else f"Kubernetes does not say now which of {apis} it has; the table stays as it is"
        )
        super().__init__(Component.TABLE, f"spec.table.runner is sparkApplication, and {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The children that there should be, in the order in which they are made, and the components
    whose children could not be decided, with the reasons.
    """

    manifests: tuple[Manifest, ...] = ()
    undecided: Mapping[Component, Undecided] = field(default_factory=dict)

    def may_include(self, child: Mapping[str, Any]) -> bool:
        """Return whether *child* may be wanted although it is not among the manifests."""
        if not self.undecided:
            return False
        # A child without the label may be of any component.
        component = child["metadata"].get("labels", {}).get(COMPONENT_LABEL)
        return component not in {each.value for each in Component if each not in self.undecided}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraping:
    """What PodMonitors say beside which pods they choose: *labels* by which a Prometheus chooses
    them, and how often it scrapes; empty: as it does by itself.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    interval: str = ""
    timeout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """The images of pods, the roles to bind, and what PodMonitors say, of one installation of the
    operator.
    """

    image_collector: str = ""
    image_shipper: str = ""
    image_nats: str = ""
    image_table: str = ""
    # Of the callout beside a managed server; without it all shippers share one user there.
    image_callout: str = ""
    image_pull_policy: str = ""
    image_pull_secrets: tuple[str, ...] = ()
    # Lets shippers of all namespaces read labels and annotations of pods; without it they select
    # by path alone.
    shipper_cluster_role: str = ""
    # The same for shippers of their own namespace, bound in it, as Kind/name.
    shipper_role: str = ""
    # Lets a driver make pods for its executors: a ClusterRole, or a Role in every namespace that
    # the operator looks after, as Kind/name; without it accounts must have the right already.
    spark_role: str = ""
    scraping: Scraping = field(default_factory=Scraping)

    def image(self, component: Component) -> str:
        """Return the image of *component*, or an empty text."""
        return {
            Component.COLLECTOR: self.image_collector,
            Component.SHIPPER: self.image_shipper,
            Component.NATS: self.image_nats,
            Component.TABLE: self.image_table,
            Component.EXECUTOR: self.image_table,
        }[component]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The features of the cluster that children depend on."""

    # The API of SparkApplications; empty if there is none, None if that could not be found out.
    spark_api: str | None = ""
    has_pod_monitors: bool = False
    # An API server before 1.35 drops the field; each comparison would find it changed again.
    has_max_unavailable: bool = False
    # The keys that verify the tokens of this cluster's pods, as a JSON Web Key Set; empty if tokens
    # do not name the pod's node, or if the operator may not read the keys.
    token_keys: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedServer:
    """The state of a pipeline's managed server that its children depend on."""

    # Hashes of the Secrets of its users, of the table's user and of the callout's user. A server
    # reads the Secrets only when it starts, so a new hash restarts it.
    users: str = ""
    table_user: str = ""
    callout_user: str = ""
    # The certificates that clients trust, and the mark of the server's own (`nats_tls.mark`), which
    # it reads only when it starts.
    ca: str = ""
    certificate: str = ""
    # A server that began without accounts never gets any: it would not find its streams, which lie
    # in the folder of their account.
    has_accounts: bool = False
    # Whether it was made when TLS was there, so that its claims say so.
    began_with_tls: bool = False
    # The size of its smallest volume; 0 if it has none yet.
    claimed_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """All that children depend on besides their resource."""

    install: Install = Install()
    features: Features = Features()
    server: ManagedServer = ManagedServer()
    # The namespaces whose pods shippers read, if a selector of namespaces decides it.
    pod_namespaces: tuple[str, ...] = ()

    @property
    def has_callout(self) -> bool:
        """Whether shippers log in to a managed server with the tokens of their pods. The callout
        puts nodes into an account of their own, so the server must have accounts.
        """
        has_image = bool(self.install.image_callout)
        return self.server.has_accounts and has_image and bool(self.server.callout_user)


def given(fields: Mapping[str, Any]) -> Manifest:
    """Return *fields* without those that are None or empty, which other managers may set."""
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


def canonical(value: object) -> object:
    """Return the quantity *value* in Kubernetes' canonical form; another value is returned as it
    is, and the API server refuses it.
    """
    found = _QUANTITY.fullmatch(str(value)) if len(str(value)) <= _DIGITS_MAX else None
    if found is None or isinstance(value, bool) or not any(map(str.isdigit, found[1])):
        return value
    number, suffix = Decimal(found[1]), found[2]
    if suffix in _BINARY:
        return _binary(number * _BINARY[suffix])
    if suffix in _DECIMAL:
        return _decimal(number.scaleb(_DECIMAL[suffix]))
    # Kubernetes keeps an exponent as it is.
    return value


def quantity(size_bytes: int) -> str:
    """Return *size_bytes* as a quantity in canonical form."""
    return str(canonical(format_bytes(size_bytes)))


def canonical_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's requests and limits with each quantity in canonical form."""
    return {
        kind: {name: canonical(value) for name, value in amounts.items()}
        if isinstance(amounts, Mapping)
        else amounts
        for kind, amounts in resources.items()
    }


def _decimal(number: Decimal) -> str:
    number = number.quantize(_NANO, rounding=ROUND_CEILING)
    for suffix, exponent in sorted(_DECIMAL.items(), key=lambda pair: -pair[1]):
        scaled = number.scaleb(-exponent)
        if number and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return "0"


def _binary(number: Decimal) -> str:
    if abs(number) < _BINARY_MIN or number != number.to_integral_value():
        return _decimal(number)
    count = int(number)
    for suffix, size in reversed(_BINARY.items()):
        if count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)


def selector(pipeline: LogPipeline, component: Component) -> dict[str, str]:
    """Return the labels that select the pods of *component*."""
    return {
        NAME_LABEL: NAME,
        INSTANCE_LABEL: pipeline.name,
        COMPONENT_LABEL: component.value,
    }


def labels(pipeline: LogPipeline, component: Component | None = None) -> dict[str, str]:
    """Return the labels of a child."""
    found = {
        NAME_LABEL: NAME,
        INSTANCE_LABEL: pipeline.name,
        MANAGED_BY_LABEL: MANAGED_BY,
        PIPELINE_LABEL: pipeline.name,
    }
    return found if component is None else found | selector(pipeline, component)


def metadata(pipeline: LogPipeline, name: str, component: Component | None = None) -> Manifest:
    """Return the metadata of the child *name*, which Kubernetes removes with the pipeline."""
    found: Manifest = {
        "name": name,
        "namespace": pipeline.namespace,
        "labels": labels(pipeline, component),
    }
    if pipeline.uid:
        found["ownerReferences"] = [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": pipeline.name,
                "uid": pipeline.uid,
                "controller": True,
                # Else a deletion in the foreground would wait for every pod to write its files.
                "blockOwnerDeletion": False,
            }
        ]
    return found
