"""The words of `kubectl logpipeline` and of `logpipeline operator`, and whom they make us be."""

from __future__ import annotations

import base64
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logpipeline_cli.arguments import build_parser
from logpipeline_cli.arguments import kubectl as arguments
from logpipeline_cli.cluster import api
from logpipeline_cli.cluster.kubectl import Kubectl
from logpipeline_cli.cluster.nats import Service, service_of
from logpipeline_cli.commands import components
from logpipeline_cli.errors import CliError
from logpipeline_cli.main import kubectl
from logpipeline_operator.settings import read

NAMES = [(command.name,) for command in arguments.COMMANDS] + [("files", "ls"), ("files", "cat")]


def run(*given: str) -> int:
    """Run a command in this process, and return its exit code however it ends."""
    try:
        return kubectl(given)
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("given", NAMES, ids=" ".join)
def test_every_command_of_the_plugin_explains_itself(
    given: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` ends with an example of the plugin, and not of the plain command."""
    assert run(*given, "--help") == 0
    assert "example:\n  kubectl logpipeline" in capsys.readouterr().out


@pytest.mark.parametrize("given", [(), ("up",), ("status", "-f", "x.yaml"), ("files", "cat")])
def test_words_that_make_no_sense_in_a_cluster_exit_64(given: tuple[str, ...]) -> None:
    """Files and folders of this machine are not those of a cluster."""
    assert run(*given) == 64


def test_help_of_the_plugin_imports_nothing_heavy() -> None:
    """Neither a client of Kubernetes nor NATS is needed to read the words."""
    heavy = ("pykube", "requests", "kubernetes", "kopf", "nats", "yaml", "logpipeline_operator")
    code = (
        "import sys\nfrom logpipeline_cli.arguments.kubectl import build_parser\nbuild_parser()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_operator_gets_the_words_that_were_given() -> None:
    """What `logpipeline operator` takes is what the operator itself reads."""
    given = [
        "operator", "--namespace", "a", "--namespace=b", "--read-only", "--http", "0.0.0.0:1",
        "--kubeconfig", "k", "--context", "c", "--no-lease",
    ]  # fmt: skip
    settings = read(components.operator_arguments(build_parser().parse_args(given)), {})
    plain = read(components.operator_arguments(build_parser().parse_args(["operator"])), {})

    assert (settings.namespaces, settings.is_read_only) == (("a", "b"), True)
    assert (settings.http_host, settings.http_port) == ("0.0.0.0", 1)
    assert (settings.kubeconfig, settings.context, settings.has_lease) == ("k", "c", False)
    assert plain == read([], {})


def test_without_its_packages_the_operator_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plain installation has neither kopf nor the client."""
    monkeypatch.setattr(components, "OPERATOR_PACKAGES", ("kopf_that_is_not_there",))

    with pytest.raises(CliError, match=r"pip install 'logpipeline\[operator\]'"):
        components.operator(build_parser().parse_args(["operator"]))


def test_without_kubectl_or_pykube_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A plain installation has neither."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pykube", None)

    with pytest.raises(CliError, match="kubectl was not found; install it"):
        Kubectl().config()
    with pytest.raises(CliError, match=r"pip install logpipeline\[kubernetes\]"):
        api.connected({}).__enter__()


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("nats://prod-nats.logging.svc:4222", Service("logging", "prod-nats", 4222)),
        ("nats://nats.other.svc.cluster.local", Service("other", "nats", 4222)),
        ("nats:4333", Service("here", "nats", 4333)),
        ("nats://nats.example.net:4222", None),
        ("nats://10.0.0.7:4222", None),
        ("tls://localhost:4222", None),
    ],
)
def test_services_are_told_from_other_servers(server: str, expected: Service | None) -> None:
    """Only what has a name in the cluster is reached through a forwarded port."""
    assert service_of(server, "here") == expected


def test_keys_of_a_kubeconfig_are_never_left_where_others_read_them(tmp_path: Path) -> None:
    """pykube would write them to files in /tmp that everybody can read."""
    secret = base64.b64encode(b"key").decode()
    config: dict[str, Any] = {
        "clusters": [{"name": "c", "cluster": {"certificate-authority-data": secret}}],
        "users": [{"name": "u", "user": {"client-key-data": secret, "token": "t"}}],
    }

    changed = api._with_files(config, tmp_path)

    user = changed["users"][0]["user"]
    assert Path(user["client-key"]).read_bytes() == b"key"
    assert stat.S_IMODE(Path(user["client-key"]).stat().st_mode) == 0o600
    assert "client-key-data" not in user
    assert user["token"] == "t"
    assert "certificate-authority-data" not in changed["clusters"][0]["cluster"]
    assert config["users"][0]["user"]["client-key-data"] == secret


def test_who_is_impersonated_is_impersonated_here_too() -> None:
    """Rights that a user gave up do not come back with this command."""

    def headers(**user: Any) -> dict[str, str]:
        return api.impersonation({"users": [{"user": user}]})

    assert headers() == {}
    assert headers(**{"as": "jane", "as-groups": ["dev"]}) == {
        "Impersonate-User": "jane", "Impersonate-Group": "dev",
    }  # fmt: skip
    with pytest.raises(CliError, match="several groups"):
        headers(**{"as": "jane", "as-groups": ["dev", "ops"]})
