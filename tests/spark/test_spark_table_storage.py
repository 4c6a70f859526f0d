"""A folder and a bucket keep the same promises: whole objects, one winner, and clear sentences."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faults.small_disk import small_disk
from logpipeline_spark.errors import Refused
from logpipeline_spark.table.files import WRITING
from logpipeline_spark.table.s3 import S3Options, S3Storage, storage_of
from logpipeline_spark.table.scan import files
from logpipeline_spark.table.storage import LocalStorage, Storage
from tables.made import batch, logs, opened
from tables.s3 import BUCKET, S3Server

pytest_plugins = ["tables.s3_fixtures"]

WRITERS = 4
ROUNDS = 10
TURNS = 50
# More than one part of an upload.
LARGE_BYTES = 12 * 1024 * 1024


@pytest.fixture(params=["disk", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A place of this test's own, of either kind."""
    if request.param == "disk":
        return LocalStorage(tmp_path / "table")
    server: S3Server = request.getfixturevalue("server")
    return server.storage(tmp_path.name)


def test_objects_are_written_read_listed_and_removed(storage: Storage) -> None:
    """All verbs do what they say, and twice is as good as once."""
    storage.write("a/one", b"1")
    storage.write("a/one", b"11")
    storage.write("b/two", b"11")

    assert storage.read("a/one") == b"11"
    assert storage.read("a/none") is None
    assert storage.read_range("b/two", 1, 1) == storage.read_range("b/two", 1, 9) == b"1"
    assert storage.read_range("a/none", 0, 1) is None
    [found] = storage.list("b")
    assert (found.path, found.size_bytes) == ("b/two", 2)
    assert abs(found.modified - datetime.now(UTC)) < timedelta(hours=1)
    assert list(storage.list("none")) == []
    storage.delete(["a/one", "a/one", "none"])
    assert storage.read("a/one") is None
    assert storage.read("b/two") == b"11"
    with pytest.raises(FileNotFoundError):
        storage.open("a/one")


def test_a_storage_travels_to_tasks(storage: Storage) -> None:
    """What a task gets reads the same place; a bucket's secret is not among it."""
    storage.write("a", b"1")
    packed = pickle.dumps(storage)

    assert b"only-for-tests" not in packed
    assert pickle.loads(packed).read("a") == b"1"


def test_of_many_writers_one_is_first(storage: Storage) -> None:
    """An object that must not exist yet is put by one of them, whole, each time."""
    together = threading.Barrier(WRITERS)

    def put(writer: int) -> list[bool]:
        won = []
        for number in range(ROUNDS):
            together.wait()
            won.append(storage.put_if_absent(f"commits/{number}", b"%d" % writer))
        return won

    with ThreadPoolExecutor(WRITERS) as pool:
        wins = list(pool.map(put, range(WRITERS)))

    for number in range(ROUNDS):
        winners = [writer for writer in range(WRITERS) if wins[writer][number]]
        assert len(winners) == 1
        assert storage.read(f"commits/{number}") == b"%d" % winners[0]


def fail_half_way(storage: Storage) -> None:
    """Begin an object that is never finished."""
    with storage.create("lines/failed") as file:
        file.write(b"half")
        raise ConnectionError


def test_a_large_object_appears_when_it_is_whole(storage: Storage) -> None:
    """While it is written it is not there; when the writer fails it never is."""
    with storage.create("lines/large") as file:
        file.write(bytes(LARGE_BYTES))
        assert storage.read("lines/large") is None
    with pytest.raises(ConnectionError):
        fail_half_way(storage)

    [large] = storage.list("lines")
    assert (large.path, large.size_bytes) == ("lines/large", LARGE_BYTES)
    assert list(storage.list(WRITING)) == []
    with storage.open("lines/large") as found:
        found.seek(-3, 2)
        assert found.read() == bytes(3)


def test_a_place_that_lets_one_writer_win_passes(storage: Storage) -> None:
    """The check leaves nothing behind."""
    storage.check()

    assert list(storage.list("")) == []


def test_a_check_beside_a_writer_that_tidies_up_passes(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that begins at the same time may take what the check wrote for a leftover."""
    put, is_tidied = type(storage).put_if_absent, False

    def put_and_tidy_once(self: Storage, path: str, data: bytes) -> bool:
        nonlocal is_tidied
        is_first = put(self, path, data)
        if not is_tidied:
            is_tidied = True
            self.delete([stored.path for stored in self.list(WRITING)])
        return is_first

    monkeypatch.setattr(type(storage), "put_if_absent", put_and_tidy_once)
    storage.check()

    assert is_tidied
    assert list(storage.list("")) == []


def test_a_folder_that_another_takes_away_is_made_again(tmp_path: Path) -> None:
    """Beside writers who remove what they wrote, and with it folders that are empty then, each
    object gets to its place.
    """

    def write_and_remove(number: int) -> None:
        storage = LocalStorage(tmp_path / "table")
        for turn in range(TURNS):
            path = f"lines/hour={turn % 2}/{number}-{turn}"
            storage.check()
            storage.write(path, b"rows")
            assert storage.read(path) == b"rows"
            assert storage.put_if_absent(f"lines/first/{number}-{turn}", b"rows")
            storage.delete([path, f"lines/first/{number}-{turn}"])

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write_and_remove, range(WRITERS)))
    assert list(LocalStorage(tmp_path / "table").list("")) == []


def test_a_file_that_another_takes_for_a_leftover_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that takes the table over tidies up, and may meet what another is about to place."""
    storage, place = LocalStorage(tmp_path / "table"), LocalStorage._place
    met: list[Path] = []

    def place_once_tidied(
        self: LocalStorage, put: Callable[[Path, Path], None], source: Path, target: Path
    ) -> None:
        if target not in met:
            met.append(target)
            storage.delete([stored.path for stored in storage.list(WRITING)])
        place(self, put, source, target)

    monkeypatch.setattr(LocalStorage, "_place", place_once_tidied)
    storage.write("state", b"1")
    assert storage.put_if_absent("commit", b"rows")
    assert not storage.put_if_absent("commit", b"others")

    assert len(met) == 2
    assert (storage.read("state"), storage.read("commit")) == (b"1", b"rows")
    assert list(storage.list(WRITING)) == []


def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """The batch fails with one sentence; with room again it is repeated, and all is well."""
    with small_disk(tmp_path / "disk", size_bytes=4_000_000) as disk:
        storage = LocalStorage(disk.path / "table")
        table = opened(storage)
        batch(table, storage, "0", 1, 10)
        disk.fill()
        with pytest.raises(Refused, match=r"is full: make room there"):
            batch(table, storage, "1", 11, 20)
        before = files(logs(storage))
        disk.free()
        batch(table, storage, "1", 11, 20)

        assert len(before) == 1
        assert table.state.lines == 40
        assert list(storage.list(WRITING)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"access_key_file": "wrong"}, "check the access key"),
        ({"secret_key_file": "wrong"}, "check the access key"),
        ({"secret_key_file": "none"}, "cannot be read: write the key"),
    ],
)
def test_wrong_keys_are_told(
    server: S3Server, tmp_path: Path, change: dict[str, str], said: str
) -> None:
    """One sentence, without the secret."""
    (tmp_path / "wrong").write_text("wrong")
    files = {
        "access_key_file": server.folder / "access",
        "secret_key_file": server.folder / "secret",
    }
    files |= {name: tmp_path / file for name, file in change.items()}
    options = S3Options(endpoint=server.endpoint, region="us-east-1", **files)

    with pytest.raises(Refused, match=said) as told:
        S3Storage(BUCKET, "t", options).write("a", b"1")

    assert "only-for-tests" not in str(told.value)
    assert "\n" not in str(told.value)


def test_a_bucket_that_is_not_there_is_told(server: S3Server) -> None:
    """A typing mistake in its name is told as that."""
    with pytest.raises(Refused, match="no bucket nowhere"):
        list(S3Storage("nowhere", "t", server.options).list("a"))


def test_paths_are_what_users_write(server: S3Server, tmp_path: Path) -> None:
    """Folders, file URLs and buckets are understood; anything else is told."""
    assert storage_of(str(tmp_path)).url == str(tmp_path)
    assert storage_of(f"file://{tmp_path}/a%20b").url == f"{tmp_path}/a b"
    assert storage_of(f"s3://{BUCKET}/a/b/", server.options).url == f"s3://{BUCKET}/a/b"
    for wrong in ("", "gs://b/p", "s3:///p"):
        with pytest.raises(Refused, match=r"pass a folder|names no bucket"):
            storage_of(wrong)
    for wrong in (
        "s3://b/a#1",
        "s3://b/a?1",
        "s3://b/%2e%2e/c",
        "/a/b%41",
        "file:///a%25b",
        "/a\\b",
    ):
        with pytest.raises(Refused, match="no part of a path"):
            storage_of(wrong)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refused, match="not a folder: choose another path"):
        storage_of(str(tmp_path / "file")).write("a", b"")
