"""Requests over HTTP, for systems whose protocol is plain HTTP: one connection, which is kept; TLS
with verification; what an answer means for a batch.

It is the standard library's client in a thread: a sink sends one request at a time, and waits for
its answer, so that a pool or a library for asyncio would add nothing but its weight.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import email.utils
import http.client
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from urllib.parse import urlsplit

from logpipeline.quantity import QuantityError, parse_duration
from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.destination import Misdirected, Refused, TryAgain

NS = 1_000_000_000
# More of an answer is not read.
ANSWER_BYTES_MAX = 4 * 2**20
# So much of an answer is shown.
SAID_CHARS_MAX = 300
# A server that asks for a longer pause is asked again after this one.
RETRY_AFTER_S_MAX = 300.0
# "Not now": a time-out, a request with the same key in progress, too early, too many requests.
AGAIN = frozenset({408, 409, 425, 429})
# Wrong login, rights or address: no message causes them.
MISDIRECTED = frozenset({401, 402, 403, 404, 405, 407, 410, 421})
TOKEN_VARIABLE = "LOGPIPELINE_SINK_TOKEN"
LOGIN_VARIABLE = "LOGPIPELINE_SINK_LOGIN"
# A login is one line; a larger file is another kind of file.
SECRET_BYTES_MAX = 64 * 1024
_HEADER = re.compile(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*([\x20-\x7e\t]*)")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; names of *headers* are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def said(self) -> str:
        """The beginning of its text, as one line."""
        text = " ".join(self.data[: 4 * SAID_CHARS_MAX].decode("utf-8", "replace").split())
        return text[:SAID_CHARS_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Where requests go, and with what. *headers* include the login; *ca* verifies the server in
    place of the system's authorities; a request takes *timeout_s* at most.
    """

    url: str
    timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    ca: str | None = None


class HttpClient:
    """Sends requests to the server of *options*' URL, one at a time."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        parts = urlsplit(options.url)
        self.where = f"{parts.scheme}://{parts.netloc}"
        self.path = parts.path or "/"
        # What further paths are added to; empty where the address is that of the server alone.
        self.base = parts.path.rstrip("/")
        self.query = parts.query
        host, port = str(parts.hostname), parts.port
        self._connection: http.client.HTTPConnection
        # Of the request under way: a connection forgets its socket while an answer is still read.
        self._socket: socket.socket | None = None
        self._is_over = False
        if parts.scheme == "https":
            context = _context(options.ca)
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=options.timeout_s, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=options.timeout_s)

    async def post(
        self, data: bytes, headers: Mapping[str, str], *, path: str = "", query: str = ""
    ) -> Answer:
        """Send *data*, and return the answer. *path* stands in place of the URL's, *query* is added
        to its own.

        Raises:
            TryAgain: there was no answer.
            Misdirected: the server's certificate is not valid.
        """
        queries = "&".join(filter(None, (self.query, query)))
        target = (path or self.path) + (f"?{queries}" if queries else "")
        self._is_over = False
        sending = asyncio.create_task(asyncio.to_thread(self._send, target, data, dict(headers)))
        # After a cancellation no one awaits it, and asyncio would log its error as not retrieved.
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            # The socket's own limit is for each step; a server could answer byte by byte.
            async with asyncio.timeout(self._options.timeout_s):
                return await asyncio.shield(sending)
        except ssl.SSLCertVerificationError as error:
            raise Misdirected(
                f"{self.where} has no valid certificate ({error.verify_message}): give the file of "
                "its authority with --ca"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            # TimeoutError is an OSError.
            self._shut()
            await asyncio.wait([sending])
            # An answer that is there now may have been cut by us.
            reason = str(error) or type(error).__name__
            raise TryAgain(f"{self.where} did not answer: {reason}") from error
        finally:
            # The end of the process waits for the thread.
            if not sending.done():
                self._shut()

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _shut(self) -> None:
        """End what the thread waits for; it tries nothing more."""
        self._is_over = True
        for each in (self._connection.sock, self._socket):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _send(self, target: str, data: bytes, headers: dict[str, str]) -> Answer:
        is_kept = self._connection.sock is not None
        try:
            try:
                return self._once(target, data, headers)
            except (ConnectionError, http.client.CannotSendRequest):
                # A server closes connections that are not used for a while. A request may be sent
                # twice: the destination has given it a name.
                self._connection.close()
                if not is_kept or self._is_over:
                    raise
                return self._once(target, data, headers)
        except BaseException:
            self._connection.close()
            raise

    def _once(self, target: str, data: bytes, headers: dict[str, str]) -> Answer:
        self._connection.request("POST", target, data, {**self._options.headers, **headers})
        self._socket = self._connection.sock
        response = self._connection.getresponse()
        read = response.read(ANSWER_BYTES_MAX)
        if not response.isclosed():
            self._connection.close()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, read)

    def check(self, answer: Answer) -> None:
        """Return if *answer* says that all was taken.

        Raises:
            TryAgain, Refused, Misdirected: it says something else.
        """
        status = answer.status
        if 200 <= status < 300:
            return
        reason = (
            f"{self.where} answered {status}: {answer.said or http.client.responses.get(status)}"
        )
        if status in AGAIN or status >= 500:
            raise TryAgain(reason, retry_after_s(answer))
        if status in MISDIRECTED or status < 400:
            raise Misdirected(f"{reason}; check the address, the login and its rights")
        raise Refused(reason)


def retry_after_s(answer: Answer) -> float:
    """Return how long the server wants us to wait, 0 where it does not say."""
    text = answer.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text), RETRY_AFTER_S_MAX)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(moment.timestamp() - time.time(), 0.0), RETRY_AFTER_S_MAX)


def http_options(args: argparse.Namespace) -> HttpOptions:
    """Return the options of a command's arguments, with the login from a file or the environment.

    Raises:
        UsageError: one of them is wrong.
    """
    parts = urlsplit(args.url)
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_address = is_address and parts.port != 0 and args.url.isascii() and " " not in args.url
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError("--url: give an address such as https://logs.example.net/ingest")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "--url: a login does not stand in an address, where others see it: give it by "
            f"--login-file, --token-file, ${LOGIN_VARIABLE} or ${TOKEN_VARIABLE}"
        )
    headers = dict(_header("--header", text) for text in args.header or ())
    if any(name.lower() == "authorization" for name in headers):
        raise UsageError(
            "--header: a login does not stand on the command line, where others see it: give it by "
            "--login-file, --token-file or --header-file"
        )
    for path in args.header_file or ():
        lines = read_secret("--header-file", path).splitlines()
        headers |= dict(_header(f"--header-file {path}", line) for line in lines if line.strip())
    timeout_s = timeout_s_of(args)
    headers |= _authorization(args)
    return HttpOptions(url=args.url, timeout_s=timeout_s, headers=headers, ca=args.ca)


def timeout_s_of(args: argparse.Namespace) -> float:
    """Return the seconds of `--timeout`.

    Raises:
        UsageError: it is none.
    """
    try:
        timeout_s = parse_duration(args.timeout) / NS
    except QuantityError as error:
        raise UsageError(f"--timeout: {error}") from error
    if timeout_s <= 0:
        raise UsageError("--timeout: give a span such as 30s")
    return timeout_s


def _authorization(args: argparse.Namespace) -> dict[str, str]:
    if args.token_file and args.login_file:
        raise UsageError("--token-file and --login-file: give one of them")
    token, login = os.environ.get(TOKEN_VARIABLE, ""), os.environ.get(LOGIN_VARIABLE, "")
    if args.token_file:
        token = read_secret("--token-file", args.token_file)
    elif args.login_file:
        token, login = "", read_secret("--login-file", args.login_file)
    if token:
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise UsageError(f"the token (--token-file, ${TOKEN_VARIABLE}) is not one word")
        return {"Authorization": f"Bearer {token}"}
    if login:
        if ":" not in login:
            raise UsageError(f"the login (--login-file, ${LOGIN_VARIABLE}) is not user:password")
        return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    return {}


def _header(where: str, text: str) -> tuple[str, str]:
    # The text is not quoted: it may be a secret.
    if (found := _HEADER.fullmatch(text.strip())) is None:
        raise UsageError(f"{where}: give a header such as 'X-Tenant: shop'")
    return found[1], found[2]


def read_secret(option: str, path: str) -> str:
    """Return the text of the file *path*, which *option* names.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}: {path} cannot be read: {error}") from error


def _context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca: {ca} is not a file of certificates: {error}") from error
