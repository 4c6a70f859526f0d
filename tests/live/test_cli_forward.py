"""A forwarded port waits for a pod that is just being replaced, and for nothing else.

kubectl is a fake: a pod that is replaced between kubectl's look and the kubelet's cannot be had
for sure in a cluster.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from logpipeline_cli.cluster import kubectl
from logpipeline_cli.cluster.kubectl import Forward, Kubectl
from logpipeline_cli.errors import CliError

REPLACED = "error: error upgrading connection: unable to upgrade connection: pod does not exist"
FORBIDDEN = 'Error from server (Forbidden): services "prod-nats" is forbidden'
_FAKE = """#!/bin/sh
printf . >> {calls}
if [ $(wc -c < {calls}) -le {refusals} ]; then
    echo {said} >&2
    exit 1
fi
echo "Forwarding from 127.0.0.1:4321 -> 4222"
exec sleep 600
"""


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, said: str, refusals: int) -> Path:
    """Put a kubectl into PATH that says *said* so often before it forwards; return its calls."""
    calls = folder / "calls"
    program = folder / "kubectl"
    program.write_text(
        _FAKE.format(calls=shlex.quote(str(calls)), refusals=refusals, said=shlex.quote(said))
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setattr(kubectl, "AGAIN_AFTER_S", 0.01)
    return calls


def test_a_pod_that_is_being_replaced_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake(tmp_path, monkeypatch, REPLACED, refusals=2)
    with Forward(Kubectl(), "prod", "service/prod-nats", 4222) as forward:
        assert forward.local_port == 4321
    assert len(calls.read_text()) == 3


def test_a_pod_that_never_comes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake(tmp_path, monkeypatch, REPLACED, refusals=1_000_000)
    monkeypatch.setattr(kubectl, "FORWARD_WITHIN_S", 3.0)
    with pytest.raises(CliError, match="pod does not exist"):
        Forward(Kubectl(), "prod", "service/prod-nats", 4222)
    assert len(calls.read_text()) > 1


def test_a_refusal_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake(tmp_path, monkeypatch, FORBIDDEN, refusals=1_000_000)
    with pytest.raises(CliError, match="list pods, and to create pods/portforward"):
        Forward(Kubectl(), "prod", "service/prod-nats", 4222)
    assert len(calls.read_text()) == 1
