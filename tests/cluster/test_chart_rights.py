"""What the chart lets the operator, its users and its test do, and how its pods are confined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from cluster.chart_rendering import ALL_ON, NAMESPACE, Rendered, chart_file, render

Rule = tuple[str, str, str, str]
OPERATOR = "logpipeline-operator"
SHIPPER = "logpipeline-shipper"
SHIPPER_OWN = "logpipeline-shipper-own"
SPARK = "logpipeline-spark"
SEES = {"get", "list", "watch"}


def flat(rules: Iterable[dict[str, Any]]) -> set[Rule]:
    """Each right alone: group, resource, name ("" for all), verb."""
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def rights(*headings: str) -> set[Rule]:
    """What files/rbac.yaml lists under *headings*."""
    text = chart_file("files/rbac.yaml")
    text = text.replace("SHIPPER_CLUSTER_ROLE", SHIPPER).replace("LEASE", OPERATOR)
    text = text.replace("SHIPPER_ROLE", SHIPPER_OWN).replace("SPARK_ROLE", SPARK)
    listed = yaml.safe_load(text)
    return {right for heading in headings for right in flat(listed[heading])}


def bound(rendered: Rendered) -> Iterator[tuple[str, set[Rule]]]:
    """What the operator may do, by namespace; "" is everywhere."""
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in rendered.all(kind):
            (subject,) = binding["subjects"]
            assert (subject["name"], subject["namespace"]) == (OPERATOR, NAMESPACE)
            role = binding["roleRef"]
            namespace = binding["metadata"].get("namespace")
            (found,) = (
                each
                for each in rendered.all(role["kind"], role["name"])
                if each["metadata"].get("namespace") == namespace
            )
            yield namespace or "", flat(found["rules"])


def test_chart_operator_may_do_what_is_listed_everywhere() -> None:
    """By default it works in all namespaces, and holds its Lease in its own."""
    assert dict(bound(render())) == {
        "": rights(
            "read",
            "report",
            "write",
            "shipperWrite",
            "sparkWrite",
            "clusterRead",
            "clusterWrite",
            "classes",
        ),
        NAMESPACE: rights("lease"),
    }


def test_chart_operator_of_some_namespaces_may_nothing_elsewhere() -> None:
    """With watchNamespaces there are Roles, and in the whole cluster it sees classes only."""
    rendered = render({"watchNamespaces": ["a", "b"]})
    listed = rights("read", "report", "write", "shipperWrite", "sparkWrite")

    assert dict(bound(rendered)) == {
        "": rights("classes"), "a": listed, "b": listed, NAMESPACE: rights("lease"),
    }  # fmt: skip
    assert "LOGPIPELINE_SHIPPER_CLUSTER_ROLE" not in rendered.environment


def test_chart_operator_that_only_reads_may_only_report() -> None:
    """A read-only operator could not write to anything but statuses and events if it tried."""
    found = dict(bound(render({"readOnly": True})))
    everywhere = found[""]

    assert found == {"": rights("read", "report", "clusterRead", "classes")}
    assert {verb for *_, verb in everywhere - rights("report")} <= SEES


@pytest.mark.parametrize(
    ("rbac", "namespaces", "is_there"),
    [
        ({}, [], True),
        ({}, ["a"], False),
        ({"shipperMetadata": True}, ["a"], True),
        ({"shipperMetadata": False}, [], False),
        ({"create": False}, [], False),
    ],
)
def test_chart_shippers_see_pods_where_that_is_wanted(
    rbac: dict[str, Any], namespaces: list[str], is_there: bool
) -> None:
    """The shippers' role, the right to bind it and the setting that names it come together."""
    rendered = render({"rbac": rbac, "watchNamespaces": namespaces})
    everywhere = dict(bound(rendered)).get("", set())

    assert bool(rendered.all("ClusterRole", SHIPPER)) is is_there
    assert (rights("clusterWrite") <= everywhere) is is_there
    assert ("LOGPIPELINE_SHIPPER_CLUSTER_ROLE" in rendered.environment) is is_there


@pytest.mark.parametrize(
    ("namespaces", "kind", "places"),
    [([], "ClusterRole", [None]), (["a", "b"], "Role", ["a", "b"])],
)
def test_chart_tables_make_executors_where_they_are(
    namespaces: list[str], kind: str, places: list[str | None]
) -> None:
    """The drivers' role, the right to bind it and the setting that names it come together; with
    watchNamespaces each namespace has its own.
    """
    rendered = render({"watchNamespaces": namespaces})
    roles = rendered.all(kind, SPARK)

    assert [role["metadata"].get("namespace") for role in roles] == places
    assert all(flat(role["rules"]) == rights("spark") for role in roles)
    assert rendered.environment["LOGPIPELINE_SPARK_ROLE"] == f"{kind}/{SPARK}"
    without = render({"watchNamespaces": namespaces, "rbac": {"sparkExecutors": False}})
    assert not without.all(kind, SPARK)
    assert "LOGPIPELINE_SPARK_ROLE" not in without.environment
    given = [right for rights in dict(bound(without)).values() for right in rights]
    assert not any(name == SPARK for *_, name, _ in given)


def test_chart_operator_makes_no_pods_itself() -> None:
    """What drivers may do with pods is theirs, where they are bound: the operator only binds."""
    everywhere = dict(bound(render()))[""]

    assert {verb for _, resource, _, verb in everywhere if resource == "pods"} == {
        "list", "watch", "delete",
    }  # fmt: skip
    assert {resource for _, resource, _, _ in rights("spark")} == {"pods", "configmaps"}


@pytest.mark.parametrize(
    ("namespaces", "kind", "places"),
    [([], "ClusterRole", [None]), (["a", "b"], "Role", ["a", "b"])],
)
def test_chart_shippers_see_the_pods_of_their_own_namespace(
    namespaces: list[str], kind: str, places: list[str | None]
) -> None:
    """The role, the right to bind it and the setting that names it come together, also where only
    some namespaces are watched.
    """
    rendered = render({"watchNamespaces": namespaces})
    roles = rendered.all(kind, SHIPPER_OWN)

    assert [role["metadata"].get("namespace") for role in roles] == places
    assert all(flat(role["rules"]) == rights("shipperOwn") for role in roles)
    assert rendered.environment["LOGPIPELINE_SHIPPER_ROLE"] == f"{kind}/{SHIPPER_OWN}"
    assert {resource for _, resource, _, _ in rights("shipperOwn")} == {"pods"}


def test_chart_operator_lists_no_secrets_and_binds_three_roles() -> None:
    """It reads Secrets by name only, deletes none, and can give nobody more than what shippers see,
    and what drivers do in their own namespace.
    """
    everywhere = dict(bound(render()))[""]
    on_secrets = {verb for _, resource, _, verb in everywhere if resource == "secrets"}
    binds = {(resource, name) for _, resource, name, verb in everywhere if verb == "bind"}

    assert on_secrets == {"get", "create", "patch"}
    assert binds == {
        ("clusterroles", SHIPPER),
        *((kind, name) for kind in ("clusterroles", "roles") for name in (SHIPPER_OWN, SPARK)),
    }
    assert not any("*" in right for right in everywhere)
    assert not any(verb in ("escalate", "impersonate") for *_, verb in everywhere)


def test_chart_viewers_see_pipelines_and_editors_do_not_make_them() -> None:
    """Whoever makes a pipeline reads all logs: that is given to editors only on request."""
    by_default = render().all("ClusterRole")
    on_request = render(ALL_ON).one("ClusterRole", "logpipeline-edit")
    label = "rbac.authorization.k8s.io/aggregate-to-edit"

    assert not any(label in role["metadata"]["labels"] for role in by_default)
    assert on_request["metadata"]["labels"][label] == "true"
    view = render().one("ClusterRole", "logpipeline-view")
    assert {verb for *_, verb in flat(view["rules"])} == SEES


def test_chart_pods_are_restricted() -> None:
    """Operator and test pass the Pod Security Standard `restricted`, with a read-only root."""
    rendered = render(with_tests=True)

    for pod in (rendered.pod, rendered.one("Pod")["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_chart_uses_an_account_that_is_there() -> None:
    """Without an account and rights of its own it uses the one that is named."""
    values = {"serviceAccount": {"create": False, "name": "given"}, "rbac": {"create": False}}

    rendered = render(values)

    assert rendered.pod["serviceAccountName"] == "given"
    assert not rendered.kinds & {"ServiceAccount", "Role", "RoleBinding", "ClusterRole"}


@pytest.mark.parametrize(
    ("values", "namespace"),
    [
        ({}, NAMESPACE),
        ({"watchNamespaces": ["a", "b"]}, "a"),
        ({"watchNamespaces": ["a", NAMESPACE]}, NAMESPACE),
        ({"watchNamespaces": ["a"], "test": {"namespace": "b"}}, "b"),
    ],
)
def test_chart_test_goes_where_the_operator_looks(values: dict[str, Any], namespace: str) -> None:
    """The test has its pipeline, and its rights, in a namespace that is watched."""
    rendered = render(values, with_tests=True)
    (container,) = rendered.one("Pod")["spec"]["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}

    assert environment["TEST_NAMESPACE"] == namespace
    assert rendered.one("Role", "logpipeline-test")["metadata"]["namespace"] == namespace


def test_chart_test_of_a_pipeline_that_is_there_leaves_it_alone() -> None:
    """A pipeline of the user's is read and looked into; the test could not delete it."""
    rendered = render({"test": {"pipeline": "prod"}}, with_tests=True)
    given = flat(rendered.one("Role", "logpipeline-test")["rules"])
    (container,) = rendered.one("Pod")["spec"]["containers"]

    assert ("logpipeline.dev", "logpipelines", "prod", "get") in given
    assert not any(verb == "delete" for *_, verb in given)
    assert "TEST_SPEC" not in {each["name"] for each in container["env"]}
