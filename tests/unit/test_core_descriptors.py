"""Files do not take the last descriptor."""

from __future__ import annotations

import resource

import pytest

from logpipeline import descriptors


@pytest.mark.parametrize(
    ("limits", "files", "after"),
    [
        ((1024, 4096), 1024, (1088, 4096)),
        ((1024, 1024), 960, (1024, 1024)),
        ((256, 300), 236, (300, 300)),
        ((100, 100), 50, (100, 100)),
        ((4096, 4096), 1024, (4096, 4096)),
        ((1024, resource.RLIM_INFINITY), 1024, (1088, resource.RLIM_INFINITY)),
        ((resource.RLIM_INFINITY,) * 2, 1024, (resource.RLIM_INFINITY,) * 2),
    ],
)
def test_files_leave_descriptors_for_other_things(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], files: int, after: tuple[int, int]
) -> None:
    """The limit is raised as far as need be and may be; fewer files are open where that is not
    enough.
    """
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: now.append(wanted))

    assert descriptors.files_at_once(1024, besides=64) == files
    assert now[-1] == after


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where the limit that is named is not the one that holds."""

    def refused(_: int, __: tuple[int, int]) -> None:
        raise ValueError("not that many")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refused)

    assert descriptors.files_at_once(1024, besides=64) == 192
