"""The way between processes and the server: messages take their time, and connections break.

`Session` stands where `logpipeline.nats.session.Session` stands. `Connection` is the product's own.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Any

import logpipeline.nats.connection
from logpipeline.nats.session import RawMessage, Sink
from simulated.loop import PROCESS, VirtualLoop
from simulated.server import Server
from simulated.streams import compiled

# How long a message is under way, in a data centre.
LATENCY_S = (0.0002, 0.003)
MAX_PAYLOAD = 1024 * 1024


class Network:
    """See the module. With *drop*, each message breaks its connection by that chance."""

    def __init__(self, loop: VirtualLoop, server: Server, random: Random) -> None:
        self.loop = loop
        self.server = server
        self.drop = 0.0
        # Processes that cannot reach the server now.
        self.parted: set[str] = set()
        # Processes whom nothing reaches now, though all that they send arrives.
        self.deaf: set[str] = set()
        # Processes that may not publish now what a stream stores: lines, records, snapshots.
        self.denied: set[str] = set()
        # Processes that may not create consumers now.
        self.unable: set[str] = set()
        # Processes that may not read single messages.
        self.blind: set[str] = set()
        # How much longer each message is under way.
        self.slow_s = 0.0
        self._random = random

    def latency_s(self) -> float:
        """Return how long the next message takes."""
        return self._random.uniform(*LATENCY_S) + self.slow_s * self._random.random()

    def drops(self) -> bool:
        """Return whether the next message breaks its connection."""
        return bool(self.drop) and self._random.random() < self.drop

    def forget(self, pid: str) -> None:
        """Cut what the process *pid* has open: it was killed, and its kernel says so."""
        for peer in list(self.server.peers):
            if isinstance(peer, Session) and peer.process == pid:
                peer.cut(ConnectionError("killed"))

    def install(self) -> None:
        """Have all connections of this process go over this network."""
        logpipeline.nats.connection.Session = self.session  # type: ignore[attr-defined,assignment]

    def session(
        self, on_lost: Callable[[Exception], None], on_problem: Callable[[str], None]
    ) -> Session:
        """Return a connection that is to be made."""
        return Session(self, on_lost, on_problem)


class Session:
    """One connection of one process."""

    max_payload = MAX_PAYLOAD
    connected_url = None

    def __init__(
        self,
        network: Network,
        on_lost: Callable[[Exception], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._network = network
        self._on_lost = on_lost
        self._on_problem = on_problem
        self._server_info = {"version": network.server.version}
        self._subscriptions: dict[int, tuple[str, Sink]] = {}
        self._exact: dict[str, list[int]] = {}
        self._patterns: dict[int, Callable[[str], bool]] = {}
        self._number = 0
        self._is_lost = False
        # What is sent arrives in order, in both directions.
        self._out_s = 0.0
        self._in_s = 0.0
        self._context = contextvars.copy_context()
        self.process = PROCESS.get()

    @property
    def _name(self) -> str:
        return self.process.partition("#")[0]

    # -- as the product calls it

    async def connect(self, **options: Any) -> None:
        """Connect.

        Raises:
            OSError: the server is down, or out of reach.
        """
        await asyncio.sleep(self._network.latency_s())
        if self._network.server.is_down or self._is_parted():
            raise OSError("connection refused")
        self._network.server.peers.append(self)

    async def listen(self, subject: str, sink: Sink, queue: str = "") -> int:
        """Subscribe to *subject*."""
        self._number += 1
        self._subscriptions[self._number] = subject, sink
        if "*" in subject or ">" in subject:
            self._patterns[self._number] = compiled(subject)
        else:
            self._exact.setdefault(subject, []).append(self._number)
        return self._number

    async def unlisten(self, subscription: int) -> None:
        """Undo `listen`."""
        subject, _ = self._subscriptions.pop(subscription, ("", None))
        self._patterns.pop(subscription, None)
        if subscription in self._exact.get(subject, ()):
            self._exact[subject].remove(subscription)

    async def flush(self, timeout: float = 0) -> None:
        """Return when all that was sent has arrived."""

    async def send(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, reply: str
    ) -> None:
        """Publish.

        Raises:
            OSError: the connection is gone.
        """
        while self._network.loop.is_frozen(self.process):  # noqa: ASYNC110  # see below
            # It was stopped in the middle of what it does: what it does next comes when it thaws.
            await asyncio.sleep(0)
        if self._is_lost:
            raise OSError("closed")
        if self._network.drops() or self._is_parted():
            self.cut(ConnectionError("reset by peer"))
            raise OSError("reset by peer")
        loop, data = self._network.loop, bytes(payload)
        if self._is_denied(subject):
            # In its own letters, as the server writes it; a request gets no other answer.
            problem = f'Permissions Violation for Publish to "{subject}"'
            # Behind what the server wrote before, and ahead of what it writes later.
            self._in_s = max(self._in_s, loop.time() + self._network.latency_s())
            loop.call_at(self._in_s, self._refused, problem)
            return
        self._out_s = max(self._out_s, loop.time() + self._network.latency_s())

        def arrive() -> None:
            if self in self._network.server.peers:
                self._network.server.receive(subject, reply, headers, data)

        # A process that is frozen now has handed it to its kernel: it arrives.
        loop.call_at(self._out_s, arrive, context=contextvars.Context())

    def lose(self, error: Exception) -> None:
        """Give the connection up."""
        self._leave()
        if not self._is_lost:
            self._is_lost = True
            self._on_lost(error)

    # -- as the server calls it

    def wants(self, subject: str) -> list[int]:
        """Return its subscriptions to *subject*."""
        found = self._exact.get(subject, [])
        return [*found, *(number for number, fits in self._patterns.items() if fits(subject))]

    def cut(self, error: Exception) -> None:
        """End the connection: the process hears of it a moment later."""
        self._leave()
        if self._is_lost:
            return
        self._is_lost = True
        loop = self._network.loop
        loop.call_at(
            loop.time() + self._network.latency_s(), self._on_lost, error, context=self._context
        )

    def deliver(self, subscription: int, message: RawMessage) -> None:
        """Have *message* arrive at one of its subscriptions."""
        network = self._network
        if network.drops():
            self.cut(ConnectionError("reset by peer"))
            return
        if self._name in network.deaf:
            return
        self._in_s = max(self._in_s, network.loop.time() + network.latency_s())

        def arrive() -> None:
            found = self._subscriptions.get(subscription)
            if not self._is_lost and found is not None:
                found[1](message)

        network.loop.call_at(self._in_s, arrive, context=self._context)

    def _refused(self, problem: str) -> None:
        # A refusal that was under way when the connection broke is dropped.
        if not self._is_lost:
            self._on_problem(problem)

    def _is_parted(self) -> bool:
        return self._name in self._network.parted

    def _is_denied(self, subject: str) -> bool:
        network, name = self._network, self._name
        return (
            (name in network.denied and network.server.keeps(subject))
            or (name in network.blind and ".DIRECT.GET." in subject)
            or (name in network.unable and subject.startswith("$JS.API.CONSUMER.CREATE."))
        )

    def _leave(self) -> None:
        if self in self._network.server.peers:
            self._network.server.peers.remove(self)
