"""Runs kubectl, for what plain requests to the API server cannot do: to start programs in pods, and
to forward ports.

kubectl also provides the kubeconfig: it knows every way to choose a cluster and to log in to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast

from logpipeline import json_text
from logpipeline_cli.errors import CliError

DEADLINE_S = 30.0
END_WITHIN_S = 5.0
FORWARD_WITHIN_S = 20.0
# A port whose pod was replaced is forwarded again, to the new pod.
AGAIN_AFTER_S = 1.0
# Messages of the kubelet about a pod that is being replaced, or that it does not know yet.
_SOON_THERE = re.compile(r"pod does not exist|pod not found|pod is not running|container not")
CONTAINER = "collector"
# How a pod finds the API server, and who it is there.
API_HOST, API_PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ->")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl, with the options that choose the cluster."""

    kubeconfig: str | None = None
    context: str | None = None

    def words(self, *more: str) -> list[str]:
        """Return a command line of kubectl."""
        named = [("--kubeconfig", self.kubeconfig), ("--context", self.context)]
        chosen = [f"{option}={value}" for option, value in named if value]
        return ["kubectl", *chosen, *more]

    def config(self) -> dict[str, Any]:
        """Return the kubeconfig of the chosen cluster, with the content of files that it refers to.

        Raises:
            CliError: there is no cluster, or no kubectl.
        """
        if self.is_in_pod:
            return _of_pod()
        words = self.words("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=DEADLINE_S, check=False
            )
        except FileNotFoundError:
            raise CliError("kubectl was not found; install it, or add it to PATH") from None
        except subprocess.TimeoutExpired:
            raise CliError(f"`{' '.join(words)}` did not end in {DEADLINE_S:.0f} s") from None
        try:
            found = json_text.parse(done.stdout) if done.returncode == 0 else {}
        except ValueError as error:
            raise CliError(f"`{' '.join(words)}` did not answer with JSON: {error}") from error
        if not found.get("clusters"):
            said = done.stderr.strip().removeprefix("error: ")
            raise CliError(
                f"no cluster is known{f' ({said})' if said else ''}; give --kubeconfig FILE or "
                "--context NAME, set KUBECONFIG, or see `kubectl config get-contexts`"
            )
        return cast("dict[str, Any]", found)

    @property
    def is_in_pod(self) -> bool:
        """Whether the cluster is the one in whose pod this runs, as the pod's service account."""
        is_chosen = self.kubeconfig or self.context or os.environ.get("KUBECONFIG")
        if is_chosen or (Path.home() / ".kube" / "config").is_file():
            return False
        return API_HOST in os.environ and (ACCOUNT / "token").is_file()

    def exec_words(self, namespace: str, pod: str, container: str = CONTAINER) -> tuple[str, ...]:
        """Return the command line that starts a program in a pod; the program's own is to
        follow.
        """
        return tuple(self.words("exec", "-i", "-n", namespace, pod, "-c", container, "--"))


def _of_pod() -> dict[str, Any]:
    """Return a kubeconfig of the pod's service account, with the token that it has now."""
    host = os.environ[API_HOST]
    server = f"https://{f'[{host}]' if ':' in host else host}:{os.environ.get(API_PORT, '443')}"
    try:
        token = (ACCOUNT / "token").read_text().strip()
        namespace = (ACCOUNT / "namespace").read_text().strip()
    except OSError as error:
        raise CliError(f"the pod's service account cannot be read: {error}") from error
    authority = str(ACCOUNT / "ca.crt")
    return {
        "current-context": "pod",
        "clusters": [
            {"name": "pod", "cluster": {"server": server, "certificate-authority": authority}}
        ],
        "users": [{"name": "pod", "user": {"token": token}}],
        "contexts": [
            {"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}
        ],
    }


class Forward:
    """A port of this machine that is forwarded to *port* of *target* in the cluster."""

    def __init__(self, kubectl: Kubectl, namespace: str, target: str, port: int) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._target = target
        self._port = port
        self._closing = threading.Event()
        self._stderr: IO[bytes] = TemporaryFile()  # noqa: SIM115  it is closed with the forward
        self._process = self._start(0)
        self.local_port = self._open()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def __enter__(self) -> Forward:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop forwarding."""
        self._closing.set()
        _end(self._process)
        self._keeper.join()
        self._stderr.close()

    def _start(self, local_port: int) -> subprocess.Popen[bytes]:
        ports = f"{local_port or ''}:{self._port}"
        return subprocess.Popen(
            self._kubectl.words(
                "port-forward", "-n", self._namespace, "--address=127.0.0.1", self._target, ports
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )

    def _open(self) -> int:
        """Return the local port; wait for a pod that is being replaced."""
        until = time.monotonic() + FORWARD_WITHIN_S
        said = ""
        while True:
            port = self._wait_for_port(until - time.monotonic())
            if port is not None:
                return port
            # A process that was ended at the deadline printed nothing.
            said = self._said() or said
            if not _SOON_THERE.search(said) or time.monotonic() + AGAIN_AFTER_S > until:
                self._stderr.close()
                raise self._unreachable(said)
            time.sleep(AGAIN_AFTER_S)
            self._process = self._start(0)

    def _wait_for_port(self, within_s: float) -> int | None:
        """Return the local port, or None if kubectl ended without one."""
        late = threading.Timer(within_s, self._process.kill)
        late.start()
        try:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                if match := _FORWARDING.match(line.decode("utf-8", "replace")):
                    return int(match[1])
        finally:
            late.cancel()
        _end(self._process)
        return None

    def _said(self) -> str:
        """Return the messages of the last process, and clear them."""
        self._stderr.seek(0)
        said = self._stderr.read().decode("utf-8", "replace").strip()
        self._stderr.seek(0)
        self._stderr.truncate()
        return said

    def _unreachable(self, said: str) -> CliError:
        right = ""
        if "orbidden" in said:
            right = (
                "; this needs the rights to get services and pods, to list pods, and to create "
                "pods/portforward; or give --nats URL"
            )
        return CliError(
            f"{self._target} in namespace {self._namespace} cannot be reached: "
            f"{said or 'kubectl port-forward printed no reason'}{right}"
        )

    def _keep(self) -> None:
        """Read the output of kubectl, and start it again when it ends, until `close`."""
        while True:
            assert self._process.stdout is not None
            with suppress(ValueError):
                for _ in self._process.stdout:
                    # kubectl prints a line for each connection.
                    pass
            if self._closing.wait(AGAIN_AFTER_S):
                return
            _end(self._process)
            self._process = self._start(self.local_port)
            if self._closing.is_set():
                _end(self._process)
                return


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
