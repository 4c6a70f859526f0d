"""Who may read the page: those who have its token, by its own name, and only to read.

The page shows lines of logs. Every user and program of a machine reaches its loopback address, and
any site that a person visits can make their browser send requests there.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_BYTES = 24
# A header of its own: a proxy before the page may ask for a login in `Authorization`. No cookie: a
# browser sends those to every port of a host, and so to other users' programs on this machine.
TOKEN_HEADER = "x-logpipeline-token"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Nothing but our own files; no site may frame the page, and no script writes markup of its own.
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def new_token() -> str:
    """Return a token that no other program can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def host_of(header: str) -> str:
    """Return the name in a Host header, without its port: ``[::1]:80`` is ``::1``."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


class Guard:
    """Lets only those requests through to *app* that may read it, and puts `HEADERS` on each
    answer. *hosts* are the names by which the page may be called.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return  # without an answer the server closes a connection of another kind

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not be carried out; None where it may."""
        headers = Headers(scope=scope)
        # A foreign name that was made to lead here (DNS rebinding) is the browser's Host.
        if host_of(headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("this name is not the console's", 421)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("the console is only read", 405)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # But for a person who follows a link to the page.
            is_link = scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
            if not is_link:
                return PlainTextResponse("another site may not read the console", 403)
        # The page without what it asks for is the same in every installation, and its scripts have
        # to run before they can send a token.
        is_page = scope["path"] == "/" or scope["path"].startswith("/static/")
        if is_page or self._is_right(headers.get(TOKEN_HEADER, "")):
            return None
        return PlainTextResponse(
            "Open the address that `logpipeline console` printed: it holds the token.", 401
        )

    def _is_right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode())
