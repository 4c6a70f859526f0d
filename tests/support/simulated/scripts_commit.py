"""Scripts in which an owner, or its disk, stops in the middle of a commit, or its stream changes
while it reads.
"""

from __future__ import annotations

from simulated.stage import BATCH_BYTES, HOST, OTHER, OWNER, Scripts, Stage

SCRIPTS = Scripts()
play = SCRIPTS.add

DEAD_S = 30.0


@play("same_epoch_follows_the_record", "every_byte_is_new")
async def killed_before_it_tells(s: Stage) -> None:
    """An owner dies between its commit and the record, and comes back."""
    await s.begun()
    await s.ship()
    await s.collected()
    dead = s.trap(OWNER, "collector.before-swap", lambda: s.kill(OWNER))
    s.write(4)
    await s.sprung(dead)
    s.explained.successions = True
    s.start(OWNER)
    await s.owned_by(OWNER)
    await s.ship()
    await s.collected()


@play("record_before_files")
async def killed_before_files_are_written(s: Stage) -> None:
    """An owner dies at the begin of a commit, and another one takes over."""
    await s.begun()
    await s.ship()
    await s.collected()
    dead = s.trap(OWNER, "collector.after-write", lambda: s.kill(OWNER))
    s.write(4)
    await s.sprung(dead)
    s.explained.successions = True
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    await s.ship()
    await s.collected()


@play("files_are_not_cut_to_what_is_committed")
async def killed_with_lines_uncommitted(s: Stage) -> None:
    """An owner dies when lines are in its files that it did not commit."""
    await s.begun()
    await s.ship()
    await s.collected()
    s.explained.successions = True
    for place in ("collector.after-write", "collector.after-fsync"):
        dead = s.trap(OWNER, place, lambda: s.kill(OWNER))
        s.write(4)
        await s.sprung(dead)
        s.start(OWNER)
        await s.owned_by(OWNER)
        await s.collected()


@play("files_are_not_cut_to_what_is_committed", "scratch_files_stay", logs=2)
async def succeeded_with_lines_uncommitted(s: Stage) -> None:
    """The same, and another one has taken over when it comes back."""
    await s.begun()
    await s.ship()
    await s.collected()
    s.explained.successions = True
    dead = s.trap(OWNER, "collector.after-write", lambda: s.kill(OWNER))
    s.write(4)
    s.write(4, log=s.world.writers[1])
    await s.sprung(dead)
    s.give(OTHER)
    await s.owned_by(OTHER, DEAD_S)
    s.start(OWNER)
    await s.ship()
    await s.collected()


@play("scratch_files_stay", logs=3)
async def killed_with_new_files(s: Stage) -> None:
    """An owner dies when it has begun files that have no name yet, or have just got one."""
    await s.begun()
    s.explained.successions = True
    places = ("collector.after-write", "files.new-announced", "files.new-named")
    for place, log in zip(places, s.world.writers, strict=True):
        dead = s.trap(OWNER, place, lambda: s.kill(OWNER))
        s.write(4, log=log)
        await s.sprung(dead)
        s.start(OWNER)
        await s.owned_by(OWNER)
        await s.acknowledged()
        await s.collected()


@play("files_are_not_synced")
async def power_of_an_owner_is_cut(s: Stage) -> None:
    """An owner's machine loses its power when the record says that lines are committed."""
    await s.begun()
    s.explained.successions = True
    for _ in range(3):
        off = s.trap(OWNER, "collector.after-swap", lambda: s.world.power_off(OWNER))
        s.write(9)
        await s.sprung(off)
        s.start(OWNER)
        await s.owned_by(OWNER)
        await s.collected()


@play("gaps_in_deliveries_are_not_seen")
async def deliveries_are_lost(s: Stage) -> None:
    """A batch does not arrive at the owner, and the next one does."""
    await s.begun()
    await s.ship()
    await s.collected()
    for _ in range(3):
        s.deafen(OWNER)
        await s.ship(2)
        s.hear(OWNER)
        await s.ship(2)
        await s.collected()


@play("stuck_consumer_is_waited_for")
async def consumer_is_stuck(s: Stage) -> None:
    """A consumer gives nothing any more."""
    await s.begun()
    await s.ship()
    await s.collected()
    for consumer in s.stream.consumers.values():
        consumer.is_stuck = True
    s.write(3)
    await s.acknowledged()
    await s.collected(20.0)


@play("roll_back_reads_from_the_end", "rolled_back_stream_is_read_on")
async def tail_is_lost_after_it_was_collected(s: Stage) -> None:
    """The server loses what was collected, and younger lines take the sequences before the owner
    looks.
    """
    await s.begun()
    await s.ship_each(4)
    await s.collected()
    s.freeze(OWNER, 12.0)
    s.lose_tail(3)
    await s.ship_each(2)
    await s.collected()


@play(
    "commit_in_the_midst_of_a_second_reading", "roll_back_reads_from_the_end",
    "repeats_are_not_looked_for",
    batch_bytes=BATCH_BYTES,
)  # fmt: skip
async def killed_while_it_reads_again(s: Stage) -> None:
    """A stream loses its last messages, an owner reads those of its last commit again, and dies
    before it is through.
    """
    await s.begun()
    await s.ship()
    await s.collected()
    # Many batches in one commit: the last mark that the stream will still have is before them.
    s.write(110)
    await s.acknowledged()
    await s.collected()
    s.stream.stuck_after = 4
    s.lose_tail(2)
    # What is shipped when the shipper hears of it is sent once more.
    s.explained.successions = s.explained.resends = True
    dead = s.trap(OWNER, "collector.after-swap", lambda: s.kill(OWNER))
    await s.sprung(dead)
    s.stream.stuck_after = 0
    s.start(OWNER)
    await s.ship()
    await s.collected()


@play("holes_are_not_reported", "gaps_are_not_owed", "reports_confirm_all",
      "lost_messages_are_not_sent_again", "payment_is_not_noted")  # fmt: skip
async def purged_before_it_was_read(s: Stage) -> None:
    """Someone removes messages from the middle of a stream while its owner stands still."""
    s.explained.resends = s.explained.losses = True
    s.world.may_be_late = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(OWNER)
    at = s.stream.last
    await s.ship_each(3)
    s.stream.remove(at + 2)
    s.hear(OWNER)
    await s.collected()
    found = await s.books()
    s.check(not found.lost, "all lines are there")


@play("answers_show_no_gap", "reports_confirm_all", "lost_messages_are_not_sent_again",
      "payment_is_not_noted")  # fmt: skip
async def purged_and_nothing_follows(s: Stage) -> None:
    """The last messages of a stream are removed before they are read: no later one shows it."""
    s.explained.resends = s.explained.losses = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(OWNER)
    await s.ship_each(2)
    s.stream.purge(below=None, filter=None)
    s.hear(OWNER)
    await s.sleep(30.0)
    await s.collected()
    found = await s.books()
    s.check(not found.lost, "all lines are there")


@play("losses_are_not_kept", "loss_is_never_named", "holes_are_not_reported")
async def purged_and_rotated_away(s: Stage) -> None:
    """Lines leave the stream unread, and their file is gone: they are named as lost."""
    s.explained.losses = s.explained.resends = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(OWNER)
    at = s.stream.last
    await s.ship_each(2, 4)
    await s.sleep(2.0)
    s.kill(HOST)
    s.log.path.unlink()
    s.start(HOST)
    await s.ship(2)
    s.stream.purge(below=at + 3, filter=None)
    s.hear(OWNER)
    await s.sleep(60.0)
    await s.collected()
    found = await s.books()
    s.check(found.lost == 8, f"eight lines are lost, not {found.lost}")


@play("all_is_read_again")
async def batch_is_forged(s: Stage) -> None:
    """Another client publishes a batch in a source's name, at bytes that were written."""
    s.explained.letters = 1
    await s.begun()
    await s.ship_each(8, 2)
    await s.collected()
    sequence = next(iter(s.stream.messages)) + 2
    s.forge(sequence)
    await s.until(lambda: s.record.position.sequence == s.stream.last, "it is read")
    await s.ship()
    await s.collected()


@play("questions_are_not_answered")
async def asked_after_a_new_connection(s: Stage) -> None:
    """A shipper asks what is collected when an answer is still to come: nothing is sent in vain."""
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(HOST)
    s.write(3)
    await s.until(lambda: s.record.position.sequence < s.stream.last, "it is stored")
    await s.until(lambda: s.record.position.sequence == s.stream.last, "it is committed")
    await s.sleep(12.0)
    s.hear(HOST)
    s.world.server.disconnect_all("server restarted")
    await s.sleep(15.0)
    await s.ship()
    await s.collected()
