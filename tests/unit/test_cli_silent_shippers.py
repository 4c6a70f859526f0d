"""What a shipper said before it fell silent is not shown as if it were so now."""

from __future__ import annotations

from typing import Any

from components.watched_status import shipper, source, status, watched
from logpipeline_cli.console.answers import life_json
from logpipeline_cli.watching.columns import HOSTS, SHIPPERS, SOURCES, Tone
from logpipeline_cli.watching.life import life_of
from logpipeline_cli.watching.rows import View
from logpipeline_cli.watching.screen import life_text
from logpipeline_cli.watching.watch import SOURCES_MAX

SILENT = status(shippers=[])


def silent_view(**fields: Any) -> View:
    """A view after a shipper of one source has not answered for nine seconds."""
    return watched(status(shippers=[shipper(source(**fields))]), *[SILENT] * 9)


def test_the_waiting_of_a_silent_shippers_source_grows() -> None:
    """Its files may grow, and nothing of them is shipped."""
    for fields, at_most_s in (({}, 9.0), ({"backlog_bytes": 5, "waiting_s": 0.4}, 9.4)):
        view = silent_view(**fields)

        for table in (SOURCES, HOSTS, SHIPPERS):
            [row] = table.rows(view)
            assert row.waiting_s == at_most_s
            assert table.tone(row) is Tone.BAD


def test_an_answer_that_comes_late_once_makes_no_source_late() -> None:
    """It is silent after five seconds."""
    view = watched(status(), SILENT, SILENT)

    assert view.sources[0].waiting_s == 0.0
    assert {SOURCES.tone(view.sources[0]), HOSTS.tone(view.hosts[0])} == {Tone.PLAIN}


def test_what_was_written_during_a_silence_is_as_old_as_that() -> None:
    """The last answer before it is the last moment when no more bytes were there."""
    back = source(acked_bytes=10, backlog_bytes=50, waiting_s=500.0)
    rest = [source(path=f"/{at}", backlog_bytes=10**6) for at in range(SOURCES_MAX)]
    for others in ([], rest):
        before = status(shippers=[shipper(source(acked_bytes=10), *others)])
        after = status(shippers=[shipper(back, *others)])

        view = watched(before, *[SILENT] * 8, after)

        [host] = [row for row in view.hosts if row.host == "web1"]
        assert host.waiting_s == 9.0


def test_the_page_of_a_source_says_that_its_shipper_is_silent() -> None:
    """Beside the numbers, which are its last ones."""
    silent, fine = (
        life_of(view, [], host="web1", source="/var/log/app.log", partitions=1)
        for view in (silent_view(), watched(status()))
    )

    told = "its shipper has not answered for 9.0 s: what it ships is as it said then"
    assert told in life_text(silent).plain
    assert life_json(silent)["silent"] == told
    assert "not answered" not in life_text(fine).plain
    assert life_json(fine)["silent"] == ""
