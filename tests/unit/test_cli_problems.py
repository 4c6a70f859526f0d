"""`logpipeline status --check` says whether lines were lost and every part works, for scripts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from logpipeline_cli.commands.status import render
from logpipeline_cli.problems import UNCONFIRMED_S_MAX, conflicts, problems
from logpipeline_cli.tables.status import standing

ROOM = {
    "messages": 0, "messagesMax": 10, "bytes": 0, "bytesMax": 4096, "givenUpFull": [],
}  # fmt: skip
OWNED = {
    "partition": 0, "is_there": True, "is_known": True, "owner": "c-0", "released": False,
}  # fmt: skip
TABLE = {
    "name": "team/prod", "commit": 3, "rows": 7, "path": "/t", "problem": "", "missed_messages": 0,
    "streams": [],
}  # fmt: skip
ROW = {
    "stream": "LP_0", "lag": {"messages": 9, "bytes": 2048, "age_s": 0.0}, "fill": 0.66,
    "holds_back": False, "missed": [], "passed": True,
}  # fmt: skip
UNSEEN = {"cause": "expired", "bytes": 2048, "acknowledged": False, "group": "main"}
SUMS = {
    "group": "main", "partition": 0, "lost": 0, "lost_new": 0, "lost_unlisted": 0, "missing": 0,
    "missing_unlisted": 0, "is_heard": True,
}  # fmt: skip


def status(**changes: Any) -> dict[str, Any]:
    """A pipeline in which all is well."""
    fine: dict[str, Any] = {
        "group": "main",
        "sums": [SUMS],
        "unanswered": {},
        "partitions": [OWNED],
        "collectors": [{"member": "c-0", "partitions": [{"partition": 0, "problem": None}]}],
        "shippers": [{"name": "s-0", "live": None, "ready": None, "unconfirmed_s": 1.0}],
        "conflicts": [],
        "lost": [],
        "missing": [],
        "deadLetterRoom": ROOM,
        "tables": [{**TABLE, "streams": [ROW]}],
        "readers": [],
        "trimming": {"above": 50, "skipTablesAbove": 80},
    }
    return fine | changes


def reader(*, age_s: float) -> dict[str, Any]:
    """A reader that missed messages twice, the last time so long ago."""
    at_ns = time.time_ns() - int(age_s * 1e9)
    ranges = [{"first": 5, "last": 8, "at_ns": 1}, {"first": 20, "last": 21, "at_ns": at_ns}]
    return {
        "name": "archive",
        "streams": [
            {"stream": "LP_0", "missedMessages": 6, "missed": ranges},
            {"stream": "LP_1", "missedMessages": 0, "missed": []},
        ],
    }


def gone(*, again_from: int) -> dict[str, Any]:
    """A partition whose folder was gone."""
    row = {"member": "c", "after": 4, "end": 9, "again_from": again_from}
    return {"partition": 0, "problem": None, "gone_folders": [row]}


def test_a_pipeline_that_works_has_no_problems() -> None:
    """Nothing to say, and exit 0."""
    assert list(problems(status())) == []


def test_a_volume_that_is_read_again_whole_is_no_problem() -> None:
    """It is told by the condition `Complete`, by a metric and in the log."""
    changes = {"collectors": [{"member": "c", "partitions": [gone(again_from=5)]}]}
    assert list(problems(status() | changes)) == []


def test_files_that_were_deleted_for_room_are_told_once_a_collector() -> None:
    """However many partitions it owns; the disk is one."""
    rows = [{"partition": n, "problem": None, "removed_for_room_bytes": 1024 * n} for n in range(3)]
    [told] = problems(status(collectors=[{"member": "c-0", "partitions": rows}]))
    assert told.startswith("c-0: 3.0 KiB of rotated files were deleted before their age")


def of_table(**row: Any) -> dict[str, Any]:
    """A table with one stream that is so."""
    return {"tables": [{**TABLE, "streams": [{**ROW, **row}]}]}


def test_a_table_that_holds_trimming_back_is_told_with_its_size_and_its_end() -> None:
    """By how much, what comes of it, and what to do: before anything of it is deleted."""
    held = status(**of_table(holds_back=True))
    waiting = held | {"trimming": {"above": 50, "skipTablesAbove": 100}}

    assert list(problems(held)) == [
        "table team/prod holds trimming back: LP_0 is 66 % full, and 2.0 KiB of it are not in the "
        "table yet; above 80 % they are deleted unread. Start its job, enlarge the streams "
        "(spec.stream.maxBytes), or keep no table (spec.table.enabled: false)"
    ]
    assert "shippers wait at 100 %" in "".join(problems(waiting))


def test_every_table_has_its_line_in_the_status() -> None:
    """How far it is, also one that has not begun."""
    fine, not_begun = status(), {**TABLE, "commit": -1, "missed_messages": 12}

    assert standing(fine) == [
        "table team/prod: commit 3, 7 lines; 9 messages, 2.0 KiB are not in it yet"
    ]
    assert standing(status(tables=[not_begun])) == [
        "table team/prod: not begun: its job has not reported progress; see the job's log; "
        "0 messages, 0 B are not in it yet; missed 12 messages"
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shippers": [{"name": "s", "unnamed_bytes": 5}]}, "s: 5 B are lost, and not listed"),
        ({"silent": ["shipper-web does not run"]}, "shipper-web does not run"),
        ({"partitions": [{"partition": 3, "is_there": False}]}, "partition 3 has no stream"),
        (
            {
                "partitions": [
                    {**OWNED, "partition": number, "replicas_behind": behind}
                    for number, behind in enumerate([("nats-1",), (), ("nats-1",)])
                ]
            },
            "nats-1 does not keep up with 2 of 3 log streams",
        ),
        (
            {"partitions": [{**OWNED, "partition": 3, "owner": None}]},
            "no collector owns partition 3",
        ),
        (
            {"collectors": [{"member": "c", "partitions": [{"partition": 0, "problem": "full"}]}]},
            "c: partition 0: full",
        ),
        (
            {"collectors": [{"member": "c", "partitions": [gone(again_from=0)]}]},
            "c: partition 0: the volume with messages 5 to 9 is gone, and they are not read again",
        ),
        (
            {"collectors": [{"member": "c", "partitions": [gone(again_from=8)]}]},
            "is gone; the stream no longer holds those up to 7, and the others are read again",
        ),
        (
            {
                "collectors": [
                    {
                        "member": "c",
                        "partitions": [{"partition": 0, "problem": None, "damaged_bytes": 2048}],
                    }
                ]
            },
            "c: partition 0: 2.0 KiB of its files were removed or damaged after they were written",
        ),
        (
            {
                "collectors": [
                    {
                        "member": "c",
                        "partitions": [
                            {"partition": 0, "problem": None, "snapshot_problem": "too slow"}
                        ],
                    }
                ]
            },
            "c: partition 0: too slow",
        ),
        (
            {
                "collectors": [
                    {
                        "member": "c",
                        "partitions": [{"partition": 0, "problem": None, "forgotten_sources": 7}],
                    }
                ]
            },
            "c: partition 0: 7 sources are forgotten, since a host has too many or too long names",
        ),
        (
            {
                "collectors": [
                    {
                        "member": "c",
                        "dead_letters_not_kept": [{"host": "h", "messages": 3, "bytes": 2048}],
                    }
                ]
            },
            "c: 3 messages of h (2.0 KiB) could be neither collected nor kept",
        ),
        ({"shippers": [{"name": "s", "ready": "not connected"}]}, "s: not connected"),
        ({"shippers": [{"name": "s", "unseen_generations": 3}]}, "at least 3 files"),
        (
            {
                "shippers": [
                    {
                        "name": "s",
                        "unreadable_total": 3,
                        "unreadable": [{"path": "/var/log/secret.log", "reason": "EACCES"}],
                    }
                ]
            },
            "s: cannot read /var/log/secret.log (permission denied: let the shipper's user read "
            "it) and 2 more",
        ),
        (
            {
                "shippers": [
                    {
                        "name": "s",
                        "unreadable_total": 1,
                        "unreadable": [{"path": "/var/log", "reason": "too-many-folders"}],
                    }
                ]
            },
            "s: cannot read /var/log (too many folders: new ones below it are not read",
        ),
        ({"shippers": [{"name": "s", "quarantined": 2}]}, "2 messages were refused"),
        ({"shippers": [{"name": "s", "refused_hosts": ["a b"]}]}, "the names of 1 hosts"),
        (
            {
                "shippers": [
                    {
                        "name": "s",
                        "unconfirmed_s": UNCONFIRMED_S_MAX + 1,
                        "on_the_way_bytes": 2048,
                    }
                ]
            },
            "no collector has confirmed 2.0 KiB for 601 s",
        ),
        ({"deadLetterRoom": {**ROOM, "messages": 4}}, "4 dead letters"),
        (
            {"tables": [{**TABLE, "problem": "no Delta"}]},
            "table team/prod: its job reports: no Delta",
        ),
        (
            of_table(passed=False, holds_back=True, missed=[{"first": 4, "last": 9}]),
            "table team/prod misses messages 4 to 9 of LP_0",
        ),
        (
            {"deadLetterRoom": {**ROOM, "messagesMax": 10**6, "bytes": 3072}},
            "75 % of the room for dead letters",
        ),
        ({"deadLetterRoom": {**ROOM, "bytes": 4000}}, "97 % of the room for dead letters"),
        (
            {
                "unanswered": {"stream LP_0": "no answer in 5 s"},
                "partitions": [{**OWNED, "owner": "", "is_known": False}],
            },
            "no server answers for the stream LP_0, and what it holds is not known (no answer in 5",
        ),
        (
            {"unanswered": {"stream LP_dead": "no answer in 5 s"}, "deadLetterRoom": None},
            "no server answers for the stream LP_dead",
        ),
        (
            {"deadLetterRoom": {**ROOM, "givenUpFull": [{"stream": "APP_0", "consumer": "audit"}]}},
            "consumer audit gives up more messages of APP_0 than are kept",
        ),
        # Sixty sources of one byte, of which collectors list fifty; and all of another partition.
        (
            {
                "sums": [
                    {**SUMS, "missing": 60, "missing_unlisted": 10},
                    {**SUMS, "partition": 1, "missing": 7, "missing_unlisted": 7},
                ]
            },
            "67 B did not arrive, and may still be sent again",
        ),
        (
            {
                "sums": [{**SUMS, "lost": 9000, "lost_new": 2048, "lost_unlisted": 2048}],
                "lost": [{**UNSEEN, "acknowledged": True}],
            },
            "2.0 KiB are lost that are not listed here: see `logpipeline losses`",
        ),
        (
            {"readers": [reader(age_s=3600)]},
            "reader archive missed 6 messages, the last of them 20 to 21 of LP_0",
        ),
        (
            {"lost": [UNSEEN, UNSEEN, {**UNSEEN, "acknowledged": True}]},
            "4.0 KiB are lost (expired)",
        ),
        (
            {"conflicts": [{"host": "h", "source": "/a", "shippers": ["s", "t"]}]},
            "s and t both ship /a of h",
        ),
    ],
)
def test_each_thing_that_is_wrong_is_said(changes: dict[str, Any], text: str) -> None:
    """In one sentence of its own."""
    (said,) = problems(status(**changes))

    assert text in said


def test_of_many_streams_that_no_server_answers_for_the_first_are_named() -> None:
    """A server that is away may have led hundreds."""
    silent = {f"stream LP_{number:02}": "no answer in 5 s" for number in range(12)}
    said = list(problems(status(unanswered=silent)))

    assert [each.split(",")[0] for each in said] == [
        *(f"no server answers for the stream LP_0{number}" for number in range(3)),
        "nor does one for 9 other streams",
    ]


def test_what_a_reader_missed_is_a_problem_for_a_day() -> None:
    """Nothing brings it back, so no one could end the problem."""
    assert list(problems(status(readers=[reader(age_s=25 * 3600)]))) == []


def test_the_status_says_what_is_wrong_without_being_asked() -> None:
    """A few sentences above the tables, and how many more there are."""
    shown = {
        "namespace": "team", "name": "prod", "server": "nats://here", "noTable": "",
        "partitions": [], "collectors": [], "shippers": [], "tables": [],
        "sums": [],
    }  # fmt: skip
    silent = [f"collector-{number} does not answer" for number in range(12)]

    assert "Problems" not in render(status(**shown))
    lines = render(status(**shown, silent=silent)).splitlines()

    begin = lines.index("Problems: 12")
    assert lines[begin + 1] == "* collector-0 does not answer"
    assert lines[begin + 10 : begin + 12] == [
        "* collector-9 does not answer",
        "and 2 more: see `status --check`",
    ]


def test_the_status_says_what_it_does_not_list() -> None:
    """And which rows are those of another group."""
    shown = {
        "namespace": "team", "name": "prod", "server": "nats://here", "readers": [], "noTable": "",
        "partitions": [], "collectors": [], "shippers": [], "tables": [],
        "sums": [{**SUMS, "missing": 60, "missing_unlisted": 10, "lost_unlisted": 2048}],
    }  # fmt: skip
    holes = [
        {
            "host": "h",
            "source": "/a",
            "bytes": 50,
            "toldBy": "collector",
            "group": group,
            "partition": 0,
        }
        for group in ("main", "audit")
    ]

    lines = render(status(**shown, missing=holes)).splitlines()

    begin = lines.index("HOST  SOURCE  MISSING BYTES")
    assert lines[begin + 1 : begin + 4] == [
        "h     /a      50",
        "h     /a      50             group audit",
        "and 10 B are missing of sources that are not listed",
    ]
    assert lines[-1] == "and 2.0 KiB are lost and not listed here"


def test_a_source_that_two_shippers_read_is_named() -> None:
    """Not one that only has the same path on another host."""
    one = {"name": "s", "sources": [{"host": "h", "source": "/a"}, {"host": "h", "source": "/b"}]}
    two = {"name": "t", "sources": [{"host": "h", "source": "/b"}, {"host": "i", "source": "/a"}]}

    assert conflicts([one, two]) == [{"host": "h", "source": "/b", "shippers": ["s", "t"]}]
