"""The callout: decides on the clients of a nats-server by their tokens, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from logpipeline.authority import (
    ASKS_WHO,
    ASKS_WHO_INBOX,
    CALLOUT,
    NODES_ACCOUNT,
    READER,
    READERS_ACCOUNT,
    SHIPPER,
    Permissions,
    permissions,
    user_of_host,
    user_of_reader,
)
from logpipeline.nats.connection import Connection, NatsOptions, NotSent
from logpipeline.nats.session import RawMessage
from logpipeline.observe.http import serve
from logpipeline.observe.metrics import Metrics
from logpipeline.spec import LogPipeline
from logpipeline.subjects import BadHost, ControlSubjects, check_host
from logpipeline_operator.callout.claims import BadRequest, Issuer, Request
from logpipeline_operator.callout.refusals import Cause, Refusals
from logpipeline_operator.callout.store import StoreWatch
from logpipeline_operator.callout.tokens import AccountToken, BadToken, Keys
from logpipeline_operator.children import credentials, names

# A client is admitted until its token expires, and not longer than this.
USER_S_MAX = 3600

log = logging.getLogger(__name__)

# Each server of a cluster has a callout, and any of them may answer.
_QUEUE = "callout"
# A flood of bad tokens must not fill a disk with log lines.
WARN_EVERY_S = 10.0
EXIT_CANNOT_START = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the server; for a refused client also the text for the log, and its *cause*."""

    payload: bytes
    refused: str = ""
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Decides for the server of *pipeline*, by the *keys* of its cluster."""

    pipeline: LogPipeline
    issuer: Issuer
    keys: Callable[[], Keys]

    def answer(self, request: Request, now_s: int) -> Answer:
        """Return what is answered to *request*."""
        try:
            token = self.keys().read(request.token, credentials.audience(self.pipeline))
            who = _who(self.pipeline, token, request.token)
        except (BadToken, BadHost) as error:
            why = f"it needs the token of a shipper's pod, or of a reader: {error}"
            return Answer(self.issuer.refuse(request, why, now_s), why, _cause(error, request))
        return Answer(
            self.issuer.admit(
                request,
                user=who.user,
                account=who.account,
                permissions=who.permissions,
                expires_s=min(token.expires_s, now_s + USER_S_MAX),
                now_s=now_s,
            )
        )


def _cause(error: BadToken | BadHost, request: Request) -> Cause:
    if isinstance(error, BadHost):
        return Cause.NO_NODE
    is_user = error.cause is Cause.NO_TOKEN and request.has_user
    return Cause.UNKNOWN_USER if is_user else error.cause


class _Who(NamedTuple):
    """A *user* of one of the server's accounts."""

    user: str
    account: str
    permissions: Permissions


def _who(pipeline: LogPipeline, token: AccountToken, text: str) -> _Who:
    """Return the user for *token*, whose *text* was verified."""
    shipper = pipeline.spec.shippers.service_account_name or names.shipper(pipeline)
    if token.namespace == pipeline.namespace and token.account == shipper:
        # A person may have a token made for any node, without a pod that runs there.
        if not (token.node and token.pod):
            why = "it does not name a pod and its node, as tokens of Kubernetes 1.32 and newer do"
            raise BadToken(why, Cause.NO_NODE)
        host = check_host(token.node)
        user = user_of_host(host)
        allowed = permissions(pipeline, SHIPPER, user=user, hosts=[host])
        return _Who(user, NODES_ACCOUNT, allowed)
    if token.namespace == pipeline.namespace and token.account == names.reader(pipeline):
        user = user_of_reader(text)
        return _Who(user, READERS_ACCOUNT, permissions(pipeline, READER, user=user))
    raise BadToken(f"it is that of {token.namespace}/{token.account}", Cause.OTHER_ACCOUNT)


class KeysFile:
    """The keys in a file that is replaced when the cluster's keys change."""

    def __init__(self, path: Path) -> None:
        """Read *path*.

        Raises:
            ValueError: it has no keys.
            OSError: it cannot be read.
        """
        self._path = path
        self._stamp = self._seen()
        self._keys = Keys.parse(path.read_text())

    def current(self) -> Keys:
        """Return the keys in the file; the last good ones if it has none now."""
        try:
            stamp = self._seen()
            if stamp != self._stamp:
                self._keys = Keys.parse(self._path.read_text())
                self._stamp = stamp
                log.info("keys of the cluster were read again", extra={"file": str(self._path)})
        except (OSError, ValueError) as error:
            log.warning("keys of the cluster cannot be read", extra={"reason": str(error)})
        return self._keys

    def _seen(self) -> tuple[int, int, int]:
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size


class CalloutMetrics:
    """The metrics of a callout."""

    def __init__(self) -> None:
        self.metrics = Metrics("callout")
        count = self.metrics.counter
        self.admitted = count("admitted", "Clients that were admitted").labels()
        self.refused = count("refused", "Clients that were refused", ("reason",))
        self.malformed = count("malformed", "Messages that are not requests of a server").labels()
        for cause in Cause:
            # An alert sees growth only of a counter that exists before its first increase.
            self.refused.labels(cause.value)


class Callout:
    """Answers what comes on *connection*, and counts it in its *metrics*."""

    def __init__(
        self, connection: Connection, answers: Answers, clock: Callable[[], float] = time.time
    ) -> None:
        self._numbers = CalloutMetrics()
        self.metrics = self._numbers.metrics
        self._refusals = Refusals(secrets.token_hex(8))
        self._connection = connection
        self._answers = answers
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._warned_s = float("-inf")

    async def start(self) -> None:
        """Answer from now on."""
        await self._connection.listen(ASKS_WHO, self._asked, _QUEUE)
        control = ControlSubjects(self._answers.pipeline.names.control_subject)
        await self._connection.listen(control.status(CALLOUT), self._asked_for_refusals)

    def _asked(self, message: RawMessage) -> None:
        reply = message.reply.decode("ascii", "replace")
        try:
            request = Request.decode(message.data)
        except BadRequest as error:
            self._numbers.malformed.inc()
            log.debug("a message is not a request of a server", extra={"reason": str(error)})
            return
        if not reply.startswith(ASKS_WHO_INBOX):
            self._numbers.malformed.inc()
            return
        answer = self._answers.answer(request, int(self._clock()))
        self._note(request, answer)
        self._spawn(self._connection.publish(reply, answer.payload))

    def _asked_for_refusals(self, question: RawMessage) -> None:
        if question.reply:
            self._spawn(self._connection.answer(question, self._refusals.encode()))

    def _spawn(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._send(sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        try:
            await sending
        except NotSent as error:
            # The client is refused after the server's deadline, and connects again.
            log.info("an answer was not sent", extra={"reason": str(error)})

    def _note(self, request: Request, answer: Answer) -> None:
        if answer.cause is None:
            self._numbers.admitted.inc()
            return
        self._numbers.refused.labels(answer.cause.value).inc()
        self._refusals.note(answer.cause, request.address)
        now_s = time.monotonic()
        if now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            log.warning(
                "a client was refused",
                extra={
                    "address": request.address,
                    "reason": answer.refused,
                    "at_most_every_s": WARN_EVERY_S,
                },
            )


async def run(
    nats: NatsOptions,
    answers: Answers,
    http: tuple[str, int],
    watch: StoreWatch | None,
    stop: asyncio.Event,
) -> int:
    """Answer until *stop* is set, with metrics and probes at *http*, and *watch* over the server's
    files; return the exit code.
    """
    connection = Connection(nats)
    callout = Callout(connection, answers)
    try:
        pages = await serve(*http, callout.metrics, lambda: None, lambda: _why_not(connection))
    except OSError as error:
        log.error("metrics cannot be served; give another --http", extra={"reason": str(error)})
        return EXIT_CANNOT_START
    async with pages:
        await callout.start()
        await connection.start()
        log.info("the callout runs", extra={"port": pages.port})
        watching = asyncio.create_task(watch.run()) if watch is not None else None
        await stop.wait()
        if watching is not None:
            watching.cancel()
        await connection.close()
    return 0


def _why_not(connection: Connection) -> str | None:
    return None if connection.is_connected else f"not connected: {connection.problem or 'not yet'}"
