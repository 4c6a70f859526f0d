"""Systems that a sink copies to, where the real one is too large for a test: each is a *stand-in*,
a small server that takes requests as the protocol's documentation says, and keeps lines as the real
one promises to. It shows that a destination speaks the protocol as documented, not that a certain
version of a product does.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

# What becomes of the next request: it is not taken and cut off, taken and cut off, told to come
# again, refused for what it holds, or for its login.
Fault = Literal["cut", "taken-and-cut", "busy", "refuse", "login"]
_STATUS = {"busy": 429, "refuse": 400, "login": 401}
RETRY_AFTER_S = 7


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it came; names of headers are in lower case."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]
    data: bytes


@dataclass
class StandIn:
    """A server of one kind. *faults* happen to the next requests, None to one that is answered."""

    faults: deque[Fault | None] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, request: Request) -> tuple[int, bytes]:
        """Keep what *request* holds, and return the answer."""
        raise NotImplementedError

    def texts(self) -> list[bytes]:
        """Return the lines that are kept, in the order in which they came."""
        raise NotImplementedError

    def answer(self, request: Request) -> tuple[int, bytes] | None:
        """Return the answer to *request*, None where its connection is cut."""
        with self.lock:
            self.requests.append(request)
            fault = self.faults.popleft() if self.faults else None
            if fault in _STATUS:
                return _STATUS[fault], b"as the test wants it"
            if fault == "cut":
                return None
            answer = self.take(request)
            return None if fault == "taken-and-cut" else answer

    @contextmanager
    def serving(self) -> Iterator[StandIn]:
        """Answer at a free port for as long as the block lasts."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _handler(server: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
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
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: the test looks at `requests`."""

    return Handler


def text_of(line: dict[str, Any]) -> bytes:
    """Return the bytes of a line that stands in JSON."""
    import base64

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
