"""`kubectl logpipeline top` and `console`: whom they are at the server, and what they leave."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from logpipeline.authority import READERS_DOMAIN, inbox_prefix, user_of_reader
from logpipeline_cli.cluster import commands, nats
from logpipeline_cli.cluster.api import Api, Forbidden, Manifest, NotFound
from logpipeline_cli.cluster.kubectl import Kubectl
from logpipeline_cli.cluster.session import Cluster
from logpipeline_cli.main import kubectl
from logpipeline_cli.target import Target

TOKEN = "a-token-of-a-reader"
RESOURCE = {
    "apiVersion": "logpipeline.dev/v1alpha1",
    "kind": "LogPipeline",
    "metadata": {"name": "prod", "namespace": "logging"},
    "spec": {"nats": {"managed": {"tls": "Disabled"}}},
}
# So often a page is served before it is ended.
SPANS = 2
ACCOUNT = "/api/v1/namespaces/logging/serviceaccounts/prod-reader/token"


class FakeApi:
    """An API server with one pipeline, which gives tokens of readers unless it may not."""

    def __init__(self) -> None:
        self.has_readers = True
        self.asked: list[str] = []
        self.made = 0

    def get(self, path: str) -> Manifest:
        """Return the pipeline; nothing else may be seen."""
        self.asked.append(path)
        if path.endswith("/logpipelines/prod"):
            return RESOURCE
        raise Forbidden(f"{path} may not be seen")

    def create(self, path: str, manifest: Manifest) -> Manifest:
        """Return a token, as the API server would."""
        if not self.has_readers or path != ACCOUNT:
            raise NotFound(path)
        assert manifest["spec"]["audiences"] == ["prod-nats.logging.nats.logpipeline.dev"]
        self.made += 1
        return {"status": {"token": TOKEN}}


class FakeForward:
    """A forwarded port that is closed as a context."""

    open = 0
    local_port = 14222

    def __init__(self, _: Kubectl, namespace: str, target: str, port: int) -> None:
        assert (namespace, target, port) == ("logging", "service/prod-nats", 4222)

    def __enter__(self) -> FakeForward:
        FakeForward.open += 1
        return self

    def __exit__(self, *error: object) -> None:
        FakeForward.open -= 1


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """The API server that the plugin reaches."""
    made = FakeApi()

    @contextmanager
    def session(_: object) -> Iterator[Cluster]:
        yield Cluster(Kubectl(), cast(Api, made), "logging")

    monkeypatch.setattr(commands, "session", session)
    monkeypatch.setattr(nats, "Forward", FakeForward)
    monkeypatch.delenv("NATS_URL", raising=False)
    return made


def shown(monkeypatch: pytest.MonkeyPatch, command: str) -> list[dict[str, Any]]:
    """Have *command* note for whom it shows what, in place of showing it."""
    found: list[dict[str, Any]] = []

    def show(target: Target, *, span_s: float | None = None) -> int:
        options = target.nats
        assert options.token_file is not None
        found.append(
            {
                "servers": options.servers,
                "token": options.token_file.read_text(),
                "inbox": options.inbox_prefix,
                "domain": options.js_domain,
                "user": options.user_file,
                "folder": options.token_file.parent,
                "forwards": FakeForward.open,
            }
        )
        if span_s is not None:
            assert span_s < nats.READER_TOKEN_S
            if len(found) == SPANS:
                raise KeyboardInterrupt
        return 0

    module = SimpleNamespace(show=show, Page=lambda _: SimpleNamespace(show=show))
    monkeypatch.setitem(sys.modules, f"logpipeline_cli.commands.{command}", module)
    monkeypatch.setattr(f"logpipeline_cli.commands.{command}", module, raising=False)
    return found


@pytest.mark.parametrize(("command", "times", "code"), [("top", 1, 0), ("console", SPANS, 130)])
def test_who_only_watches_is_a_reader_at_the_server(
    command: str, times: int, code: int, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a forwarded port, with a token for that server alone; no Secret is asked for, and
    neither the port nor the token is left. A page gets a new token before the former one ends.
    """
    found = shown(monkeypatch, command)

    assert kubectl([command, "--pipeline", "prod"]) == code

    assert len(found) == times
    assert api.made == times
    seen = found[-1]
    folder: Path = seen.pop("folder")
    assert seen == {
        "servers": ("nats://127.0.0.1:14222",),
        "token": TOKEN,
        "inbox": inbox_prefix(user_of_reader(TOKEN)),
        "domain": READERS_DOMAIN,
        "user": None,
        "forwards": 1,
    }
    assert not any("secrets" in path for path in api.asked)
    assert not folder.exists()
    assert FakeForward.open == 0


@pytest.mark.parametrize("command", ["top", "console"])
def test_who_may_neither_be_a_reader_nor_see_the_secret_hears_which_right_is_missing(
    command: str,
    api: FakeApi,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one line, without a trace."""
    api.has_readers = False
    found = shown(monkeypatch, command)

    assert kubectl([command, "--pipeline", "prod"]) == 1

    assert found == []
    said = capsys.readouterr().err
    assert "needs the right to get the Secret prod-nats-auth" in said
    assert "create serviceaccounts/token of prod-reader" in said


def test_in_a_pod_its_service_account_is_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without kubectl; a kubeconfig that was chosen comes first."""
    monkeypatch.setattr("logpipeline_cli.cluster.kubectl.ACCOUNT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert not Kubectl().is_in_pod
    (tmp_path / "token").write_text("of-the-pod\n")
    (tmp_path / "namespace").write_text("logging")

    config = Kubectl().config()

    (cluster,), (user,) = config["clusters"], config["users"]
    assert cluster["cluster"]["server"] == "https://[fd00::1]:6443"
    assert cluster["cluster"]["certificate-authority"] == str(tmp_path / "ca.crt")
    assert user["user"] == {"token": "of-the-pod"}
    assert config["contexts"][0]["context"]["namespace"] == "logging"
    assert not Kubectl(context="other").is_in_pod
    assert not Kubectl(kubeconfig="file").is_in_pod


def test_in_a_pod_the_server_is_reached_by_its_service(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There no port has to be forwarded."""
    monkeypatch.setattr(Kubectl, "is_in_pod", True)
    found = shown(monkeypatch, "top")

    assert kubectl(["top", "--pipeline", "prod"]) == 0

    assert found[0]["servers"] == ("nats://prod-nats.logging.svc:4222",)
    assert found[0]["forwards"] == 0
