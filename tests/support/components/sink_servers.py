"""Systems that a sink copies to, where the real one is too large for a test: each is a *stand-in*,
a small server that takes requests as the protocol's documentation says, and keeps lines as the real
one promises to. It shows that a destination speaks the protocol as documented, not that a certain
version of a product does. Where the real one is there, `Forwarding` puts the same faults before it.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

# What becomes of the next request: it is not taken and cut off, taken and cut off, told to come
# again, refused for what it holds, or for its login; or it is never answered.
Fault = Literal["cut", "taken-and-cut", "busy", "refuse", "login", "hang"]
_STATUS = {"busy": 429, "refuse": 400, "login": 401}
RETRY_AFTER_S = 7
# Headers that are about one connection.
OF_CONNECTION = frozenset({"host", "connection", "content-length", "transfer-encoding"})
# Headers of answers that a destination reads.
PASSED_ON = frozenset({"content-type", "retry-after", "x-clickhouse-exception-code"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; names of headers are in lower case."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    data: bytes


@dataclass
class StandIn:
    """A server of one kind. *faults* happen to the next requests, None to one that is answered.
    What holds *refused* is refused each time.
    """

    faults: deque[Fault | None] = field(default_factory=deque)
    refused: bytes | None = None
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Keep what *request* holds, and return the answer."""
        raise NotImplementedError

    def texts(self) -> list[bytes]:
        """Return the lines that are kept, in the order in which they came."""
        raise NotImplementedError

    def headers(self) -> dict[str, str]:
        """Return headers of every answer."""
        return {}

    def answer(self, request: Request) -> tuple[int, bytes] | None:
        """Return the answer to *request*, None where its connection is cut."""
        with self.lock:
            self.requests.append(request)
            fault = self.faults.popleft() if self.faults else None
            if self.refused is not None and self.refused in request.data:
                fault = "refuse"
            if fault in _STATUS:
                return _STATUS[fault], b"as the test wants it"
            if fault == "hang":
                self.ended.wait()
            if fault in ("cut", "hang"):
                return None
            answer = self.take(request)
            return None if fault == "taken-and-cut" else answer

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[StandIn]:
        """Answer at *port*, or a free one, for as long as the block lasts, maybe by *tls*."""
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", 0))
            data = self.rfile.read(length)
            if len(data) < length:
                # Who sent it was killed meanwhile: no server takes a part of a body.
                self.close_connection = True
                return
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = server.answer(Request(parts.path, query, headers, data))
            if answer is None:
                self.close_connection = True
                return
            status, body = answer
            self.send_response(status)
            if status == _STATUS["busy"]:
                self.send_header("Retry-After", str(RETRY_AFTER_S))
            for name, value in server.headers().items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the test looks at `requests`."""

    return Handler


@dataclass
class Forwarding(StandIn):
    """Passes requests on to a real server at *real*, but for those that a fault befalls."""

    real: str = field(kw_only=True)
    said: dict[str, str] = field(default_factory=dict)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Return what the real server answers."""
        target = urlsplit(self.real)
        assert target.hostname is not None
        connection = http.client.HTTPConnection(target.hostname, target.port)
        with contextlib.closing(connection):
            path = "?".join(filter(None, (request.path, urlencode(request.query))))
            headers = {n: v for n, v in request.headers.items() if n not in OF_CONNECTION}
            connection.request("POST", path, request.data, headers)
            answer = connection.getresponse()
            self.said = {n: v for n, v in answer.getheaders() if n.lower() in PASSED_ON}
            return answer.status, answer.read()

    def headers(self) -> dict[str, str]:
        """Return what the real server said beside its last answer."""
        return self.said


def text_of(line: dict[str, Any]) -> bytes:
    """Return the bytes of a line that stands in JSON."""
    if "message_base64" in line:
        return base64.b64decode(line["message_base64"])
    return str(line["message"]).encode()


@dataclass
class Receiver(StandIn):
    """Takes NDJSON or JSON arrays, and keeps what comes under one `Idempotency-Key` once."""

    kept: dict[str, list[bytes]] = field(default_factory=dict)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Keep the lines under their key."""
        if request.headers["content-type"] == "application/json":
            lines = json.loads(request.data)
        else:
            lines = [json.loads(line) for line in request.data.splitlines()]
        self.kept.setdefault(request.headers["idempotency-key"], [text_of(line) for line in lines])
        return 200, b""

    def texts(self) -> list[bytes]:
        """Return all lines."""
        return [text for lines in self.kept.values() for text in lines]


@dataclass
class Loki(StandIn):
    """Takes pushes, and drops an entry with the labels, time, line and metadata of one that it has,
    as the real one was seen to do.
    """

    entries: list[tuple[dict[str, str], str, str, dict[str, str]]] = field(default_factory=list)
    known: set[tuple[str, ...]] = field(default_factory=set)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Keep the entries that are new."""
        assert request.path == "/loki/api/v1/push"
        for stream in json.loads(request.data)["streams"]:
            labels = stream["stream"]
            assert labels
            for time_ns, text, metadata in stream["values"]:
                named = (json.dumps(each, sort_keys=True) for each in (labels, metadata))
                key = (time_ns, text, *named)
                if key not in self.known:
                    self.known.add(key)
                    self.entries.append((labels, time_ns, text, metadata))
        return 204, b""

    def texts(self) -> list[bytes]:
        """Return all lines."""
        return [text_of({"message": text, **metadata}) for _, _, text, metadata in self.entries]


@dataclass
class OtlpReceiver(StandIn):
    """Takes exports of logs, and keeps each record as often as it comes."""

    records: list[dict[str, Any]] = field(default_factory=list)
    rejected: int = 0

    def take(self, request: Request) -> tuple[int, bytes]:
        """Keep all records, or say that some were rejected."""
        assert request.path == "/v1/logs"
        if self.rejected:
            partial = {"rejectedLogRecords": str(self.rejected), "errorMessage": "too old"}
            return 200, json.dumps({"partialSuccess": partial}).encode()
        for resource in json.loads(request.data)["resourceLogs"]:
            for scope in resource["scopeLogs"]:
                self.records += scope["logRecords"]
        return 200, b"{}"

    def texts(self) -> list[bytes]:
        """Return all lines."""
        bodies = [record["body"] for record in self.records]
        return [
            base64.b64decode(body["bytesValue"])
            if "bytesValue" in body
            else body["stringValue"].encode()
            for body in bodies
        ]


@dataclass
class Search(StandIn):
    """Takes bulk requests of OpenSearch and Elasticsearch, and creates each id once. *statuses* are
    those of the next documents, in place of being created.
    """

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    statuses: deque[int] = field(default_factory=deque)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Create the documents whose ids are new."""
        assert request.path == "/_bulk"
        lines = [json.loads(line) for line in request.data.splitlines()]
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            assert "@timestamp" in document
            name = action["create"]["_id"]
            status = self.statuses.popleft() if self.statuses else 201
            if status == 201 and name in self.documents:
                status = 409
            if status == 201:
                self.documents[name] = document
            error = {} if status == 201 else {"error": {"reason": f"status {status}"}}
            items.append({"create": {"status": status, **error}})
        is_bad = any(item["create"]["status"] != 201 for item in items)
        return 200, json.dumps({"errors": is_bad, "items": items}).encode()

    def texts(self) -> list[bytes]:
        """Return all lines."""
        return [text_of(document) for document in self.documents.values()]


@dataclass
class ClickHouse(StandIn):
    """Takes inserts, and each deduplication token once; says of its table that it is *engine*, and
    that an insert failed with *code*, an error of ClickHouse.
    """

    engine: str = "ReplicatedMergeTree ORDER BY time"
    code: int = 0
    said: str = "as the test wants it"
    kept: dict[str, list[bytes]] = field(default_factory=dict)

    def answer(self, request: Request) -> tuple[int, bytes] | None:
        """Answer a question at once: faults are for inserts."""
        if request.data.startswith(b"SELECT engine_full FROM system.tables"):
            return 200, f"{self.engine}\n".encode()
        return super().answer(request)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Keep the rows under their token."""
        assert request.query["query"] == "INSERT INTO shop.logs FORMAT JSONEachRow"
        assert request.query["input_format_skip_unknown_fields"] == "0"
        if self.code:
            return 500, f"Code: {self.code}. DB::Exception: {self.said}".encode()
        rows = [text_of(json.loads(line)) for line in request.data.splitlines()]
        self.kept.setdefault(request.query["insert_deduplication_token"], rows)
        return 200, b""

    def headers(self) -> dict[str, str]:
        """Return the header that holds the error."""
        return {"X-ClickHouse-Exception-Code": str(self.code)} if self.code else {}

    def texts(self) -> list[bytes]:
        """Return all lines."""
        return [text for rows in self.kept.values() for text in rows]
