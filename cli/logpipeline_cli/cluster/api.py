"""Access to the objects of a cluster, by pykube, which is imported only when it is needed."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast
from urllib.parse import quote

from logpipeline import json_text
from logpipeline_cli.errors import CliError

Manifest = dict[str, Any]
# Fields that a kubeconfig can embed as base64, or refer to as a file.
_EMBEDDED = ("certificate-authority", "client-certificate", "client-key")
TIMEOUT_S = 20.0
PAGE = 500


class NotFound(CliError):
    """The object, or its kind, does not exist."""


class Forbidden(CliError):
    """The user lacks the right to do that."""


class Api:
    """The API server, with the user of the kubeconfig."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get(self, path: str) -> Manifest:
        """Return the object at *path*.

        Raises:
            NotFound: it does not exist.
            Forbidden: the user may not see it.
            CliError: the API server cannot be reached, or refuses.
        """
        return self._request("GET", path)

    def list(self, path: str, **parameters: str) -> list[Manifest]:
        """Return the objects at *path* with the given labels and fields; errors as for `get`."""
        found: list[Manifest] = []
        given = {"limit": str(PAGE), **parameters}
        while True:
            page = self._request("GET", path, parameters=given)
            found += page.get("items") or []
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return found
            given["continue"] = more

    def create(self, path: str, manifest: Manifest) -> Manifest:
        """Create an object; errors as for `get`."""
        return self._request("POST", path, body=manifest)

    def delete(self, path: str) -> None:
        """Delete the object at *path*, if it still exists."""
        try:
            self._request("DELETE", path)
        except NotFound:
            return

    def _request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: Manifest | None = None,
    ) -> Manifest:
        import requests
        from pykube.exceptions import PyKubeError  # type: ignore[import-untyped]  # it has no types

        try:
            answer = self._client.session.request(
                method,
                self._client.url + path,
                params=parameters,
                json=body,
                timeout=TIMEOUT_S,
            )
        except (requests.RequestException, PyKubeError, OSError) as error:
            raise CliError(
                f"the API server {self._client.url} cannot be reached: {error}; does `kubectl "
                "version` reach it?"
            ) from error
        if answer.ok:
            return cast("Manifest", _answered(answer.content, self._client.url))
        said = _message(answer)
        if answer.status_code == 404:
            raise NotFound(said)
        if answer.status_code == 403:
            raise Forbidden(said)
        if answer.status_code == 401:
            raise CliError(f"the API server does not know you ({said}); log in to the cluster")
        raise CliError(f"the API server refused: {said}")


def path(group_version: str, kind: str, namespace: str, name: str = "") -> str:
    """Return the path of a namespace's objects of *kind* (in plural), or of one of them."""
    root = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
    below = f"/{quote(name, safe='')}" if name else ""
    return f"{root}/namespaces/{quote(namespace, safe='')}/{kind}{below}"


@contextmanager
def connected(config: Manifest) -> Iterator[Api]:
    """Connect to the cluster of the kubeconfig *config*.

    Raises:
        CliError: pykube is not installed, or cannot use *config*.
    """
    try:
        import pykube  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise CliError(
            "talking to a cluster needs another package: pip install logpipeline[kubernetes]"
        ) from None
    with TemporaryDirectory(prefix="logpipeline-") as folder:
        try:
            client = pykube.HTTPClient(pykube.KubeConfig(_with_files(config, Path(folder))))
        except (pykube.exceptions.PyKubeError, KeyError, TypeError, ValueError) as error:
            raise CliError(f"the kubeconfig cannot be used: {error}") from error
        client.session.headers.update(impersonation(config))
        yield Api(client)


def impersonation(config: Manifest) -> dict[str, str]:
    """Return the headers by which *config* impersonates another user. pykube leaves them out, so
    that the command would act with rights that the user gave up.

    Raises:
        CliError: *config* impersonates in a way that these headers cannot express.
    """
    users = config.get("users") or [{}]
    user = users[0].get("user") or {}
    groups = user.get("as-groups") or []
    if len(groups) > 1 or user.get("as-user-extra"):
        raise CliError(
            "the kubeconfig impersonates a user with several groups or extras, which this "
            "command cannot pass on; use a context without `as-groups` and `as-user-extra`"
        )
    given = {
        "Impersonate-User": user.get("as"),
        "Impersonate-Uid": user.get("as-uid"),
        "Impersonate-Group": groups[0] if groups else None,
    }
    return {name: str(value) for name, value in given.items() if value}


def _with_files(config: Manifest, folder: Path) -> Manifest:
    """Return *config* with its embedded keys and certificates in files that only the user can read:
    pykube would write them to files that everybody can read, and leave them there.
    """
    changed = dict(config)
    for number, (section, entry) in enumerate((("clusters", "cluster"), ("users", "user"))):
        items = []
        for index, item in enumerate(config.get(section) or []):
            fields = dict(item.get(entry) or {})
            for name in _EMBEDDED:
                if data := fields.pop(f"{name}-data", None):
                    target = folder / f"{number}-{index}-{name}"
                    _write(target, base64.b64decode(data))
                    fields[name] = str(target)
            items.append({**item, entry: fields})
        changed[section] = items
    return changed


def _write(target: Path, content: bytes) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _answered(content: bytes, url: str) -> Any:
    try:
        return json_text.parse(content)
    except ValueError as error:
        raise CliError(f"{url} did not answer with JSON, as an API server does: {error}") from error


def _message(answer: Any) -> str:
    try:
        said = json_text.parse(answer.content).get("message")
    except (ValueError, AttributeError):
        said = None
    return str(said or answer.reason or answer.status_code)
