"""The console that the chart can run: where it is, what it may do, and how its pod is confined."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cluster.chart_rendering import NAMESPACE, Manifest, Refused, Rendered, render
from logpipeline_cli.arguments.kubectl import build_parser
from logpipeline_cli.commands.console import TOKEN

NAME = "logpipeline-console"
COMPONENT = "app.kubernetes.io/component"
KINDS = {"Deployment", "Role", "RoleBinding", "Secret", "Service", "ServiceAccount"}


def shown(values: dict[str, Any] | None = None, **console: Any) -> Rendered:
    """Render the chart with a console of the pipeline `prod`."""
    return render({"console": {"enabled": True, "pipeline": "prod", **console}, **(values or {})})


def ours(rendered: Rendered) -> dict[str, Manifest]:
    """Return the console's objects by their kinds."""
    return {each["kind"]: each for each in rendered.manifests if each["metadata"]["name"] == NAME}


def pod(rendered: Rendered) -> Manifest:
    """Return the specification of the console's pod."""
    found: Manifest = ours(rendered)["Deployment"]["spec"]["template"]["spec"]
    return found


def test_chart_has_no_console_by_default_and_one_of_a_named_pipeline() -> None:
    """It shows lines of logs: that is wanted, or it is not there."""
    assert ours(render()) == {}
    assert ours(shown()).keys() == KINDS
    with pytest.raises(Refused, match=r"console\.pipeline: name the LogPipeline"):
        render({"console": {"enabled": True}})
    with pytest.raises(Refused, match="/console"):
        shown(pipelines=["prod"])


def test_chart_console_is_where_its_pipeline_is() -> None:
    """The server's NetworkPolicy lets pods of its namespace in, and the Role reaches no other."""
    assert {each["metadata"]["namespace"] for each in ours(shown()).values()} == {NAMESPACE}
    there = ours(shown(namespace="team"))

    assert {each["metadata"]["namespace"] for each in there.values()} == {"team"}
    assert there["RoleBinding"]["subjects"] == [
        {"kind": "ServiceAccount", "name": NAME, "namespace": "team"}
    ]


def test_chart_console_only_looks_and_at_one_pipeline() -> None:
    """It sees no Secret; the one thing that it makes is a token of a reader."""
    rules = ours(shown())["Role"]["rules"]
    granted = {
        (resource, name, verb)
        for rule in rules
        for resource in rule["resources"]
        for name in rule["resourceNames"]
        for verb in rule["verbs"]
    }

    assert granted == {
        ("logpipelines", "prod", "get"),
        ("serviceaccounts/token", "prod-reader", "create"),
        ("configmaps", "prod-nats-ca", "get"),
    }
    assert "Role" not in ours(shown({"rbac": {"create": False}}))


def test_chart_console_is_the_plugin_in_the_operators_image() -> None:
    """Its arguments are those that the plugin takes, and its names those of its Service."""
    values = {"image": {"registry": "r.example", "tag": "v9"}}
    rendered = shown(values, hostNames=["logs.example.net"], namespace="team")
    (container,) = pod(rendered)["containers"]
    program, *words = container["command"]

    args = build_parser().parse_args([*words, *container["args"]])

    assert program == "kubectl-logpipeline"
    assert container["image"] == "r.example/logpipeline/operator:v9"
    assert (args.namespace, args.pipeline, args.http) == ("team", "prod", "0.0.0.0:8630")
    assert args.host_name == [NAME, f"{NAME}.team", f"{NAME}.team.svc", "logs.example.net"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "token"]
    assert args.token_file == f"{mount['mountPath']}/token"


def test_chart_console_is_found_by_its_service_and_not_as_the_operator() -> None:
    """The operator's Service, budget, policy and monitor choose pods by another component."""
    rendered = shown(
        {"networkPolicy": {"enabled": True}}, port=80, **{"from": [{"podSelector": {}}]}
    )
    objects = ours(rendered)
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    policy = objects["NetworkPolicy"]["spec"]

    assert labels[COMPONENT] == "console"
    for selector in (
        objects["Service"]["spec"]["selector"],
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        policy["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
        assert selector[COMPONENT] == "console"
    assert objects["Service"]["spec"]["type"] == "ClusterIP"
    assert objects["Service"]["spec"]["ports"] == [
        {"name": "http", "port": 80, "targetPort": "http"}
    ]
    assert policy["ingress"][0]["from"] == [{"podSelector": {}}]
    operator = rendered.one("Deployment", "logpipeline-operator")["spec"]["selector"]
    assert not operator["matchLabels"].items() <= labels.items()


def test_chart_console_has_a_token_that_it_takes_or_that_of_a_given_secret() -> None:
    """A made one is as long as no program can guess; a given Secret is used as it is."""
    rendered, given = shown(), shown(existingSecret="mine")
    token = base64.b64decode(ours(rendered)["Secret"]["data"]["token"]).decode()

    def secret(of: Rendered) -> str:
        (volume,) = [each for each in pod(of)["volumes"] if each["name"] == "token"]
        return str(volume["secret"]["secretName"])

    assert TOKEN.fullmatch(token)
    assert len(token) == 40
    assert secret(rendered) == NAME
    assert "Secret" not in ours(given)
    assert secret(given) == "mine"


def test_chart_console_is_restricted() -> None:
    """It passes the Pod Security Standard `restricted`, with limits and a read-only root."""
    spec = pod(shown())
    (container,) = spec["containers"]
    context = container["securityContext"]

    assert spec["serviceAccountName"] == NAME
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    # Such a request names the pod's address, which the page refuses as a name.
    assert "tcpSocket" in container["livenessProbe"]
    assert "tcpSocket" in container["readinessProbe"]
