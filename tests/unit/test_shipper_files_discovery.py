"""Sources are found, told apart from everything else, and seen to change."""

from __future__ import annotations

import asyncio
import gzip
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from components.log_chain import Folder, joined
from logpipeline_shipper.files import directory_scan
from logpipeline_shipper.files.directory_scan import roots_of
from logpipeline_shipper.files.discovery import Discovery
from logpipeline_shipper.files.listing import HostSources, Listing, SourceId
from logpipeline_shipper.files.open_file import Moved, OpenFolder, open_reader
from waiting import eventually

NEVER_S = 3600.0


class Seen:
    """What a discovery has told."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        self.ids: dict[str, SourceId] = {}
        self.writes: list[str] = []
        self.skipped: dict[str, str] = {}
        self.troubles: list[tuple[str, str]] = []

    def on_listing(self, listing: Listing) -> None:
        self.ids[listing.id.source] = listing.id
        self.files[listing.id.source] = [file.path.name for file in listing.files]

    def on_write(self, source: SourceId) -> None:
        self.writes.append(source.source)

    def on_skipped(self, path: Path, reason: str) -> None:
        self.skipped[path.name] = reason

    def on_trouble(self, folder: Path, reason: str) -> None:
        self.troubles.append((folder.name, reason))


@asynccontextmanager
async def discovering(
    *hosts: HostSources, rescan_s: float = NEVER_S, is_watching: bool = True
) -> AsyncIterator[Seen]:
    seen = Seen()
    discovery = Discovery(
        hosts,
        rescan_s=rescan_s,
        skipped=seen.on_skipped,
        on_trouble=seen.on_trouble,
        is_watching=is_watching,
    )
    task = asyncio.create_task(discovery.run(seen.on_listing, seen.on_write))
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.wait([task])


def scan(host: HostSources) -> Seen:
    seen = Seen()
    for listing in Discovery([host], skipped=seen.on_skipped).scan():
        seen.on_listing(listing)
    return seen


@pytest.mark.parametrize("turns", range(8))
async def test_it_ends_in_whichever_turn_it_is_cancelled(tmp_path: Path, turns: int) -> None:
    """Also in the one in which an event woke it: a shipper that stops waits for its end."""
    seen = Seen()
    host = HostSources(host="h", include=(f"{tmp_path}/*.log",))
    discovery = Discovery([host], rescan_s=NEVER_S, skipped=seen.on_skipped)
    is_told = asyncio.Event()
    task = asyncio.create_task(discovery.run(seen.on_listing, lambda _: is_told.set()))
    first = tmp_path / "first.log"
    first.write_bytes(b"x\n")
    await eventually(lambda: seen.files)
    first.write_bytes(b"xx\n")
    (tmp_path / "second.log").touch()  # it wakes the sleep in the turn in which the other is told
    await is_told.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=5)
    is_ended = task.done()
    task.cancel()

    assert is_ended


@pytest.mark.parametrize("is_watching", [True, False])
async def test_what_happened_before_a_look_is_told_by_it(
    tmp_path: Path, *, is_watching: bool
) -> None:
    """Whoever waits for a look does not go by a clock: the loop may have stood still."""
    loop, seen = asyncio.get_running_loop(), Seen()
    host = HostSources(host="h", include=(f"{tmp_path}/*/*.log",))
    (tmp_path / "a").mkdir()
    looks: asyncio.Queue[tuple[float, set[str]]] = asyncio.Queue()
    discovery = Discovery([host], rescan_s=0.0, skipped=seen.on_skipped, is_watching=is_watching)

    def on_looked(until_s: float) -> None:
        looks.put_nowait((until_s, set(seen.files)))

    task = asyncio.create_task(discovery.run(seen.on_listing, seen.on_write, on_looked))
    try:
        assert await looks.get()
        for number in range(50):
            made = tmp_path / "a" / f"{number}.log"
            made.touch()
            made_s = loop.time()
            until_s, files = await looks.get()
            while until_s <= made_s:
                until_s, files = await looks.get()
            assert str(made) in files
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_containers_are_named_by_their_folders(tmp_path: Path) -> None:
    """Namespace, pod and container come from the path; anything else there is no container."""
    box = tmp_path / "web_shop-1_0a1b/box"
    box.mkdir(parents=True)
    (box / "0.log").touch()
    (box / "notes.txt").touch()
    (tmp_path / "lost+found").mkdir()
    seen = scan(HostSources(host="h", pods_dir=tmp_path))

    assert seen.files == {"web/shop-1/0a1b/box/0": ["0.log"]}
    (source,) = seen.ids.values()
    assert (source.namespace, source.pod, source.container) == ("web", "shop-1", "box")
    assert seen.skipped == {"lost+found": "not-a-pod"}


def test_rotated_files_belong_to_their_live_file(tmp_path: Path) -> None:
    """They are no sources of their own, whether a pattern means them or not."""
    for name in ("app.log", "app.log.1", "app.log.2.gz", "gone.log.1"):
        (tmp_path / name).write_bytes(b"x\n")
    chains = {
        str(tmp_path / "app.log"): ["app.log.2.gz", "app.log.1", "app.log"],
        str(tmp_path / "gone.log"): ["gone.log.1"],
    }

    assert scan(HostSources(host="h", include=(f"{tmp_path}/*",))).files == chains
    assert scan(HostSources(host="h", include=(f"{tmp_path}/*.log",))).files == chains


def test_each_folder_below_can_be_a_host(tmp_path: Path) -> None:
    """`F/pods` and `F/files` are those of the host F."""
    (tmp_path / "h1/pods/ns_pod_uid/box").mkdir(parents=True)
    (tmp_path / "h1/pods/ns_pod_uid/box/0.log").touch()
    (tmp_path / "h2/files/deep/er").mkdir(parents=True)
    (tmp_path / "h2/files/deep/er/any.txt").touch()
    seen = scan(HostSources(host="", hosts_below=tmp_path))

    assert {source.host: source.format for source in seen.ids.values()} == {
        "h1": "cri",
        "h2": "plain",
    }


def test_what_is_no_log_file_is_left_out_with_a_reason(tmp_path: Path) -> None:
    """Folders, pipes, links, loops and binary files neither hang nor are read."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "outside.log").write_bytes(b"secret\n")
    (tree / "good.log").write_bytes(b"good\n")
    (tree / "folder.log").mkdir()
    os.mkfifo(tree / "pipe.log")
    (tree / "out.log").symlink_to(tmp_path / "outside.log")
    (tree / "loop.log").symlink_to(tree / "loop.log")
    (tree / "wtmp.log").write_bytes(b"\x07\0\0\0" * 100)
    (tree / "j.log").write_bytes(b"LPKSHHRH\n")
    (tree / "x.log.lz4").write_bytes(b"?")
    (tree / "mine.log").write_bytes(b"mine\n")
    host = HostSources(
        host="h", include=(f"{tree}/**/*.log*",), exclude=(f"{tree}/mine*", f"{tree}/folder.log")
    )
    seen = scan(host)

    assert list(seen.files) == [str(tree / "good.log")]
    assert seen.skipped == {
        "pipe.log": "not-a-regular-file",
        "out.log": "symbolic-link",
        "loop.log": "symbolic-link",
        "wtmp.log": "binary",
        "j.log": "binary",
        "x.log.lz4": "temporary-or-unknown-compression",
        "mine.log": "excluded",
    }


@pytest.mark.parametrize(("target", "is_read"), [("id-json.log", True), ("shadow", False)])
def test_a_link_of_a_container_leads_to_a_log_only(
    tmp_path: Path, target: str, is_read: bool
) -> None:
    """Docker's links are followed, and one that was planted is not."""
    (tmp_path / target).write_bytes(b"x\n")
    folder = Folder(tmp_path, cri=True)
    folder.live.symlink_to(tmp_path / target)

    assert joined(folder.read()) == (b"x\n" if is_read else b"")
    assert ("symbolic-link" in folder.chain.unreadable) is not is_read


def swapped_for_a_link(folder: Path, target: Path) -> None:
    """Put a link to *target* in the place of *folder*, as its owner can."""
    folder.rename(folder.with_name("old"))
    folder.symlink_to(target)


@pytest.mark.parametrize("is_pod", [False, True])
def test_a_folder_that_becomes_a_link_is_gone(tmp_path: Path, *, is_pod: bool) -> None:
    """With the folders below it, which are known by now: their names may lead anywhere."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for box in (tree / "web_shop_0a1b/box", outside / "box"):
        box.mkdir(parents=True)
        (box / "0.log").write_bytes(b"a line\n")
    (outside / "box" / "1.log").write_bytes(b"secret\n")
    host = (
        HostSources(host="h", pods_dir=tree)
        if is_pod
        else HostSources(host="h", include=(f"{tree}/**/*.log",))
    )
    [root] = roots_of(host, lambda path, reason: None)
    root.look()
    [upper] = root.subfolders.values()
    upper.look()
    [lower] = upper.subfolders.values()
    assert lower.look()
    assert len(lower.listings) == 1

    swapped_for_a_link(upper.path, outside)

    assert not lower.look()
    assert not upper.look()
    assert (lower.listings, upper.subfolders) == ({}, {})


@pytest.mark.parametrize("is_pod", [False, True])
def test_a_listed_file_is_not_opened_through_a_link(tmp_path: Path, *, is_pod: bool) -> None:
    """Even if it is the very file: what else the folder of the link shows is not ours to read."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    for box in (tree / "web_shop_0a1b/box", outside / "box"):
        box.mkdir(parents=True)
    path = tree / "web_shop_0a1b/box/0.log"
    path.write_bytes(b"a line\n")
    (outside / "box/0.log").hardlink_to(path)
    host = (
        HostSources(host="h", pods_dir=tree)
        if is_pod
        else HostSources(host="h", include=(f"{tree}/**/*.log",))
    )
    [listing] = Discovery([host], skipped=lambda path, reason: None).scan()

    swapped_for_a_link(tree / "web_shop_0a1b", outside)

    with pytest.raises(Moved):
        open_reader(listing.files[0], follow_link=is_pod)


def test_links_in_the_path_that_an_administrator_wrote_are_followed(tmp_path: Path) -> None:
    """In the part of a pattern before its first wildcard, also as the last folder of it."""
    box = tmp_path / "disk" / "logs" / "app"
    box.mkdir(parents=True)
    (box / "app.log").write_bytes(b"a line\n")
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    (tmp_path / "linked").symlink_to(tmp_path / "data" / "logs")
    for root in (tmp_path / "linked", tmp_path / "data" / "logs"):
        host = HostSources(host="h", include=(f"{root}/*/*.log",))
        [listing] = Discovery([host], skipped=lambda path, reason: None).scan()

        reader = open_reader(listing.files[0], follow_link=False)
        assert reader.read(0, 100) == b"a line\n"
        reader.close()


def test_a_look_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """Neither one that finds its folder nor one that meets a link half-way."""
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/link").symlink_to("b")
    lowest_free = os.dup(0)
    os.close(lowest_free)

    OpenFolder(tmp_path / "a/b/c", tmp_path).__exit__()
    with pytest.raises(NotADirectoryError):
        OpenFolder(tmp_path / "a/link/c", tmp_path)

    descriptor = os.dup(0)
    os.close(descriptor)
    assert descriptor == lowest_free


async def test_changes_are_told_at_once(tmp_path: Path) -> None:
    """New folders, files, writes, rotations and deletions need no rescan."""
    async with discovering(HostSources(host="h", include=(f"{tmp_path}/**",))) as seen:
        await asyncio.sleep(0)
        live = tmp_path / "new" / "er" / "app.log"
        live.parent.mkdir(parents=True)
        live.write_bytes(b"one\n")
        await eventually(lambda: seen.files.get(str(live)) == ["app.log"])
        with live.open("ab") as file:
            file.write(b"two\n")
        await eventually(lambda: str(live) in seen.writes)
        live.rename(live.with_name("app.log.1"))
        live.touch()
        await eventually(lambda: seen.files[str(live)] == ["app.log.1", "app.log"])
        for path in (live, live.with_name("app.log.1")):
            path.unlink()
        live.parent.rmdir()

        await eventually(lambda: seen.files[str(live)] == [])


async def test_a_folder_that_is_replaced_is_watched_again(tmp_path: Path) -> None:
    """Its path leads to another folder; the old one is of no interest any more."""
    folder = tmp_path / "box"
    folder.mkdir()
    (folder / "a.log").write_bytes(b"a\n")
    async with discovering(HostSources(host="h", include=(f"{tmp_path}/**/*.log",))) as seen:
        await eventually(lambda: str(folder / "a.log") in seen.files)
        folder.rename(tmp_path / "moved")
        folder.mkdir()  # before anybody could look
        (folder / "b.log").write_bytes(b"b\n")
        await eventually(lambda: str(folder / "b.log") in seen.files)
        assert seen.files[str(folder / "a.log")] == []
        with (folder / "b.log").open("ab") as file:
            file.write(b"more\n")

        await eventually(lambda: str(folder / "b.log") in seen.writes)


async def test_without_watches_the_rescan_sees_everything(tmp_path: Path) -> None:
    """Where the system cannot watch folders, nothing but time is lost."""
    live = tmp_path / "app.log"
    live.write_bytes(b"one\n")
    host = HostSources(host="h", include=(f"{tmp_path}/*.log",))
    async with discovering(host, rescan_s=0.05, is_watching=False) as seen:
        await eventually(lambda: seen.files.get(str(live)) == ["app.log"])
        live.rename(tmp_path / "app.log.1")
        await eventually(lambda: seen.files[str(live)] == ["app.log.1"])
        (tmp_path / "app.log.1").unlink()

        await eventually(lambda: seen.files[str(live)] == [])


async def test_lost_events_are_made_up_for(tmp_path: Path) -> None:
    """When the system drops events, everything is looked at once more."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    async with discovering(HostSources(host="h", include=(f"{tmp_path}/*.log",))) as seen:
        one, two = ((tmp_path / name).open("ab", buffering=0) for name in ("1.log", "2.log"))
        with one, two:
            one.write(b"x\n")
            two.write(b"x\n")
            await eventually(lambda: len(seen.files) == 2)
            for _ in range(limit // 2 + 100):
                one.write(b"x\n")
                two.write(b"x\n")
        (tmp_path / "late.log").write_bytes(b"its event was dropped\n")

        await eventually(lambda: str(tmp_path / "late.log") in seen.files)


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_folder_that_cannot_be_looked_into_is_not_empty(tmp_path: Path) -> None:
    """Out of descriptors, the sources stay as they were; nobody is told that they vanished."""
    (tmp_path / "app.log").write_bytes(b"x\n")
    host = HostSources(host="h", include=(f"{tmp_path}/*.log",))
    async with discovering(host, rescan_s=0.02, is_watching=False) as seen:
        await eventually(lambda: bool(seen.files))
        with no_descriptor_left():
            await eventually(lambda: seen.skipped.get(tmp_path.name) == "EMFILE")
            assert seen.files == {str(tmp_path / "app.log"): ["app.log"]}


async def test_a_folder_is_told_each_time_that_it_cannot_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second time as the first one, each with its end, which may be that it is gone."""
    folder = tmp_path / "below"
    folder.mkdir()
    host = HostSources(host="h", include=(f"{tmp_path}/*/*.log",))
    trouble, fine = (folder.name, "EACCES"), (folder.name, "")
    open_folder = directory_scan.open_folder

    def denied(path: Path, root: Path) -> OpenFolder:
        if path == folder:
            raise directory_scan.FolderUnreadable("EACCES")
        return open_folder(path, root)

    async with discovering(host, rescan_s=0.02, is_watching=False) as seen:
        for _ in range(2):
            monkeypatch.setattr(directory_scan, "open_folder", denied)
            await eventually(lambda: seen.troubles[-1:] == [trouble])
            monkeypatch.undo()
            await eventually(lambda: seen.troubles[-1:] == [fine])
        monkeypatch.setattr(directory_scan, "open_folder", denied)
        await eventually(lambda: seen.troubles[-1:] == [trouble])
        folder.rmdir()
        await eventually(lambda: seen.troubles[-1:] == [fine])

    assert seen.troubles == [trouble, fine] * 3


def test_a_file_that_finds_no_descriptor_is_read_later(tmp_path: Path) -> None:
    """It counts as nothing: neither as unreadable, nor as missing."""
    folder = Folder(tmp_path)
    folder.live.write_bytes(b"one\n")
    (listing,) = folder.discovery.scan()
    with no_descriptor_left():
        folder.take(listing)
        assert folder.read_on() == []
    folder.now_s += 5

    assert joined(folder.read_on()) == b"one\n"
    assert (folder.chain.unreadable, folder.chain.missing_bytes) == ({}, 0)


def test_a_log_that_is_rotated_during_the_first_look_is_seen_whole(tmp_path: Path) -> None:
    """A file that moves between the listing of names and the look at files is not left out: what
    it holds is older than what is there, and has to come before.
    """
    for name in ("app.log", "app.log.1"):
        (tmp_path / name).write_text("a line\n")
    (tmp_path / "link").symlink_to("app.log")
    seen = Seen()

    def moving(path: Path, reason: str) -> None:
        # Names are known by now, files are not.
        if path.name == "link" and (tmp_path / "app.log.1").exists():
            (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
        seen.on_skipped(path, reason)

    host = HostSources(host="node-a", include=(f"{tmp_path}/*",))
    [listing] = Discovery([host], skipped=moving).scan()
    assert sorted(file.path.name for file in listing.files) == ["app.log", "app.log.2"]


def test_a_half_compressed_file_is_not_listed_without_its_original(tmp_path: Path) -> None:
    """By which it is known for what it is; though the names are those of the look before: files
    changed places under them.
    """
    live, packed = tmp_path / "app.log", tmp_path / "app.log.1.gz"
    live.write_text("two\n")
    packed.write_bytes(gzip.compress(b"one\n"))
    (tmp_path / "link").symlink_to("app.log")
    is_moving = False

    def moving(path: Path, _reason: str) -> None:
        if is_moving and path.name == "link" and not (tmp_path / "app.log.2.gz").exists():
            packed.rename(tmp_path / "app.log.2.gz")
            live.rename(tmp_path / "app.log.1")
            packed.write_bytes(gzip.compress(b"two\n")[:9])
            live.write_text("three\n")

    host = HostSources(host="node-a", include=(f"{tmp_path}/*",))
    [root] = roots_of(host, moving)
    root.look()
    is_moving = True
    root.look()

    [listing] = root.listings.values()
    assert [file.path.name for file in listing.files] == [
        "app.log.2.gz",
        "app.log.1.gz",
        "app.log.1",
        "app.log",
    ]
