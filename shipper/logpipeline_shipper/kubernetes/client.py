"""A client of the API server: lists and watches the metadata of objects. No other module of the
shipper connects to it.

The Python clients for Kubernetes need ten times the memory, or threads, and cannot ask for metadata
alone.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from logpipeline import json_text

CONNECT_S = 10.0
ANSWER_S = 30.0
# The API server sends a bookmark each minute: a watch that is silent for longer is dead.
SILENCE_S = 150.0
HEADER_LINES_MAX = 100
# etcd takes 1.5 MiB; as JSON with managed fields an object is far smaller than this.
OBJECT_BYTES_MAX = 4 * 1024 * 1024
# Ten thousand namespaces, their metadata alone.
LIST_BYTES_MAX = 64 * 1024 * 1024
MESSAGE_CHARS_MAX = 300

# Metadata alone: a pod's spec and status are larger, and not needed here.
_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_ONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The address of the API server. The files are read for each request: tokens live an hour."""

    url: str
    ca_file: Path | None = None
    token_file: Path | None = None


class Unreachable(Exception):
    """The API server cannot be reached, or its answer is not one of an API server."""


class Refused(Exception):
    """The API server refuses a request; *status* is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(f"{status}: {message}")


class Gone(Exception):
    """The version to continue from is too old: list again."""


async def list_all(access: Access, path: str, query: dict[str, str]) -> tuple[list[Any], str]:
    """Return the objects at *path*, their metadata alone, and the version to watch from.

    Raises:
        Unreachable, Refused, Gone: the request failed.
    """
    async with _deadline(ANSWER_S), _request(access, path, query, _LIST) as body:
        raw = bytearray()
        async for data in body:
            raw += data
            if len(raw) > LIST_BYTES_MAX:
                raise Unreachable(f"a list of more than {LIST_BYTES_MAX} bytes")
        answer = _object(raw)
    try:
        return list(answer["items"]), str(answer["metadata"]["resourceVersion"])
    except (KeyError, TypeError) as error:
        raise Unreachable(f"the answer is no list: {error!r} is missing") from error


async def watch(
    access: Access, path: str, query: dict[str, str]
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the events of the objects at *path*, until the server ends the watch.

    Raises:
        Unreachable, Refused, Gone: the request failed.
    """
    async with _request(access, path, {**query, "watch": "1"}, _ONE) as body:
        async for line in _lines(body):
            event = _object(line)
            if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
                raise Unreachable("an event without an object")
            if event.get("type") == "ERROR":
                raise _refusal(int(event["object"].get("code") or 0), event["object"])
            yield event


@asynccontextmanager
async def _request(
    access: Access, path: str, query: dict[str, str], accept: str
) -> AsyncIterator[AsyncIterator[bytes]]:
    writer = None
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await _connect(access)
            target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
            writer.write(_head(access, target, accept))
            await writer.drain()
            status, headers = await _answer_head(reader)
        body = _body(reader, headers)
        if status != HTTPStatus.OK:
            async with asyncio.timeout(CONNECT_S):
                raise _refusal(status, await _message(body))
        yield body
    except (OSError, ValueError, EOFError, TimeoutError) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
    finally:
        if writer is not None:
            writer.close()


async def _connect(access: Access) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    url = urlsplit(access.url)
    is_tls = url.scheme == "https"
    context = ssl.create_default_context(cafile=access.ca_file) if is_tls else None
    port = url.port or (443 if is_tls else 80)
    return await asyncio.open_connection(url.hostname, port, ssl=context)


def _head(access: Access, target: str, accept: str) -> bytes:
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {urlsplit(access.url).netloc}",
        f"Accept: {accept}",
        "User-Agent: logpipeline-shipper",
        "Connection: close",
    ]
    if access.token_file is not None:
        lines.append(f"Authorization: Bearer {access.token_file.read_text().strip()}")
    return "\r\n".join((*lines, "", "")).encode("ascii")


async def _answer_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    version, status, *_ = (await reader.readline()).decode("latin-1").split(" ", 2)
    if not version.startswith("HTTP/1."):
        raise ValueError("not the answer of an API server")
    headers: dict[str, str] = {}
    for _ in range(HEADER_LINES_MAX):
        line = (await reader.readline()).decode("latin-1").rstrip("\r\n")
        if not line:
            return int(status), headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError("an answer with too many headers")


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        length = int(headers.get("content-length", str(LIST_BYTES_MAX + 1)))
        while length and (data := await _in_time(reader.read(min(length, 65536)))):
            length -= len(data)
            yield data
        return
    while size := int((await _in_time(reader.readline())).split(b";")[0], 16):
        while size:
            data = await _in_time(reader.read(min(size, 65536)))
            if not data:
                raise EOFError("the answer ended early")
            size -= len(data)
            yield data
        await _in_time(reader.readline())


async def _in_time(reading: Any) -> bytes:
    async with asyncio.timeout(SILENCE_S):
        data: bytes = await reading
        return data


async def _lines(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for data in body:
        searched = len(rest)
        rest += data
        while (end := rest.find(b"\n", searched)) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]
            searched = 0
        if len(rest) > OBJECT_BYTES_MAX:
            raise Unreachable(f"an object of more than {OBJECT_BYTES_MAX} bytes")


async def _message(body: AsyncIterator[bytes]) -> Any:
    raw = bytearray()
    async for data in body:
        raw += data
        if len(raw) > OBJECT_BYTES_MAX:
            break
    try:
        return json_text.parse(raw)
    except ValueError:
        return {"message": raw[:MESSAGE_CHARS_MAX].decode("utf-8", "replace")}


def _refusal(status: int, answer: Any) -> Refused | Gone:
    message = str(answer.get("message") if isinstance(answer, dict) else answer)
    if status == HTTPStatus.GONE:
        return Gone(message[:MESSAGE_CHARS_MAX])
    return Refused(status, message[:MESSAGE_CHARS_MAX])


def _object(raw: bytes | bytearray) -> Any:
    try:
        return json_text.parse(raw)
    except ValueError as error:
        raise Unreachable(f"no JSON: {error}") from error


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Unreachable(f"no answer within {seconds:.0f} s") from error
