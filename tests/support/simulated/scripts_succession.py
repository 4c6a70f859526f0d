"""Scripts in which a partition passes from one owner to another."""

from __future__ import annotations

from simulated.stage import BATCH_BYTES, HOST, OTHER, OWNER, Scripts, Stage

SCRIPTS = Scripts()
play = SCRIPTS.add

# An owner is taken for dead when it was silent for ten seconds.
DEAD_S = 30.0
# Longer than the server remembers the ids of messages.
WINDOW_S = 130.0
TOLD_WITHIN_S = 5.0
# A replica lags for less.
LAG_S = 5.0


@play(
    "shippers_hear_nothing", "reports_show_no_gap", "nothing_is_learned_of_a_batch",
    "changes_are_not_committed", "snapshot_is_never_written", "commit_is_never_told",
    "state_is_committed_before_files_have_names", "acknowledgement_moves_nothing",
    "unsent_bytes_count_as_sent", "position_stays_behind", "reports_confirm_nothing",
    "budget_is_not_given_back", "unknown_swap_counts_as_not_written",
    logs=2,
)  # fmt: skip
async def nothing_happens(s: Stage) -> None:
    """Lines are written, and are collected and confirmed at once."""
    await s.begun()
    for _ in range(3):
        s.write(3, log=s.world.writers[1])
        await s.ship(5)
        await s.collected(TOLD_WITHIN_S)


@play(
    "partition_is_taken_at_once", "any_folder_is_ours", "owner_never_releases",
    "each_commit_is_late", "folder_is_always_current", "commit_is_never_told",
    "former_owners_are_forgotten", "snapshot_is_never_written",
)  # fmt: skip
async def given_away_and_back(s: Stage) -> None:
    """The partition goes to another collector and comes back, while lines are written."""
    await s.begun()
    await s.ship(5)
    await s.collected()
    s.give(OTHER)
    s.write(4)
    await s.owned_by(OTHER)
    await s.ship(3)
    await s.collected()
    s.give(OWNER)
    s.write(4)
    await s.owned_by(OWNER)
    await s.ship(3)
    await s.collected()


@play("lagging_replica_of_the_snapshots_is_believed")
async def snapshots_lag_while_it_is_given_away(s: Stage) -> None:
    """The last snapshot of the owner is not on a replica yet, and messages before it are trimmed:
    its successor has to wait for the snapshot.
    """
    await s.begun()
    await s.ship_each(3)
    await s.collected()
    await s.until(lambda: s.record.snapshot_at >= s.stream.last, "there is a snapshot of it")
    s.trim()
    s.lag(s.snapshots)
    await s.ship(4)
    await s.collected()
    s.give(OTHER)
    await s.sleep(LAG_S)
    s.keep_up(s.snapshots)
    await s.owned_by(OTHER)
    s.check(not s.record.begun_ns, "it knows the sources")
    await s.ship(4)
    await s.collected()


@play("lagging_replica_of_the_bucket_is_believed")
async def bucket_lags_while_an_owner_comes_back(s: Stage) -> None:
    """An owner dies between its commit and the record, and another one begins before that commit.
    When the first one is back, and is given nothing, it cannot see that yet.
    """
    s.explained.successions = True
    await s.begun()
    await s.ship(4)
    await s.collected()
    dead = s.trap(OWNER, "collector.before-swap", lambda: s.kill(OWNER))
    s.write(4)
    await s.sprung(dead)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    s.lag(s.bucket)
    await s.ship(4)
    await s.collected()
    s.start(OWNER)
    await s.sleep(LAG_S)
    s.keep_up(s.bucket)
    await s.sleep(LAG_S)
    found = await s.books()
    s.check(not found.wrong, f"what it wrote in vain is gone: {found.wrong[:3]}")


@play("owner_releases_before_it_commits")
async def given_away_before_a_commit(s: Stage) -> None:
    """An owner releases while it has read what it has not committed."""
    await s.begun()
    await s.ship()
    await s.collected()
    for _ in range(4):
        s.write(2)
        at = s.stream.last
        await s.until(lambda at=at: s.read_to() > at, "it is read")  # type: ignore[misc]
        s.give(OTHER)
        await s.owned_by(OTHER)
        await s.hand_over(OWNER)


@play("owner_is_never_silent", "former_owners_are_forgotten")
async def owner_dies(s: Stage) -> None:
    """An owner dies and stays away: another one takes over what it had."""
    s.explained.successions = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.kill(OWNER)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    await s.ship()
    await s.collected()


@play(
    "owner_is_not_fenced", "commit_is_not_taken_back", "foreign_record_counts_as_ours",
    "unknown_swap_counts_as_written", "unknown_swap_counts_as_not_written",
    "commit_is_never_late", "end_of_a_former_owner_is_unknown", "failed_commit_goes_on",
    "former_owners_are_forgotten", "commit_is_reported_before_it_is_made",
)  # fmt: skip
async def frozen_before_it_tells(s: Stage) -> None:
    """An owner stands still between its commit and the record, and goes on when another one has
    begun before that commit.
    """
    s.explained.successions = True
    await s.begun()
    await s.ship(4)
    await s.collected()
    frozen = s.trap(OWNER, "collector.before-swap", lambda: s.freeze(OWNER, DEAD_S))
    s.write(4)
    await s.sprung(frozen)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    await s.ship(4)
    await s.collected()
    await s.sleep(DEAD_S)
    await s.ship(4)
    await s.collected()
    found = await s.books()
    s.check(not found.wrong, f"what it wrote in vain is gone: {found.wrong[:3]}")
    await s.hand_over(OWNER)


@play("commit_is_reported_before_it_is_made")
async def fenced_when_the_tail_is_gone(s: Stage) -> None:
    """An owner that stands still before the record has read what the server loses meanwhile: it
    must not say that it has these lines.
    """
    s.explained.successions = s.explained.resends = s.world.may_be_late = True
    await s.begun()
    await s.ship(4)
    await s.collected()
    frozen = s.trap(OWNER, "collector.before-swap", lambda: s.freeze(OWNER, DEAD_S))
    s.write(4)
    await s.sprung(frozen)
    s.kill(HOST)
    s.lose_tail(1)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    await s.sleep(DEAD_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play("unknown_swap_counts_as_not_written")
async def answer_to_a_swap_is_lost(s: Stage) -> None:
    """The server writes the record, and its answer does not arrive."""
    await s.begun()
    await s.ship()
    await s.collected()
    deaf = s.trap(OWNER, "collector.before-swap", lambda: s.deafen(OWNER))
    s.write(3)
    await s.sprung(deaf)
    await s.sleep(7.0)
    s.hear(OWNER)
    await s.ship()
    await s.collected()


@play("older_assignment_takes_as_well")
async def older_assignment_is_no_claim(s: Stage) -> None:
    """The bucket shows an assignment once more that a later one has followed, and the partition is
    released: nobody takes it.
    """
    await s.begun()
    await s.ship()
    await s.collected()
    await s.hand_over(OTHER)
    await s.ship()
    await s.collected()
    s.give()
    await s.until(lambda: s.record.released, "it is released")
    s.world.assign([OWNER], generation=1)
    await s.sleep(15.0)
    s.check(s.record.owner == OTHER, "nobody took it")
    s.give(OWNER)


@play("failed_commit_goes_on")
async def disk_of_an_owner_fails(s: Stage) -> None:
    """A disk fails to sync: the collector ends, and its successor reads again."""
    await s.begun()
    await s.ship()
    await s.collected()
    s.world.disk.failing.add(OWNER)
    s.write(3)
    await s.until(lambda: s.world.loop.is_dead(OWNER), "it ends")
    await s.ship()
    await s.collected()


@play("nothing_is_discarded_when_fenced", logs=2)
async def ends_with_a_full_disk(s: Stage) -> None:
    """A collector that cannot commit, because there is no room for a new file, ends: what it wrote
    and did not commit is in its files no more, since another one writes it.
    """
    s.explained.successions = True
    await s.begun()
    await s.ship()
    await s.collected()
    full = s.trap(OWNER, "collector.after-write", lambda: s.world.disk.full.add(OWNER))
    s.write(3)
    s.write(3, log=s.world.writers[1])
    await s.sprung(full)
    await s.stop(OWNER)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    await s.ship()
    await s.collected()
    found = await s.books()
    s.check(not found.wrong, f"the books balance without it: {found.wrong[:3]}")


@play("successor_takes_no_sources", "snapshot_is_empty", "learned_batches_are_forgotten")
async def sent_again_after_a_release(s: Stage) -> None:
    """What a former owner has collected comes once more, when the server knows its id no more."""
    await s.begun()
    await s.ship()
    await s.collected()
    kept = s.trap(HOST, "shipper.after-send", lambda: s.kill(HOST))
    s.write(5)
    await s.sprung(kept)
    await s.until(lambda: s.record.position.sequence == s.stream.last, "all is committed")
    await s.hand_over(OTHER)
    await s.sleep(WINDOW_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play("successor_learns_nothing_from_headers", "learned_batches_are_forgotten")
async def sent_again_after_a_death(s: Stage) -> None:
    """What a dead owner collected after its last snapshot comes once more."""
    s.explained.successions = True
    await s.begun()
    await s.ship()
    await s.collected()
    await s.until(lambda: s.record.snapshot_at == s.stream.last, "there is a snapshot")
    kept = s.trap(HOST, "shipper.after-send", lambda: s.kill(HOST))
    s.write(5)
    await s.sprung(kept)
    await s.until(lambda: s.record.position.sequence == s.stream.last, "all is committed")
    s.kill(OWNER)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    await s.sleep(WINDOW_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play(
    "snapshot_is_not_taken_over", "snapshot_is_empty", "snapshot_is_never_written",
    "successor_takes_no_sources",
)  # fmt: skip
async def trimmed_before_a_take_over(s: Stage) -> None:
    """What an owner has collected is trimmed; its successor knows it from the snapshot alone."""
    await s.begun()
    await s.ship()
    await s.collected()
    kept = s.trap(HOST, "shipper.after-send", lambda: s.kill(HOST))
    s.write(5)
    await s.sprung(kept)
    await s.until(lambda: s.record.snapshot_at == s.stream.last, "there is a snapshot")
    s.trim()
    await s.hand_over(OTHER)
    await s.sleep(WINDOW_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play("former_owners_are_forgotten")
async def folder_of_an_owner_is_gone(s: Stage) -> None:
    """A collector that took over comes back with an empty volume: what it had is read again."""
    await s.begun()
    await s.ship_each(3, 2)
    await s.collected()
    await s.hand_over(OTHER)
    await s.ship_each(3, 2)
    await s.collected()
    s.explained.successions = s.explained.warnings = True
    s.kill(OTHER)
    s.world.wipe(OTHER)
    epoch = s.record.epoch
    s.start(OTHER)
    await s.until(lambda: s.record.epoch > epoch, "it takes over again")
    await s.ship()
    await s.collected()


@play("predecessors_consumers_stay")
async def connections_break_often(s: Stage) -> None:
    """Each new connection has a new consumer, and the former ones go."""
    await s.begun()
    for _ in range(4):
        await s.ship(2)
        s.world.server.disconnect_all("server restarted")
        await s.sleep(3.0)
    await s.ship(2, log=s.log)
    await s.collected()


@play("partition_is_taken_at_once", batch_bytes=BATCH_BYTES)
async def given_to_and_fro(s: Stage) -> None:
    """The partition changes its owner again and again, while many small batches come."""
    await s.begun()
    for name in (OTHER, OWNER, OTHER, OWNER):
        s.write(40)
        await s.hand_over(name)
    await s.acknowledged()
    await s.collected()


@play()
async def successor_may_not_create_a_consumer(s: Stage) -> None:
    """It has no right to read what it takes over: nothing is collected until it is given that."""
    # Meanwhile shippers hear of no one who has their lines.
    s.explained.resends = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.world.network.unable.add(OTHER)
    s.give(OTHER)
    await s.ship()
    await s.sleep(20.0)
    before = s.record.position.sequence
    s.check(before < s.stream.last, "what it may not read is not collected")
    s.world.network.unable.discard(OTHER)
    s.world.network.forget(s.world.loop.pid_of(OTHER))
    await s.collected()


@play()
async def owner_may_not_write_its_record(s: Stage) -> None:
    """It commits in its folder alone, and shippers hear of that only when the record has it."""
    await s.begun()
    await s.ship()
    await s.collected()
    before = s.record.position.sequence
    s.world.network.denied.add(OWNER)
    await s.ship()
    await s.sleep(20.0)
    s.check(s.record.position.sequence == before, "the record stays where it was")
    s.world.network.denied.discard(OWNER)
    s.world.network.forget(s.world.loop.pid_of(OWNER))
    await s.collected()
