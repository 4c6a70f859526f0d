"""What a server acknowledged and lost is sent again from the files: on evidence, and only what no
collector has confirmed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from components.shipping import (
    CONTROL,
    HOST,
    STREAM,
    append,
    batch_of,
    config_of,
    jetstream,
    lines_of,
    make_stream,
    shipping,
    stored,
    until,
    until_stored,
)
from logpipeline.embedded import EmbeddedServer
from logpipeline.nats.jetstream import JetStream
from logpipeline.nats.session import RawMessage
from logpipeline.records import Committed, Progress, Question
from logpipeline.subjects import ControlSubjects
from logpipeline_shipper import progress


class Told:
    """A collector, as the shipper sees it: it reports what it has collected, and answers questions.
    *answers* counts what it answered of the last report.
    """

    def __init__(self, js: JetStream) -> None:
        self.answers = 0
        self._js = js
        self._answer = b""
        self._sending: set[asyncio.Task[None]] = set()

    async def tell(
        self,
        path: Path,
        *,
        offset: int,
        generation: str,
        holes: tuple[tuple[str, int, int], ...] = (),
        rollbacks: int = 0,
        groups: tuple[str, ...] = (),
    ) -> None:
        """Report how far *path* is collected, and say so to all questions from now on."""
        committed = Committed(str(path), generation, offset, holes)
        progress = Progress("main", 0, 1, rollbacks, (committed,), pending=1)
        control = ControlSubjects(CONTROL)
        if not self._answer:
            await self._js.connection.listen(control.ask_committed(0, HOST), self._asked)
        self._answer, self.answers = replace(progress, groups=groups).encode(), 0
        await self._js.connection.publish(control.committed(0, HOST), progress.encode())

    async def is_heard(self, answers: int = 1) -> None:
        """Return once the shipper has heard so many *answers*."""

        async def is_answered() -> bool:
            return self.answers >= answers

        await until(is_answered)
        await on_the_way(self._js)  # its answer comes after it heard ours

    def _asked(self, question: RawMessage) -> None:
        self.answers += 1
        reply = self._js.connection.publish(question.reply.decode(), self._answer)
        self._sending.add(asyncio.create_task(reply))


async def on_the_way(js: JetStream) -> int:
    """Return how many bytes the shipper waits for."""
    answer = await js.connection.request(f"{CONTROL}.status.shipper")
    return int(json.loads(answer.data)["on_the_way_bytes"])


async def generation_of(js: JetStream) -> str:
    """Return the only generation that was sent."""
    return batch_of((await stored(js))[0]).generation


async def test_a_server_put_back_to_an_older_copy_gets_again_what_it_lost(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The last message of our subject is not the acknowledged one: all is sent again, marked."""
    path = tmp_path / "logs" / "app.log"
    async with shipping(config_of(tmp_path, nats_server.url)):
        async with jetstream(nats_server) as js:
            await make_stream(js)
            append(path, lines_of(0, 100))
            await until_stored(js, path, lines_of(0, 100))
        await put_back(nats_server, tmp_path, lambda: append(path, lines_of(100, 400)))

        async with jetstream(nats_server) as js:
            await until_stored(js, path, lines_of(0, 400))


async def test_a_loss_while_the_shipper_was_stopped_is_noticed_at_its_start(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """What was acknowledged last is remembered across restarts of both sides."""
    path = tmp_path / "logs" / "app.log"
    config = config_of(tmp_path, nats_server.url)
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        append(path, lines_of(0, 100))
        await until_stored(js, path, lines_of(0, 100))
    await nats_server.stop()
    shutil.copytree(nats_server.store, tmp_path / "copy")
    await nats_server.start()
    async with jetstream(nats_server) as js, shipping(config):
        append(path, lines_of(100, 400))
        await until_stored(js, path, lines_of(0, 400))
    await nats_server.stop()
    shutil.rmtree(nats_server.store)
    shutil.copytree(tmp_path / "copy", nats_server.store)
    await nats_server.start()

    async with shipping(config), jetstream(nats_server) as js:
        await until_stored(js, path, lines_of(0, 400))


async def test_what_a_collector_confirmed_is_not_sent_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Sending again begins where the collected part ends, not where the file begins."""
    path = tmp_path / "logs" / "app.log"
    async with shipping(config_of(tmp_path, nats_server.url)):
        async with jetstream(nats_server) as js:
            await make_stream(js)
            append(path, lines_of(0, 100))
            await until_stored(js, path, lines_of(0, 100))
            first = len(lines_of(0, 60))
            told = Told(js)
            await told.tell(path, offset=first, generation=await generation_of(js))
            await told.is_heard()
            before = len(await stored(js))
        await put_back(nats_server, tmp_path, lambda: append(path, lines_of(100, 400)))

        async with jetstream(nats_server) as js:
            await until_stored(js, path, lines_of(0, 400))
            again = [batch_of(message) for message in (await stored(js))[before:]]
            assert again[0].start == first
            assert again[0].resend


async def test_a_reconnect_alone_sends_nothing_again(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Mere lag of the collectors is no evidence of loss."""
    path = tmp_path / "logs" / "app.log"
    async with shipping(config_of(tmp_path, nats_server.url)):
        async with jetstream(nats_server) as js:
            await make_stream(js)
            append(path, lines_of(0, 100))
            await until_stored(js, path, lines_of(0, 100))
            told = Told(js)
            await told.tell(path, offset=0, generation=await generation_of(js))
            await told.is_heard()
            before = len(await stored(js))
        nats_server.kill()
        await nats_server.start()

        async with jetstream(nats_server) as js:
            append(path, lines_of(100, 101))
            await until_stored(js, path, lines_of(0, 101))
            later = [batch_of(message) for message in (await stored(js))[before:]]
            assert [(batch.lines, batch.resend) for batch in later] == [(1, False)]


async def test_a_stream_made_anew_gets_what_no_collector_confirmed(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Sequences that begin again are evidence without any right to read."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        for number in range(5):
            append(path, lines_of(number, number + 1))
            await until_stored(js, path, lines_of(0, number + 1))
        await js.call(f"STREAM.DELETE.{STREAM}")
        await make_stream(js)
        append(path, lines_of(5, 6))

        async def is_all_there_again() -> bool:
            batches = [batch_of(message) for message in await stored(js)]
            return any(b.start == 0 and b.resend for b in batches) and any(
                b.end == len(lines_of(0, 6)) and b.start < b.end for b in batches
            )

        await until(is_all_there_again)


async def test_a_hole_is_filled_with_exactly_its_bytes(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """A collector names what it misses; that comes, marked, and nothing else."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        append(path, lines_of(0, 1000))
        await until_stored(js, path, lines_of(0, 1000))
        before, generation = len(await stored(js)), await generation_of(js)
        start, end = len(lines_of(0, 100)), len(lines_of(0, 600))

        hole = (generation, start, end)
        size = path.stat().st_size
        told = Told(js)
        for _ in range(3):
            await told.tell(path, offset=size, generation=generation, holes=(hole,))

        async def is_filled() -> bool:
            later = [batch_of(message) for message in (await stored(js))[before:]]
            return bool(later) and later[-1].end == end

        await until(is_filled)
        later = [batch_of(message) for message in (await stored(js))[before:]]
        assert later[0].start == start
        assert [b.start for b in later[1:]] == [b.end for b in later[:-1]], (
            "once, though told thrice"
        )
        assert all(batch.resend for batch in later)


async def test_a_hole_of_a_file_that_is_being_renamed_is_filled_afterwards(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Lines of other files go on meanwhile."""
    path, other = tmp_path / "logs" / "app.log", tmp_path / "logs" / "other.log"
    config = config_of(tmp_path, nats_server.url, rescan_s=5.0)
    async with jetstream(nats_server) as js, shipping(config):
        await make_stream(js)
        append(path, lines_of(0, 100))
        await until_stored(js, path, lines_of(0, 100))
        before, generation = len(await stored(js)), await generation_of(js)
        path.rename(tmp_path / "in-between")
        hole = (generation, len(lines_of(0, 10)), len(lines_of(0, 20)))
        size = len(lines_of(0, 100))
        await Told(js).tell(path, offset=size, generation=generation, holes=(hole,))
        append(other, lines_of(0, 10))
        await until_stored(js, other, lines_of(0, 10))
        (tmp_path / "in-between").rename(path.with_name("app.log.1"))

        async def again() -> list[tuple[int, int]]:
            later = [batch_of(message) for message in (await stored(js))[before:]]
            return [(each.start, each.end) for each in later if each.generation == generation]

        assert await until(again) == [hole[1:]]


async def test_a_shipper_that_hears_nothing_asks(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collectors tell what changes; a loss noticed later is told to who asks."""
    monkeypatch.setattr(progress, "ASK_AFTER_S", 0.2)
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        append(path, lines_of(0, 100))
        await until_stored(js, path, lines_of(0, 100))
        before, generation = len(await stored(js)), await generation_of(js)
        size = path.stat().st_size
        hole = (generation, len(lines_of(0, 10)), len(lines_of(0, 20)))
        answer = Progress("main", 0, 1, 0, (Committed(str(path), generation, size, (hole,)),))
        answers: set[asyncio.Task[None]] = set()

        def asked(question: RawMessage) -> None:
            reply = js.connection.publish(question.reply.decode(), answer.encode())
            answers.add(asyncio.create_task(reply))

        await js.connection.listen(ControlSubjects(CONTROL).ask_committed(0, HOST), asked)

        async def again() -> list[tuple[int, int]]:
            later = [batch_of(message) for message in (await stored(js))[before:]]
            return [(batch.start, batch.end) for batch in later]

        assert await until(again) == [hole[1:]]


async def test_a_rollback_that_a_collector_counts_is_healed(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The first word is where counting begins; one more roll-back sends what is not collected."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        append(path, lines_of(0, 100))
        await until_stored(js, path, lines_of(0, 100))
        before, generation = len(await stored(js)), await generation_of(js)
        offset = len(lines_of(0, 90))

        told = Told(js)
        await told.tell(path, offset=offset, generation=generation, rollbacks=4)
        await told.is_heard()
        await told.tell(path, offset=offset, generation=generation, rollbacks=5)

        async def again() -> list[tuple[int, int, bool]]:
            later = [batch_of(message) for message in (await stored(js))[before:]]
            return [(batch.start, batch.end, batch.resend) for batch in later]

        assert await until(again) == [(offset, len(lines_of(0, 100)), True)]


async def test_what_is_only_reported_makes_no_group_and_no_rollback(
    nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Anyone may be able to have a report sent; what an answer does not confirm has no effect."""
    path = tmp_path / "logs" / "app.log"
    async with jetstream(nats_server) as js, shipping(config_of(tmp_path, nats_server.url)):
        await make_stream(js)
        append(path, lines_of(0, 100))
        await until_stored(js, path, lines_of(0, 100))
        before, generation = len(await stored(js)), await generation_of(js)
        told = Told(js)
        await told.tell(path, offset=0, generation=generation, rollbacks=4)
        await told.is_heard()
        for group, rollbacks in (("main", 10**9), ("fake", 0), ("fake", 1)):
            forged = Progress(group, 0, 1, rollbacks, (Committed(str(path), "0" * 16, 0),))
            subject = ControlSubjects(CONTROL).committed(0, HOST)
            await js.connection.publish(subject, forged.encode())
        await told.tell(path, offset=path.stat().st_size, generation=generation, rollbacks=4)

        async def is_settled() -> bool:
            return await on_the_way(js) == 0

        await until(is_settled)
        assert len(await stored(js)) == before


async def test_a_group_that_was_deleted_is_not_waited_for(
    nats_server: EmbeddedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of the other group leave it out; it was saved, and a restart made no difference."""
    monkeypatch.setattr(progress, "ASK_AFTER_S", 0.1)
    monkeypatch.setattr(progress, "GROUP_GONE_S", 0.2)
    path = tmp_path / "logs" / "app.log"
    config = config_of(tmp_path, nats_server.url)
    async with jetstream(nats_server) as js:
        await make_stream(js)
        append(path, lines_of(0, 100))
        size = path.stat().st_size
        async with shipping(config):
            await until_stored(js, path, lines_of(0, 100))
            audit = Progress("audit", 0, 1, 3, ())
            subject = ControlSubjects(CONTROL).ask_committed(0, HOST)
            sending: list[asyncio.Task[None]] = []

            def asked(question: RawMessage) -> None:
                unknown = Question.decode(question.data).generations or ()
                answer = replace(audit, unknown=unknown, pending=1).encode()
                reply = js.connection.publish(question.reply.decode(), answer)
                sending.append(asyncio.create_task(reply))

            listener = await js.connection.listen(subject, asked)
            await until(lambda: _some(sending))
            await js.connection.unlisten(listener)
        async with shipping(config):
            generation = await generation_of(js)
            told = Told(js)
            await told.tell(path, offset=size, generation=generation)
            await told.is_heard(answers=10)
            waited_for = await on_the_way(js)
            await told.tell(path, offset=size, generation=generation, groups=("audit", "main"))
            await told.is_heard(answers=10)
            waited_for_again = await on_the_way(js)
            await told.tell(path, offset=size, generation=generation, groups=("main",))

            async def is_settled() -> bool:
                return await on_the_way(js) == 0

            await until(is_settled)

    assert (waited_for, waited_for_again) == (size, size)


async def _some(tasks: list[asyncio.Task[None]]) -> bool:
    return len(tasks) > 1


async def put_back(server: EmbeddedServer, tmp_path: Path, write: Callable[[], None]) -> None:
    """Let the server store what *write* writes, and put its store back to what it was before."""
    store, copy = server.folder / "store", tmp_path / "copy"
    await server.stop()
    shutil.copytree(store, copy)
    await server.start()
    async with jetstream(server) as js:
        before = len(await stored(js))
        write()

        async def is_more_stored() -> bool:
            batches = [batch_of(message) for message in await stored(js)]
            return len(batches) > before and batches[-1].end == await _size(js)

        await until(is_more_stored)
    await server.stop()
    shutil.rmtree(store)
    shutil.copytree(copy, store)
    await server.start()


async def _size(js: JetStream) -> int:
    return Path(batch_of((await stored(js))[0]).source).stat().st_size
