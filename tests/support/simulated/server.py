"""A nats-server of one process, without sockets: subjects, JetStream's API, pulls.

Whatever it sends goes to sessions (`simulated.network`), which decide when it arrives, or whether.
"""

from __future__ import annotations

import base64
import contextvars
import json
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from logpipeline.nats.jetstream import rfc3339_of, time_ns_of
from logpipeline.nats.session import RawMessage
from simulated import clock
from simulated.streams import Consumer, Message, Pull, Refused, Stream, block, matches

API = "$JS.API."
NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


class Peer(Protocol):
    """A connection, as the server sees it."""

    def wants(self, subject: str) -> list[int]:
        """Return its subscriptions to *subject*."""

    def deliver(self, subscription: int, message: RawMessage) -> None:
        """Have *message* arrive at one of its subscriptions."""

    def cut(self, error: Exception) -> None:
        """End the connection."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of the API: its words behind the verb, and its body."""

    words: list[str]
    body: dict[str, Any]
    reply: str


class Server:
    """See the module. *note* hears of all that comes in, for the digest of a world."""

    def __init__(self, loop: AbstractEventLoop, note: Callable[[str], None]) -> None:
        self.streams: dict[str, Stream] = {}
        self.peers: list[Peer] = []
        # Which stream stores a subject, None for none: made anew where streams come or go.
        self._places: dict[str, str | None] = {}
        self.is_down = False
        # Hears of each message that is stored.
        self.on_stored: Callable[[str, bytes], None] = lambda subject, data: None
        self.version = "2.15.1"
        self._loop = loop
        self._note = note
        self._asked = {
            "INFO": self._account,
            "STREAM.INFO": self._stream_info,
            "STREAM.NAMES": self._stream_names,
            "STREAM.CREATE": self._stream_create,
            "STREAM.DELETE": self._stream_delete,
            "STREAM.PURGE": self._stream_purge,
            "STREAM.MSG.GET": self._message_get,
            "STREAM.MSG.DELETE": self._message_delete,
            "CONSUMER.CREATE": self._consumer_create,
            "CONSUMER.DELETE": self._consumer_delete,
            "CONSUMER.INFO": self._consumer_info,
            "CONSUMER.NAMES": self._consumer_names,
        }

    def now_ns(self) -> int:
        """Return the server's time."""
        return clock.now_ns(self._loop)

    def add(self, config: dict[str, Any]) -> Stream:
        """Make a stream."""
        self._places.clear()
        made = self.streams[config["name"]] = Stream(dict(config), self.now_ns)
        return made

    # -- what comes in

    def receive(
        self, subject: str, reply: str, headers: Mapping[str, str] | None, data: bytes
    ) -> None:
        """Take what a client published."""
        if self.is_down:
            return
        self._note(f"{subject} {len(data)}")
        if subject.startswith(API):
            self._ask(subject.removeprefix(API), reply, data)
            return
        stream = self._stream_of(subject)
        if stream is not None:
            self._store(stream, subject, reply, headers, data)
        heard = self.publish(subject, data, headers=block(headers), reply=reply)
        if stream is None and not heard and reply:
            self.publish(reply, b"", headers=NO_RESPONDERS)

    def publish(
        self, subject: str, data: bytes, *, headers: bytes = b"", reply: str = "", shown: str = ""
    ) -> int:
        """Send a message to all that listen to *subject*, which see it as *shown*; return how many
        there are.
        """
        message = RawMessage((shown or subject).encode(), reply.encode(), headers, data)
        listeners = [(peer, each) for peer in self.peers for each in peer.wants(subject)]
        for peer, subscription in listeners:
            peer.deliver(subscription, message)
        return len(listeners)

    def keeps(self, subject: str) -> bool:
        """Return whether a stream stores what is published to *subject*."""
        return self._stream_of(subject) is not None

    def change_leader(self, name: str) -> None:
        """Have another server lead the stream *name*: its consumers, which are in the memory of
        one, are gone, and their readers hear nothing of it.
        """
        self.streams[name].consumers.clear()

    def make_anew(self, name: str) -> None:
        """Delete the stream *name* and make it again, empty."""
        old = self.streams.pop(name)
        for consumer in old.consumers.values():
            for pull in consumer.pulls:
                self._end(pull, "409 Consumer Deleted")
        self.add(old.config)

    def disconnect_all(self, why: str) -> None:
        """Cut all connections."""
        for peer in list(self.peers):
            peer.cut(ConnectionError(why))

    def lose_tails(self, counts: Mapping[str, int]) -> None:
        """Go away, and come back without the last messages of the streams in *counts*."""
        self.disconnect_all("power cut")
        for name, count in counts.items():
            self.streams[name].lose_tail(count)

    def _stream_of(self, subject: str) -> Stream | None:
        if subject not in self._places:
            self._places[subject] = next(
                (
                    name
                    for name, stream in self.streams.items()
                    if any(matches(each, subject) for each in stream.config.get("subjects", ()))
                ),
                None,
            )
        name = self._places[subject]
        return None if name is None else self.streams[name]

    def _store(
        self,
        stream: Stream,
        subject: str,
        reply: str,
        headers: Mapping[str, str] | None,
        data: bytes,
    ) -> None:
        try:
            answer = stream.store(subject, headers, data)
            self.on_stored(subject, data)
        except Refused as refused:
            answer = {"stream": stream.name, "seq": 0, **refused.answer()}
        if reply:
            self._answer(reply, answer)
        for consumer in list(stream.consumers.values()):
            self._serve(stream, consumer)

    # -- the API

    def _ask(self, words: str, reply: str, data: bytes) -> None:
        if words.startswith("DIRECT.GET."):
            self._direct_get(words.removeprefix("DIRECT.GET."), reply, data)
            return
        if words.startswith("CONSUMER.MSG.NEXT."):
            self._pull(words.removeprefix("CONSUMER.MSG.NEXT."), reply, data)
            return
        verb = next((each for each in self._asked if (words + ".").startswith(each + ".")), None)
        if verb is None:
            self.publish(reply, b"", headers=NO_RESPONDERS)
            return
        rest = words.removeprefix(verb).removeprefix(".")
        request = _Request(rest.split("."), json.loads(data) if data else {}, reply)
        try:
            self._answer(reply, self._asked[verb](request))
        except Refused as refused:
            self._answer(reply, refused.answer())

    def _answer(self, reply: str, answer: dict[str, Any]) -> None:
        self.publish(reply, json.dumps(answer).encode())

    def _stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise Refused(404, 10059, "stream not found")
        self.streams[name].expire()
        return self.streams[name]

    def _consumer(self, request: _Request) -> tuple[Stream, Consumer]:
        stream = self._stream(request.words[0])
        if request.words[1] not in stream.consumers:
            raise Refused(404, 10014, "consumer not found")
        return stream, stream.consumers[request.words[1]]

    def _account(self, request: _Request) -> dict[str, Any]:
        return {"limits": {}, "streams": len(self.streams)}

    def _stream_info(self, request: _Request) -> dict[str, Any]:
        return self._stream(request.words[0]).info()

    def _stream_names(self, request: _Request) -> dict[str, Any]:
        names = sorted(self.streams)
        return {"streams": names, "total": len(names), "offset": 0, "limit": 1024}

    def _stream_create(self, request: _Request) -> dict[str, Any]:
        name = request.words[0]
        if name in self.streams:
            if self.streams[name].config != request.body:
                raise Refused(
                    400, 10058, "stream name already in use with a different configuration"
                )
            return self.streams[name].info()
        return self.add(request.body).info()

    def _stream_delete(self, request: _Request) -> dict[str, Any]:
        stream = self._stream(request.words[0])
        for consumer in stream.consumers.values():
            for pull in consumer.pulls:
                self._end(pull, "409 Consumer Deleted")
        del self.streams[stream.name]
        self._places.clear()
        return {"success": True}

    def _stream_purge(self, request: _Request) -> dict[str, Any]:
        stream = self._stream(request.words[0])
        below, kept = request.body.get("seq"), request.body.get("filter")
        return {"success": True, "purged": stream.purge(below=below, filter=kept)}

    def _message_get(self, request: _Request) -> dict[str, Any]:
        stream = self._stream(request.words[0])
        found = _found(stream, request.body)
        if found is None or not stream.is_at_leader(found[1]):
            raise Refused(404, 10037, "no message found")
        sequence, message = found
        told = {
            "subject": message.subject,
            "seq": sequence,
            "time": rfc3339_of(message.time_ns),
            "data": base64.b64encode(message.data).decode(),
        }
        if message.headers:
            told["hdrs"] = base64.b64encode(message.headers).decode()
        return {"message": told}

    def _message_delete(self, request: _Request) -> dict[str, Any]:
        stream = self._stream(request.words[0])
        if stream.config.get("deny_delete"):
            raise Refused(500, 10057, "message delete not permitted")
        if not stream.remove(int(request.body["seq"])):
            raise Refused(400, 10043, f"sequence {request.body['seq']} not found")
        return {"success": True}

    def _consumer_create(self, request: _Request) -> dict[str, Any]:
        stream = self._stream(request.words[0])
        consumer = stream.make(request.words[1], request.body["config"])
        return self._described(stream, consumer)

    def _consumer_info(self, request: _Request) -> dict[str, Any]:
        return self._described(*self._consumer(request))

    def _consumer_names(self, request: _Request) -> dict[str, Any]:
        names = sorted(self._stream(request.words[0]).consumers)
        return {"consumers": names, "total": len(names), "offset": 0, "limit": 1024}

    def _consumer_delete(self, request: _Request) -> dict[str, Any]:
        stream, consumer = self._consumer(request)
        del stream.consumers[consumer.name]
        for pull in consumer.pulls:
            self._end(pull, "409 Consumer Deleted")
        consumer.pulls.clear()
        return {"success": True}

    def _described(self, stream: Stream, consumer: Consumer) -> dict[str, Any]:
        return {
            "stream_name": stream.name,
            "name": consumer.name,
            "config": consumer.config,
            "delivered": {"consumer_seq": consumer.delivered, "stream_seq": consumer.next - 1},
            "num_pending": stream.pending(consumer),
        }

    # -- direct gets

    def _direct_get(self, words: str, reply: str, data: bytes) -> None:
        name, _, subject = words.partition(".")
        stream = self.streams.get(name)
        if stream is None or not stream.config.get("allow_direct"):
            self.publish(reply, b"", headers=NO_RESPONDERS)
            return
        stream.expire()
        query = {"last_by_subj": subject} if subject else json.loads(data)
        if "batch" in query:
            self._send_many(stream, query, reply)
            return
        found = _found(stream, query)
        if found is not None and not stream.is_on_replica(found[1]):
            found = None
        if found is None:
            self.publish(reply, b"", headers=b"NATS/1.0 404 Message Not Found\r\n\r\n")
            return
        self.publish(reply, found[1].data, headers=_with_place(stream, *found))

    def _send_many(self, stream: Stream, query: dict[str, Any], reply: str) -> None:
        begin = int(query.get("seq", 1))
        if "start_time" in query:
            begin = stream.since(time_ns_of(query["start_time"]))
        found = list(stream.following(begin, query["next_by_subj"]))
        left, room, last = int(query["batch"]), int(query.get("max_bytes", 2**31)), 0
        pending = 0
        for number, (sequence, message) in enumerate(found, 1):
            if not left or (room < 0 and last):
                pending += 1
                continue
            left, room, last = left - 1, room - message.size, sequence
            behind = {"Nats-Num-Pending": len(found) - number}
            headers = _with_place(stream, sequence, message, **behind)
            self.publish(reply, message.data, headers=headers)
        if not last:
            self.publish(reply, b"", headers=b"NATS/1.0 404 Message Not Found\r\n\r\n")
            return
        end = (
            f"NATS/1.0 204 EOB\r\nNats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last}\r\n\r\n"
        )
        self.publish(reply, b"", headers=end.encode())

    # -- pulls

    def _pull(self, words: str, reply: str, data: bytes) -> None:
        name, _, consumer_name = words.partition(".")
        stream = self.streams.get(name)
        consumer = stream.consumers.get(consumer_name) if stream is not None else None
        if stream is None or consumer is None:
            self.publish(reply, b"", headers=NO_RESPONDERS)
            return
        body = json.loads(data)
        pull = Pull(
            reply,
            batch=body["batch"],
            max_bytes=body["max_bytes"],
            until_s=self._loop.time() + body["expires"] / 1e9,
            heartbeat_s=body["idle_heartbeat"] / 1e9,
        )
        consumer.pulls.append(pull)
        self._later(pull.heartbeat_s, lambda: self._beat(stream, consumer, pull))
        self._serve(stream, consumer)

    def _beat(self, stream: Stream, consumer: Consumer, pull: Pull) -> None:
        is_gone = self.streams.get(stream.name) is not stream
        if is_gone or stream.consumers.get(consumer.name) is not consumer:
            return
        if pull not in consumer.pulls:
            return
        if self._loop.time() >= pull.until_s:
            consumer.pulls.remove(pull)
            self._end(pull, "408 Request Timeout")
            return
        self._end(pull, "100 Idle Heartbeat")
        self._later(pull.heartbeat_s, lambda: self._beat(stream, consumer, pull))

    def _serve(self, stream: Stream, consumer: Consumer) -> None:
        while (
            not consumer.is_stuck and consumer.pulls and (due := stream.due(consumer)) is not None
        ):
            pull, (sequence, message) = consumer.pulls[0], due
            size = message.size
            if not any(peer.wants(pull.reply) for peer in self.peers):
                # Whoever asked is gone; the server forgets what nobody listens to.
                consumer.pulls.remove(pull)
                continue
            if size > pull.max_bytes:
                consumer.pulls.remove(pull)
                self._end(pull, "409 Message Size Exceeds MaxBytes")
                continue
            pull.max_bytes -= size
            pull.batch -= 1
            consumer.delivered += 1
            consumer.next = sequence + 1
            consumer.is_stuck = consumer.delivered == consumer.stuck_after
            self._deliver(stream, consumer, pull, sequence, message)
            if not pull.batch:
                consumer.pulls.remove(pull)

    def _deliver(
        self, stream: Stream, consumer: Consumer, pull: Pull, sequence: int, message: Message
    ) -> None:
        numbers = (1, sequence, consumer.delivered, message.time_ns, stream.pending(consumer))
        place = ".".join(map(str, numbers))
        data, headers = message.data, message.headers
        if consumer.config.get("headers_only"):
            size = f"Nats-Msg-Size: {len(data)}\r\n\r\n".encode()
            headers = (headers[:-2] if headers else b"NATS/1.0\r\n") + size
            data = b""
        reply = f"$JS.ACK.{stream.name}.{consumer.name}.{place}"
        self.publish(pull.reply, data, headers=headers, reply=reply, shown=message.subject)

    def _end(self, pull: Pull, status: str) -> None:
        self.publish(pull.reply, b"", headers=f"NATS/1.0 {status}\r\n\r\n".encode())

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=contextvars.Context())


def _found(stream: Stream, query: Mapping[str, Any]) -> tuple[int, Message] | None:
    """Return the message that *query* asks for."""
    if "last_by_subj" in query:
        wanted = query["last_by_subj"]
        if "*" not in wanted and ">" not in wanted:
            return stream.newest(wanted)
        return max(stream.following(1, wanted), default=None, key=lambda found: found[0])
    if "next_by_subj" in query:
        return next(stream.following(int(query.get("seq", 1)), query["next_by_subj"]), None)
    return stream.at(int(query["seq"]))


def _with_place(stream: Stream, sequence: int, message: Message, **more: object) -> bytes:
    """Return the headers of *message* with what the server adds to an answer, and *more*."""
    before = message.headers[:-2] if message.headers else b"NATS/1.0\r\n"
    place = {
        "Nats-Stream": stream.name,
        "Nats-Subject": message.subject,
        "Nats-Sequence": sequence,
        "Nats-Time-Stamp": rfc3339_of(message.time_ns),
        **more,
    }
    return before + "".join(f"{k}: {v}\r\n" for k, v in place.items()).encode() + b"\r\n"
