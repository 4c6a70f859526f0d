"""All sources of a shipper: made when they are found, woken when they grow, removed when they are
gone.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from logpipeline.partition import partition_of
from logpipeline.records import Committed, Named, Progress
from logpipeline.subjects import BadHost, Subjects
from logpipeline_shipper.absence import Absence, absence_of
from logpipeline_shipper.account import ROLLED_BACK, Account, Gap, admit
from logpipeline_shipper.checkpoint import Key, SourceRecord, State, bounded, encode_row
from logpipeline_shipper.file_owners import FileOwners
from logpipeline_shipper.files.chain import Chain, ReadFrom
from logpipeline_shipper.files.generations import may_have_unread, saved_identities
from logpipeline_shipper.files.limits import ReadLimits
from logpipeline_shipper.files.listing import (
    HostSources,
    Listing,
    ScanWatermark,
    SourceId,
    SourceWatermark,
    id_of,
)
from logpipeline_shipper.files.open_file import files_now_ns
from logpipeline_shipper.files.source_filter import Ship
from logpipeline_shipper.message import MessageBuilder
from logpipeline_shipper.shared import Shared
from logpipeline_shipper.source import Source

Known = dict[str, list[Committed]]

log = logging.getLogger(__name__)

# How often sources that have something to do, or were active a moment ago, are looked at.
TICK_S = 1.0
WARM_S = 10.0
REFUSED_HOSTS_MAX = 1000
# A file that so many scans did not see is gone: its unread bytes are lost.
SCANS_UNTIL_GONE = 5
# The counters of chains, and what is logged when one rises.
COUNTERS = {
    "missing_bytes": "bytes vanished before they were read",
    "unseen_generations": "files were deleted before their end was seen; at least so many",
    "restarts": "another file is at the path of the known one; it is read from its beginning",
    "long_lines": "lines were cut into pieces because of their length",
    "hole_bytes": "a file begins with NULs, as a truncation leaves them; they are left out",
    "truncations": "a file was truncated while it was read",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of every source of the shipper, whose files are at the places of *hosts*."""

    subjects: Subjects
    installation: str
    cluster: str
    read_from: ReadFrom
    limits: ReadLimits
    watermark: ScanWatermark
    is_compressing: bool
    hosts: tuple[HostSources, ...]


class SourceManager:
    """The sources by key. *on_host* is called for each host when its first source appears. With
    *needs_recall* the sources of a host wait for a call of `recalled` with what collectors have.
    """

    def __init__(
        self,
        options: SourceOptions,
        shared: Shared,
        state: State,
        on_host: Callable[[str], None],
        *,
        needs_recall: bool = False,
    ) -> None:
        self.sources: dict[Key, Source] = {}
        self.hosts: dict[str, str] = {}
        self.refused_hosts: set[str] = set()
        self.counts: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        # Folders that could not be read when they were looked into last, with the reason.
        self._unread_folders: dict[Path, str] = {}
        self.descriptors = options.limits.descriptors
        self._options = options
        self._shared = shared
        self._on_host = on_host
        # Which containers are not shipped, as was decided since the process began.
        self.is_skipped: Callable[[SourceId], bool] = lambda id: False
        self._is_in_doubt = not state.is_complete
        # Nothing may be left out of what came later, while a shipper ran or was down. Nor after a
        # lost checkpoint: the lines written since are in the files.
        self._read_from: ReadFrom = options.read_from if state.is_first else "beginning"
        self._at_first_start: set[Key] = set()
        self.needs_recall = needs_recall
        self._owners = FileOwners(
            self._chain_of, self._is_expected, shared.clock, options.watermark
        )
        self._own: dict[Key, Listing] = {}
        self._held: dict[Key, tuple[Listing, Ship]] = {}
        self._recalled: dict[str, Known] = {}
        # What collectors have of former processes stood in files by then. Nothing is left out of
        # files that were made later.
        self._began_ns = files_now_ns()
        self._awaiting: dict[Key, tuple[Listing, Ship]] = {}
        self.groups: dict[str, dict[str, int]] = dict(state.groups)
        self.unseen = state.unseen
        self._records = dict(state.sources)
        hosts = {each.host for each in options.hosts}
        is_any_host = any(each.hosts_below is not None for each in options.hosts)
        for key, record in self._records.items():
            record.account.groups = self.groups.setdefault(key.host, {})
            # Nothing is claimed of a host that is not shipped any more: this machine was renamed,
            # or made from the image of that one. Under its name readers would take the bytes for
            # those that it has at the same place.
            if key.host in hosts or is_any_host:
                self._owners.claim(key, saved_identities(record.saved, record.births))
        self._warm: set[Key] = set()
        self._is_ending = False
        # Until all folders were scanned, a source without a file is not gone: the scan takes long
        # if the machine is busy, or the API server is asked about pods.
        self._is_scanned = self._is_all_seen = False
        self._absent_wait_s = SCANS_UNTIL_GONE * options.limits.grace_s
        self._absent_until_s = math.inf
        self._absent = set(self._records)

    def note_scanned(self) -> None:
        """Note that each folder was scanned, and that each source there was decided on."""
        if not self._is_scanned:
            self._is_scanned = True
            self._absent_until_s = self._shared.clock() + self._absent_wait_s

    def update(self, listing: Listing, how: Ship) -> None:
        """Take the files of one source, which is to be shipped as *how* says."""
        key = Key(listing.id.host, listing.id.source)
        if self._read_from != "beginning" and self._was_there(listing):
            self._at_first_start.add(key)
        if listing.id.format == "plain":
            self._held.pop(key, None)
            found = self._owners.sort(key, listing)
            if found.is_held:
                self._held[key] = (listing, how)
            if found.listing.files:
                self._own[key] = found.listing
            else:
                self._own.pop(key, None)
            for other in found.changed:
                self._relist(other, how)
            listing = self._owners.with_lent(key, found.listing)
        self._update(key, listing, how)

    def _was_there(self, listing: Listing) -> bool:
        """Return whether files of *listing* were there when the process began."""
        # The first scan may wait for the API server: containers start meanwhile.
        is_old = any(file.born_ns < self._began_ns for file in listing.files)
        return is_old and not self._is_scanned

    def _relist(self, key: Key, how: Ship) -> None:
        """Update the source *key* with the files that it has now, under whatever names."""
        id = SourceId(host=key.host, source=key.source, format="plain")
        own = self._own.get(key, Listing(id, ()))
        self._update(key, self._owners.with_lent(key, own), how)

    def _chain_of(self, key: Key) -> Chain | None:
        source = self.sources.get(key)
        return source.chain if source is not None and source.id.format == "plain" else None

    def _is_expected(self, key: Key) -> bool:
        """Return whether files of the former process's source *key* may still be found."""
        return not self._is_all_seen and key in self._records

    def _update(self, key: Key, listing: Listing, how: Ship) -> None:
        source = self.sources.get(key)
        if source is None:
            if not listing.files or not self._is_allowed(key.host):
                self._awaiting.pop(key, None)
                return
            if self.needs_recall and key.host not in self._recalled:
                self._awaiting[key] = (listing, how)
                return
            source = self.sources[key] = self._made(listing.id, key)
            self._shared.changed()
        self._warm.add(key)
        source.is_wanted = True
        source.change(how)
        source.list(listing)
        if source.id.format == "plain":
            self._owners.claim(key, source.identities())

    def recalled(self, host: str, known: Known) -> None:
        """Begin with the sources of *host*, of which collectors have *known*."""
        self._recalled[host] = known
        for key in [key for key in self._awaiting if key.host == host]:
            self.update(*self._awaiting.pop(key))

    def stop(self, id: SourceId) -> None:
        """Read no more of a source; what was read is sent, and its position is kept."""
        key = Key(id.host, id.source)
        self._awaiting.pop(key, None)
        source = self.sources.get(key)
        if source is not None:
            source.is_wanted = False
            self._warm.add(key)

    def hint(self, id: SourceId) -> None:
        """Wake a source that was just written to."""
        key = Key(id.host, id.source)
        source = self.sources.get(key)
        if source is not None:
            self._warm.add(key)
            source.wake()

    def end(self) -> None:
        """Note that nothing more is written: all files are read to their last byte."""
        self._is_ending = True
        self._owners.end()
        # Held files are decided on afterwards, by chains that wait for no file any more.
        for source in self.sources.values():
            source.chain.end()
        self._decide_on_held()
        for key, source in self.sources.items():
            self._warm.add(key)
            source.wake()

    def _decide_on_held(self) -> None:
        """Look again whose the held files are: the oldest first, since others wait for it."""

        def age(held: tuple[Listing, Ship]) -> int:
            return min(file.mtime_ns for file in held[0].files)

        for listing, how in sorted(self._held.values(), key=age):
            self.update(listing, how)

    def is_level(self) -> bool:
        """Return whether all known bytes are acknowledged."""
        sources = self.sources.values()
        is_busy = any(source.is_running or source.chain.backlog_bytes() for source in sources)
        return not is_busy and not self._awaiting

    def tick(self) -> None:
        """Do what is due without an event: retries, ends of files, idle files."""
        now_s = self._shared.clock()
        self._decide_on_held()
        if self._absent_until_s <= self._options.watermark.at(now_s):
            self._absent_until_s = math.inf
            self._is_all_seen = True
            self._give_up_absent()
        for key in list(self._warm):
            source = self.sources[key]
            self._count(source)
            if source.is_running:
                continue
            if source.has_debts:
                source.wake()
            elif source.chain.is_finished() or (not source.is_wanted and source.account.is_settled):
                self._remove(key, source)
            elif source.chain.backlog_bytes() or source.chain.may_go_on_alone():
                source.wake()
            elif now_s - source.active_s >= WARM_S:
                source.close_idle()
                self._count(source)
                self._warm.discard(key)

    def _give_up_absent(self) -> None:
        """Give up the files that the former process knew, and that were not found; not those that
        are there all the same.
        """
        absent, self._absent = self._absent, set()
        for key in absent & self._records.keys():
            record = self._records[key]
            has_debts = record.account.has_debts
            if not has_debts and not may_have_unread(record.saved, record.births):
                continue
            found = self._absence(key, record)
            if found is Absence.UNREADABLE:
                self._absent.add(key)
                continue
            is_gone = found is Absence.GONE
            source = self._revive(key) if is_gone or has_debts else None
            if source is None:
                continue
            # Of what is left out only that is settled which was sent before.
            source.is_wanted = is_gone
            if is_gone:
                source.list(Listing(source.id, ()))

    def _absence(self, key: Key, record: SourceRecord) -> Absence:
        id = id_of(key.host, key.source)
        if self.is_skipped(id):
            return Absence.LEFT_OUT
        known = saved_identities(record.saved, record.births)
        return absence_of(id, known, self._options.hosts, self._unread_folders)

    def rows(self) -> list[str]:
        """Return the rows to save, of all sources: also of those that are gone."""
        now_s = time.time()
        # What a chain gave up is counted in the state in which it is given up.
        for key in self._warm:
            self._count(self.sources[key])
        for key, record in self._records.items():
            if record.absent_since_s is None and key not in self._absent:
                self._records[key] = replace(record, absent_since_s=now_s)
        self._records = bounded(self._records, now_s)
        self._owners.keep_only(self.sources.keys() | self._records.keys())
        absent = [encode_row(key, record) for key, record in self._records.items()]
        return absent + [source.row() for source in self.sources.values()]

    def backlog_bytes(self) -> int:
        """Return how many bytes of all sources wait in files."""
        return sum(self.sources[key].chain.backlog_bytes() for key in self._warm)

    def note_folder(self, path: Path, reason: str) -> None:
        """Note that the folder *path* cannot be read, and its files are not known; without a
        *reason*, that it is read again or gone.
        """
        if reason:
            self._unread_folders[path] = reason
        elif self._unread_folders.pop(path, None) and self._is_all_seen and self._absent:
            # It was not known what is there: as at the start, its files may be found now.
            self._absent_until_s = self._shared.clock() + self._absent_wait_s

    def failing(self) -> dict[Path, str]:
        """Return the files and folders that cannot be read now, each with the reason."""
        found = dict(self._unread_folders)
        for key in self._warm:
            found.update(self.sources[key].chain.failing())
        return found

    def backlogs(self) -> dict[str, tuple[int, float]]:
        """Return for each host how many bytes wait, and for how long some have waited."""
        now_s = self._shared.clock()
        totals = dict.fromkeys(self.hosts, (0, 0.0))
        for key in self._warm:
            source, (size, seconds) = self.sources[key], totals[key.host]
            since_s = now_s if source.behind_since_s is None else source.behind_since_s
            totals[key.host] = (size + source.chain.backlog_bytes(), max(seconds, now_s - since_s))
        return totals

    def confirm(self, key: Key, committed: Committed, group: str) -> Sequence[Gap]:
        """Note how far *group* has collected a source, and return the holes that it reports."""
        source = self.sources.get(key)
        if source is not None:
            return source.confirm(group, committed)
        record = self._records.get(key)
        return record.account.confirm(group, committed) if record is not None else []

    def admit(self, host: str, progress: Progress) -> None:
        """Note that the group of *progress*, an answer about *host*, is to have all that is sent of
        it.
        """
        admit(self.groups.setdefault(host, {}), progress)

    def forget_group(self, host: str, group: str) -> bool:
        """Wait no longer for *group* to have what is sent of *host*; return whether it is still
        waited for because of another host.
        """
        self.groups.get(host, {}).pop(group, None)
        for key, source in self.sources.items():
            if key.host == host:
                source.forget_group(group)
        for key, record in self._records.items():
            if key.host == host:
                record.account.forget_group(group)
        self._shared.changed()
        return any(group in groups for groups in self.groups.values())

    def answer(
        self, key: Key, progress: Progress, known: Mapping[str, Committed | None]
    ) -> Sequence[Gap]:
        """Note what a group has of the generations of a source that it was asked for, None for
        nothing; return the gaps: what it must have read, and does not have.
        """
        source = self.sources.get(key)
        if source is not None:
            return source.answer(progress, known)
        record = self._records.get(key)
        if record is None:
            return []
        return record.account.answer(progress, known, self._shared.clock())

    def unconfirmed(self, host: str) -> list[Named]:
        """Return the generations of *host* of which something was sent that not every group has
        confirmed.
        """
        return [
            Named(key.source, generation)
            for key, account in self._accounts()
            if key.host == host
            for generation in account.unconfirmed()
        ]

    def owe(self, key: Key, gap: Gap) -> None:
        """Send the bytes of *gap* again."""
        if (source := self._found(key)) is not None:
            source.owe(gap)

    def lose(self, key: Key, gap: Gap) -> None:
        """Name the bytes of *gap* as lost: nothing helps."""
        if (source := self._found(key)) is not None:
            source.lose(gap)

    def _found(self, key: Key) -> Source | None:
        """Return the source *key*, which then has something to do."""
        source = self.sources.get(key) or self._revive(key)
        if source is not None:
            self._warm.add(key)
        return source

    def unreported(self, patience_s: float) -> set[str]:
        """Return the hosts of which something is unconfirmed for *patience_s*, and of which no
        collector has reported for *patience_s*.
        """
        before_s = self._shared.clock() - patience_s
        return {
            key.host
            for key, account in self._accounts()
            if account.answered_s < before_s and account.waits_since_s() < before_s
        }

    def unconfirmed_s(self) -> float:
        """Return for how long the oldest sent bytes have not been confirmed by every group."""
        now_s = self._shared.clock()
        since_s = min((account.waits_since_s() for _, account in self._accounts()), default=now_s)
        return round(max(0.0, now_s - since_s), 3)

    def on_the_way_bytes(self) -> int:
        """Return how many sent bytes of all sources are not confirmed by every group."""
        return sum(account.on_the_way for _, account in self._accounts())

    def to_be_named_bytes(self) -> int:
        """Return how many bytes are lost and not yet reported to collectors."""
        return sum(account.to_be_named for _, account in self._accounts())

    def _accounts(self) -> Iterator[tuple[Key, Account]]:
        yield from ((key, source.account) for key, source in self.sources.items())
        yield from ((key, record.account) for key, record in self._records.items())

    def _revive(self, key: Key) -> Source | None:
        """Return a source that is gone, made once more to report its losses."""
        if not self._is_all_seen or not self._is_allowed(key.host):
            return None  # collectors report it again
        source = self.sources[key] = self._made(id_of(key.host, key.source), key)
        self._warm.add(key)
        return source

    def doubt_partition(self, partition: int) -> None:
        """Send the unconfirmed bytes of *partition* again: its stream went back."""
        self._doubt_stream(lambda key: self._partition(key) == partition)

    def doubt_stream(self, subjects: set[str]) -> None:
        """Send the unconfirmed bytes of *subjects* again: their stream went back."""
        self._doubt_stream(lambda key: self._options.subjects.of_host(key.host) in subjects)

    def doubt_subjects(self, subjects: set[str], cause: str) -> int:
        """Send again what is not confirmed of *subjects*; return how many sources that concerns."""
        return self._doubt(lambda key: self._options.subjects.of_host(key.host) in subjects, cause)

    def _doubt(self, is_concerned: Callable[[Key], bool], cause: str) -> int:
        sources = [source for key, source in self.sources.items() if is_concerned(key)]
        count = sum([source.doubt(cause) for source in sources])
        records = [record for key, record in self._records.items() if is_concerned(key)]
        return count + sum([record.account.doubt(cause) for record in records])

    def _doubt_stream(self, is_concerned: Callable[[Key], bool]) -> None:
        self._doubt(is_concerned, ROLLED_BACK)
        for key, account in self._accounts():
            if is_concerned(key):
                account.forget_begun()

    def _partition(self, key: Key) -> int:
        return partition_of(key.host, self._options.subjects.partitions)

    def release(self) -> None:
        """Close every file."""
        for source in self.sources.values():
            source.chain.release()

    def _count(self, source: Source) -> None:
        """Add what the chain counted since the last time: a sum over 10,000 takes too long."""
        for reason, count in source.chain.unreadable.items():
            if more := source.count(reason, count):
                self.unreadable[reason] += more
                fields = {**source.key._asdict(), "reason": reason}
                log.warning("a file cannot be read; it is tried again", extra=fields)
        for counter, what in COUNTERS.items():
            if more := source.count(counter, getattr(source.chain, counter)):
                self.counts[counter] += more
                if counter == "unseen_generations":
                    self.unseen = self.unseen.more(more, time.time())
                    self._shared.changed()
                log.warning(what, extra={**source.key._asdict(), counter: more})

    def _is_allowed(self, host: str) -> bool:
        if host in self.hosts:
            return True
        if host in self.refused_hosts:
            return False
        try:
            self.hosts[host] = self._options.subjects.of_host(host)
        except BadHost as error:
            if len(self.refused_hosts) < REFUSED_HOSTS_MAX:
                self.refused_hosts.add(host)
                log.error("the sources of a host are refused", extra={"reason": str(error)})
            return False
        self._on_host(host)
        return True

    def _made(self, id: SourceId, key: Key) -> Source:
        options = self._options
        groups = self.groups.setdefault(key.host, {})
        record = self._records.pop(key, None) or SourceRecord(account=Account(groups))
        known = self._recalled.get(key.host, {}).pop(key.source, [])
        is_new = record.saved is None and not record.births and not known
        leaves_out = is_new and key in self._at_first_start
        self._at_first_start.discard(key)
        chain = Chain(
            id,
            saved=record.saved,
            # A source with an intent was read before: it must not begin at the end of its file.
            read_from=self._read_from if leaves_out else "beginning",
            limits=options.limits,
            watermark=SourceWatermark(
                options.watermark, lambda: self._owners.undecided_since_s(key)
            ),
            redactor=self._shared.redactor,
        )
        for birth in record.births:
            chain.remember(birth)
        for each in known:
            # Its birth could not be saved on a full disk; or the checkpoint was lost.
            if chain.recall(each, self._began_ns):
                record.account.recall(each, self._shared.clock())
        for intent in record.intents:
            chain.was_sent(intent.generation, intent.end, intent.after)
        if self._is_ending:
            chain.end()
        builder = MessageBuilder(
            id,
            subject=self.hosts[id.host],
            installation=options.installation,
            cluster=options.cluster,
            is_compressing=options.is_compressing,
            is_line=self._shared.options.message == "line",
        )
        return Source(id, chain, builder, self._shared, record, is_in_doubt=self._is_in_doubt)

    def _remove(self, key: Key, source: Source) -> None:
        record = source.record()
        self._count(source)
        source.chain.release()
        self._records[key] = replace(record, absent_since_s=time.time())
        del self.sources[key]
        self._warm.discard(key)
        self._shared.changed()
