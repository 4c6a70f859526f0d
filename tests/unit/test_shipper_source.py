"""What takes long is done beside the event loop: probes, pings and other sources wait for nothing,
however large a file is.
"""

from __future__ import annotations

import gzip
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components.log_chain import GRACE_S, Folder, append
from components.shared_parts import Server, shared_by
from logpipeline_shipper.account import REMOVED, Gap
from logpipeline_shipper.checkpoint import SourceRecord
from logpipeline_shipper.message import MessageBuilder
from logpipeline_shipper.source import Source


def source_of(folder: Folder, server: Server) -> Source:
    """The source of *folder*, which goes on from what its chain has sent."""
    record = SourceRecord(saved=folder.chain.saved())
    shared = shared_by(server, folder.path, lambda: folder.now_s)
    builder = MessageBuilder(
        folder.chain.id, subject="logs", installation="i", cluster="", is_compressing=False
    )
    return Source(folder.chain.id, folder.chain, builder, shared, record, is_in_doubt=False)


async def test_a_debt_is_read_in_a_thread(tmp_path: Path) -> None:
    """And paid with the very bytes."""
    folder = Folder(tmp_path)
    append(folder.live, b"one\ntwo\n")
    (chunk,) = folder.read()
    server = Server()
    source = source_of(folder, server)
    source.account.acknowledged(chunk.generation, (0, 8), sequence=1, now_s=0.0)
    threads = noted(folder.chain, "read_again")

    source.owe(Gap(chunk.generation, 4, 8, REMOVED))
    await source.finish()

    assert server.payloads == [b"two\n"]
    assert not source.has_debts
    assert threads
    assert threading.get_ident() not in threads


async def test_a_packed_copy_is_recognised_in_a_thread(tmp_path: Path) -> None:
    """By all of its bytes, which have to be unpacked. Then its owner is noted."""
    folder = Folder(tmp_path)
    letters = random.Random(1).randbytes(60_000).hex().encode()
    append(folder.live, b"".join(letters[at : at + 100] + b"\n" for at in range(0, 120_000, 100)))
    folder.drain()
    source = source_of(folder, Server())
    packed = tmp_path / "app.log.1.gz"
    packed.write_bytes(gzip.compress(folder.live.read_bytes()))
    folder.live.unlink()
    folder.now_s += GRACE_S
    inodes: list[int] = []
    source.listed = lambda: inodes.extend(inode for _, inode, _ in folder.chain.identities())
    threads = noted(folder.chain, "update")

    (listing,) = folder.discovery.scan()
    source.list(listing)
    await source.finish()

    assert threads
    assert threading.get_ident() not in threads
    assert inodes == [packed.stat().st_ino]
    assert folder.chain.backlog_bytes() == 0


def noted(owner: Any, name: str) -> list[int]:
    """Return the list of the threads in which the method *name* of *owner* runs from now on."""
    threads: list[int] = []
    method: Callable[..., Any] = getattr(owner, name)

    def method_noted(*args: Any) -> Any:
        threads.append(threading.get_ident())
        return method(*args)

    setattr(owner, name, method_noted)
    return threads
