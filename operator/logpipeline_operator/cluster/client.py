"""Requests to Kubernetes' API, as plain JSON objects: manifests go in, objects come out.

Typed models would drop fields that they do not know, and parse fields that are not used.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config import ConfigException

from logpipeline import json_text
from logpipeline_operator.children.model import MANAGED_BY, Manifest
from logpipeline_operator.cluster.kinds import Kind, kind_of

FIELD_MANAGER = MANAGED_BY
REQUEST_TIMEOUT_S = 30.0
PAGE_OBJECTS = 500
# The keys of tokens have a media type of their own.
ACCEPTED = "application/json, application/jwk-set+json"


class ClusterError(Exception):
    """The API server refused a request: *status* is the HTTP status, *reason* Kubernetes' word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(f"{status} {reason}: {message}")


class NotFound(ClusterError):
    """The object, or its kind, does not exist."""


class ClusterAway(Exception):
    """The API server did not answer; it may or may not have done the request."""


# A request that was sent just before the fence closed may still be on its way. The Lease lasts some
# seconds longer than the fence, so that it arrives before another operator leads.
@dataclass(slots=True)
class Fence:
    """Lets writes pass up to *until*, by the monotonic *clock*: for ever without a Lease."""

    clock: Callable[[], float]
    until: float = math.inf

    def check(self) -> None:
        """Return if this operator still leads.

        Raises:
            ClusterAway: the Lease was not renewed in time, and may be another operator's.
        """
        if self.clock() >= self.until:
            raise ClusterAway("the Lease was not renewed in time, so nothing is written any more")


async def configuration(kubeconfig: str = "", context: str = "") -> Configuration:
    """Return the access to the cluster: the pod's service account, or a kubeconfig file.

    Raises:
        ClusterAway: neither exists.
    """
    settings = Configuration()
    try:
        if kubeconfig:
            await kube_config.load_kube_config(
                kubeconfig, context or None, client_configuration=settings
            )
        else:
            kube_config.load_incluster_config(client_configuration=settings)
    except (ConfigException, OSError) as error:
        raise ClusterAway(
            f"no cluster is known: {error}; run it in a pod, or give --kubeconfig FILE"
        ) from error
    return settings


class Cluster:
    """The API server; writes pass the *fence*, if there is one."""

    def __init__(self, api: ApiClient, fence: Fence | None = None) -> None:
        self._api = api
        # A header of a request would be overridden by the library's own, and an audit log would
        # name the library's code generator.
        api.user_agent = FIELD_MANAGER
        self._fence = fence

    async def close(self) -> None:
        """End the connections."""
        await self._api.close()

    async def version(self) -> str:
        """Return the server's version, such as ``v1.34.4``."""
        return str((await self._request("GET", "/version")).get("gitVersion", ""))

    async def token_keys(self) -> str:
        """Return the keys that verify the tokens of pods, as a JSON Web Key Set; equal sets are
        equal texts.
        """
        return json.dumps(await self._request("GET", "/openid/v1/jwks"), sort_keys=True)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Manifest | None:
        """Return the object, or None where it does not exist."""
        try:
            return await self._request("GET", kind.path(namespace, name))
        except NotFound:
            return None

    async def list(
        self, kind: Kind, namespace: str | None, selector: str = "", *, fields: str = ""
    ) -> tuple[list[Manifest], str]:
        """Return the objects that the label *selector* and the *fields* choose, and the resource
        version of the list.
        """
        found: list[Manifest] = []
        query = {"limit": str(PAGE_OBJECTS), "labelSelector": selector, "fieldSelector": fields}
        query = {name: value for name, value in query.items() if value}
        while True:
            page = await self._request("GET", kind.path(namespace), query)
            items = page.get("items") or []
            # A list leaves out apiVersion and kind of its items.
            found += [
                {"apiVersion": kind.group_version, "kind": kind.name} | item for item in items
            ]
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    async def apply(self, manifest: Manifest, *, subresource: str = "") -> Manifest:
        """Make the object have the fields of *manifest*, even if other managers own them, and
        return it.
        """
        kind, metadata = kind_of(manifest), manifest["metadata"]
        return await self._request(
            "PATCH",
            kind.path(metadata.get("namespace"), metadata["name"], subresource),
            {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"},
            body=manifest,
            content_type="application/apply-patch+yaml",
        )

    async def create(self, manifest: Manifest) -> Manifest:
        """Create the object; one that exists is a `ClusterError` with status 409."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        query = {"fieldManager": FIELD_MANAGER}
        return await self._request("POST", kind.path(metadata.get("namespace")), query, manifest)

    async def merge(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        change: Manifest,
        *,
        subresource: str = "",
    ) -> Manifest:
        """Change the fields in *change*; a resource version in it must be the current one."""
        return await self._request(
            "PATCH",
            kind.path(namespace, name, subresource),
            {"fieldManager": FIELD_MANAGER},
            body=change,
            content_type="application/merge-patch+json",
        )

    async def patch(self, kind: Kind, there: Manifest, steps: Sequence[Manifest]) -> Manifest:
        """Change the object *there* by the *steps* of a JSON patch, all of them or none."""
        metadata = there["metadata"]
        return await self._request(
            "PATCH",
            kind.path(metadata.get("namespace"), metadata["name"]),
            {"fieldManager": FIELD_MANAGER},
            body=list(steps),
            content_type="application/json-patch+json",
        )

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, *, uid: str, orphan: bool = False
    ) -> None:
        """Delete the object *uid*; another object of this name is left alone."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Orphan" if orphan else "Background",
        }
        try:
            await self._request("DELETE", kind.path(namespace, name), body=body)
        except NotFound:
            return
        except ClusterError as error:
            # The precondition failed: the name now belongs to another object.
            if error.status != HTTPStatus.CONFLICT:
                raise

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | Sequence[Manifest] | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                data = await self._send(method, path, query, body, content_type)
        except ApiException as error:
            raise _error(int(error.status or 500), error.body) from error
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            why = str(error) or type(error).__name__
            raise ClusterAway(f"no answer from Kubernetes: {why}") from error
        try:
            answer = json_text.parse(data)
        except ValueError as error:
            raise ClusterAway(f"no answer from Kubernetes: {error}") from error
        if not isinstance(answer, dict):
            raise ClusterAway("no answer from Kubernetes: it is no object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Manifest | Sequence[Manifest] | None,
        content_type: str,
    ) -> bytes:
        request = await self._api.param_serialize(
            method=method,
            resource_path=path,
            query_params=list((query or {}).items()),
            header_params={"Accept": ACCEPTED, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        if self._fence is not None and method != "GET":
            self._fence.check()
        response = await self._api.call_api(*request, _request_timeout=REQUEST_TIMEOUT_S)
        answer: bytes = await response.read()
        if response.status >= 400:
            raise _error(response.status, answer)
        return answer


def _error(status: int, body: bytes | str | None) -> ClusterError:
    try:
        answer = json_text.parse(body or "")
        reason, message = str(answer.get("reason", "")), str(answer.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", str(body or "")[:500]
    return (NotFound if status == HTTPStatus.NOT_FOUND else ClusterError)(status, reason, message)
