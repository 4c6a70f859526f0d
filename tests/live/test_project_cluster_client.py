"""The client of the cluster tests repeats a request that the API server answers with 429."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pykube  # type: ignore[import-untyped]  # it has no types

from cluster import handle


class Answers(BaseHTTPRequestHandler):
    """Answers each request with the next status of *left*, and keeps to the last one."""

    left: list[HTTPStatus]
    asked: list[str]

    def do_GET(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Be quiet."""

    def _answer(self) -> None:
        self.asked.append(self.command)
        status = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        content = json.dumps({"items": []}).encode()
        self.send_response(status)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_an_api_server_that_says_later_is_asked_again_whatever_was_asked() -> None:
    """Requests that change something too: the server has not begun them."""
    with answering(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.OK) as (api, asked):
        assert api.get(url="namespaces").status_code == HTTPStatus.OK
    assert asked == ["GET", "GET"]
    with answering(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.OK) as (api, asked):
        assert api.patch(url="namespaces/a", data="{}").status_code == HTTPStatus.OK
    assert asked == ["PATCH", "PATCH"]


def test_another_failure_is_told_at_once() -> None:
    """It is what the test that asked has to see."""
    with answering(HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.OK) as (api, asked):
        answer = api.get(url="namespaces")
    assert (answer.status_code, asked) == (HTTPStatus.INTERNAL_SERVER_ERROR, ["GET"])


@contextmanager
def answering(*statuses: HTTPStatus) -> Iterator[tuple[pykube.HTTPClient, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Answers,), {"left": list(statuses), "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        yield handle.client(pykube.KubeConfig.from_url(url)), asked
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
