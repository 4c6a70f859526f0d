"""A source that is not found is lost only if its files are gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from logpipeline_shipper.absence import Absence, absence_of
from logpipeline_shipper.files.listing import HostSources, id_of
from logpipeline_shipper.files.open_file import look_at

CONTAINER = id_of("h", "ns/pod/uid/box/0")


def identity(path: Path) -> tuple[int, int, int]:
    """Make the file *path*; return its identity."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"one\n")
    found = look_at(path, follow_link=False)
    return found.device, found.inode, found.born_ns


@pytest.mark.parametrize(
    ("include", "exclude", "found"),
    [
        (("*.log",), (), Absence.GONE),
        (("app.log.*",), (), Absence.GONE),  # of rotated files alone
        (("*.log",), ("app*",), Absence.LEFT_OUT),
        ((), (), Absence.LEFT_OUT),
        (("other/*.log",), (), Absence.LEFT_OUT),
    ],
)
def test_a_log_that_is_not_searched_any_more_is_not_gone(
    tmp_path: Path, include: tuple[str, ...], exclude: tuple[str, ...], found: Absence
) -> None:
    """Rotations go on at its place, though no one looks there."""
    path = tmp_path / "app.log"
    known = identity(path)
    path.rename(tmp_path / "app.log.1")
    identity(path)
    host = HostSources(
        host="h",
        include=tuple(f"{tmp_path}/{each}" for each in include),
        exclude=tuple(f"{tmp_path}/{each}" for each in exclude),
    )

    assert absence_of(id_of("h", str(path)), [known], [host], ()) is found


def test_a_log_at_its_place_is_left_out_for_a_reason(tmp_path: Path) -> None:
    """Its device may have another number by now."""
    path = tmp_path / "app.log"
    device, inode, born_ns = identity(path)
    host = HostSources(host="h", include=(f"{tmp_path}/*.log",))
    id, known = id_of("h", str(path)), [(device + 1, inode, born_ns)]
    assert absence_of(id, known, [host], ()) is Absence.LEFT_OUT

    path.unlink()

    assert absence_of(id, known, [host], ()) is Absence.GONE


def test_below_a_folder_that_cannot_be_read_nothing_is_gone(tmp_path: Path) -> None:
    """Whatever the system says of the file itself."""
    host = HostSources(host="h", include=(f"{tmp_path}/**",))
    id = id_of("h", f"{tmp_path}/a/b/app.log")

    assert absence_of(id, [], [host], {tmp_path / "a": "EIO"}) is Absence.UNREADABLE
    assert absence_of(id, [], [host], {tmp_path / "b": "EIO"}) is Absence.GONE


@pytest.mark.parametrize("is_own", [True, False])
def test_a_container_is_searched_at_its_place(tmp_path: Path, is_own: bool) -> None:
    """The shipper's own host, or one of a folder of hosts."""
    host = HostSources(host="h", pods_dir=tmp_path / "h" / "pods")
    if not is_own:
        host = HostSources(host="other", hosts_below=tmp_path)
    path = tmp_path / "h" / "pods" / "ns_pod_uid" / "box" / "0.log"
    known = [identity(path)]
    assert absence_of(CONTAINER, known, [host], ()) is Absence.LEFT_OUT
    assert absence_of(CONTAINER, known, [host], {path.parents[2]: "EIO"}) is Absence.UNREADABLE

    path.unlink()

    assert absence_of(CONTAINER, known, [host], ()) is Absence.GONE


def test_where_no_containers_are_searched_none_is_gone(tmp_path: Path) -> None:
    """Container logs were turned off."""
    host = HostSources(host="h", include=(f"{tmp_path}/*.log",))

    assert absence_of(CONTAINER, [], [host], ()) is Absence.LEFT_OUT
