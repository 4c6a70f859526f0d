"""`ship --kubernetes` needs a node and a pod, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline_cli.main import main

RESOURCE = """
apiVersion: logpipeline.dev/v1alpha1
kind: LogPipeline
metadata: {name: prod}
spec:
  nats: {servers: ["nats://127.0.0.1:1"]}
  local: {shippers: [{name: node, pods: /nonexistent}]}
"""


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [((), 64, "give --host $(NODE_NAME)"), (("--host", "node-a"), 1, "KUBERNETES_SERVICE_HOST")],
)
def test_what_it_lacks_is_told(
    words: tuple[str, ...],
    code: int,
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody wonders why labels are not heeded."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = tmp_path / "pipeline.yaml"
    path.write_text(RESOURCE)

    assert main(("ship", "-f", str(path), "--data", str(tmp_path), "--kubernetes", *words)) == code
    assert advice in capsys.readouterr().err
