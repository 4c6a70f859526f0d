"""The operator's settings, from the command line and the environment."""

from __future__ import annotations

import argparse
import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from logpipeline import json_text
from logpipeline_operator.children.model import Install, Scraping

PREFIX = "LOGPIPELINE_"
# A change that no event reported is found by the next round; a busy cluster has thousands of
# objects.
RESYNC_S = 30.0
# Only looks trim streams and say that the status holds: with longer rounds streams fill up, and
# another operator takes the pipelines for left alone.
RESYNC_MAX_S = 60.0
# The first wait before a pipeline that is not settled is reconciled again.
LOOK_AGAIN_S = 3.0
# A waiting operator takes the Lease when the leader has not renewed it for this long.
LEASE_S = 15.0
# More than this is a mistake of the unit.
PERIOD_MAX_S = 3600.0
# Part of an operator's name in the status: a read-only operator gives way to one that acts.
READ_ONLY_SUFFIX = " (read-only)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One operator; no *namespaces* means all of them."""

    namespaces: tuple[str, ...] = ()
    is_read_only: bool = False
    http_host: str = "127.0.0.1"
    http_port: int = 9103
    kubeconfig: str = ""
    context: str = ""
    lease_namespace: str = "default"
    lease_name: str = "logpipeline-operator"
    identity: str = "logpipeline-operator"
    has_lease: bool = True
    lease_s: float = LEASE_S
    resync_s: float = RESYNC_S
    look_again_s: float = LOOK_AGAIN_S
    install: Install = field(default_factory=Install)

    @property
    def operator(self) -> str:
        """The operator's name in the status; all replicas of a release have the same."""
        suffix = READ_ONLY_SUFFIX if self.is_read_only else ""
        return f"{self.lease_namespace}/{self.lease_name}{suffix}"

    @property
    def version(self) -> str:
        """The operator's version."""
        return version("logpipeline")


def read(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a command line; what it leaves out is taken from *environment*."""

    parser = argparse.ArgumentParser(
        prog="logpipeline operator",
        description="Run the operator: make the children of each LogPipeline in a cluster.",
        epilog="Example: logpipeline operator --namespace logging --kubeconfig ~/.kube/config",
    )
    read_from = _Environment(environment, parser)
    given = read_from.text
    parser.add_argument(
        "--namespace", action="append", default=[], metavar="NS",
        help="watch this namespace only; may be given several times (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--read-only", action="store_true", default=given("READ_ONLY") == "true",
        help="change nothing, and show the waiting changes in the status",
    )  # fmt: skip
    parser.add_argument(
        "--http", default=given("HTTP", "127.0.0.1:9103"), metavar="HOST:PORT",
        help="where metrics and probes are served",
    )  # fmt: skip
    parser.add_argument(
        "--kubeconfig", default=given("KUBECONFIG"), metavar="FILE",
        help="the kubeconfig for a cluster that the operator does not run in",
    )  # fmt: skip
    parser.add_argument("--context", default="", help="the context of the kubeconfig")
    parser.add_argument(
        "--no-lease",
        action="store_true",
        help="lead without a Lease: only if no other operator runs",
    )
    words = parser.parse_args(arguments)
    host, _, port = words.http.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        parser.error(f"--http {words.http!r}: give HOST:PORT, such as 0.0.0.0:9103")
    namespaces = words.namespace or _list(given("WATCH_NAMESPACES"))
    return Settings(
        namespaces=tuple(sorted(set(namespaces))),
        is_read_only=words.read_only,
        http_host=host.strip("[]"),
        http_port=int(port),
        kubeconfig=words.kubeconfig,
        context=words.context,
        lease_namespace=given("LEASE_NAMESPACE", given("POD_NAMESPACE", "default")),
        lease_name=given("LEASE_NAME", "logpipeline-operator"),
        identity=given("POD_NAME", socket.gethostname()),
        has_lease=not words.no_lease,
        lease_s=read_from.period_s("LEASE_SECONDS", LEASE_S),
        resync_s=read_from.period_s("RESYNC_SECONDS", RESYNC_S, RESYNC_MAX_S),
        look_again_s=read_from.period_s("LOOK_AGAIN_SECONDS", LOOK_AGAIN_S),
        install=Install(
            image_collector=given("IMAGE_COLLECTOR"),
            image_shipper=given("IMAGE_SHIPPER"),
            image_nats=given("IMAGE_NATS"),
            image_table=given("IMAGE_TABLE"),
            image_callout=given("IMAGE_CALLOUT"),
            image_pull_policy=given("IMAGE_PULL_POLICY"),
            image_pull_secrets=_list(given("IMAGE_PULL_SECRETS")),
            shipper_cluster_role=given("SHIPPER_CLUSTER_ROLE"),
            shipper_role=given("SHIPPER_ROLE"),
            spark_role=given("SPARK_ROLE"),
            scraping=Scraping(
                labels=read_from.texts("POD_MONITOR_LABELS"),
                annotations=read_from.texts("POD_MONITOR_ANNOTATIONS"),
                interval=given("POD_MONITOR_INTERVAL"),
                timeout=given("POD_MONITOR_TIMEOUT"),
            ),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Environment:
    """What the environment says; *parser* ends the process where that is no value."""

    variables: Mapping[str, str]
    parser: argparse.ArgumentParser

    def text(self, name: str, default: str = "") -> str:
        return self.variables.get(PREFIX + name) or default

    def period_s(self, name: str, default: float, most: float = PERIOD_MAX_S) -> float:
        text = self.text(name, str(default))
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        # Also not for nan, which is not greater than anything.
        if not 0 < seconds <= most:
            why = f"give seconds, more than 0 and at most {most:g}"
            self.parser.error(f"{PREFIX}{name}={text}: {why}")
        return seconds

    def texts(self, name: str) -> dict[str, str]:
        text = self.text(name, "{}")
        try:
            found = json_text.parse(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            self.parser.error(f"{PREFIX}{name}={text}: give an object of texts, in JSON")
        return found


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
