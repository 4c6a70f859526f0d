"""Scripts in which a shipper sends once more what it may have sent, or what a server lost."""

from __future__ import annotations

from simulated import clock
from simulated.stage import BATCH_BYTES, HOST, OWNER, Scripts, Stage

SCRIPTS = Scripts()
play = SCRIPTS.add

# Longer than the server remembers the ids of messages.
WINDOW_S = 130.0
# Lines of seven batches: more than collectors keep checksums of.
MANY_LINES = 70
DAY_S = 86400.0


@play("silence_is_an_acknowledgement")
async def message_is_lost_on_its_way(s: Stage) -> None:
    """A connection breaks when a message has left, and before it arrives."""
    await s.begun()
    await s.ship()
    await s.collected()
    loop = s.world.loop

    def cut() -> None:
        loop.call_later(0.0001, s.world.server.disconnect_all, "reset by peer")

    lost = s.trap(HOST, "shipper.before-send", cut)
    s.write(3)
    await s.sprung(lost)
    await s.ship()
    await s.collected()


@play("births_are_not_noted", "intents_are_not_noted")
async def killed_after_the_first_batch(s: Stage) -> None:
    """A log is rotated, and a shipper dies when the first batch of the new file is stored, and
    before it has saved that there is one.
    """
    await s.begun()
    await s.ship()
    await s.collected()
    await s.sleep(3.0)
    s.log.path.rename(s.path("app0.log.1"))
    dead = s.trap(HOST, "shipper.after-send", lambda: s.kill(HOST))
    s.write(4)
    await s.sprung(dead)
    s.write(4)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play(
    "batches_are_new_each_time", "intents_are_not_noted", "earlier_sends_are_forgotten",
    "earlier_pieces_are_sent_as_one", "repeats_are_not_looked_for",
    batch_bytes=BATCH_BYTES,
)  # fmt: skip
async def killed_behind_many_batches(s: Stage) -> None:
    """A shipper dies with many batches stored that it has not saved, more lines are written, and it
    comes back when the server knows the ids no more.
    """
    await _many_batches_unsaved(s)
    s.write(3)
    await s.sleep(WINDOW_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play(
    "doubtful_state_is_believed", "repeats_are_not_looked_for",
    batch_bytes=BATCH_BYTES,
)  # fmt: skip
async def power_is_cut_behind_many_batches(s: Stage) -> None:
    """The same, and the power of the shipper's machine is cut: its notes are not complete."""
    await _many_batches_unsaved(s)
    s.world.power_off(HOST, is_all_lost=True)
    s.write(3)
    await s.sleep(WINDOW_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play("checksums_behind_a_hole_are_forgotten", batch_bytes=BATCH_BYTES)
async def killed_behind_an_open_hole(s: Stage) -> None:
    """A message is removed before it is read, many batches follow it, and the shipper, which sent
    all of them without saving that, comes back when the server knows the ids no more.
    """
    s.explained.resends = s.explained.losses = True
    s.world.may_be_late = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(OWNER)
    await s.ship()
    hole = s.stream.last
    await _many_batches_unsaved(s, is_begun=True)
    s.stream.remove(hole)
    s.hear(OWNER)
    await s.sleep(WINDOW_S)
    s.start(HOST)
    await s.ship()
    await s.collected()


async def _many_batches_unsaved(s: Stage, *, is_begun: bool = False) -> None:
    """Kill the shipper when it has sent many batches that its positions do not show."""
    if not is_begun:
        await s.begun()
        await s.ship()
        await s.collected()
    await s.sleep(3.0)

    def then_kill() -> None:
        s.trap(HOST, "shipper.before-save", lambda: s.kill(HOST))

    s.write(MANY_LINES)
    wrote = sum(s.log.sizes)
    # It saves when the first one is acknowledged, and a second later.
    s.trap(HOST, "shipper.before-save", then_kill)
    await s.until(lambda: s.demands.stored_bytes >= wrote, "all is stored")
    if not s.world.loop.is_dead(HOST):
        s.world.traps.clear()
        s.kill(HOST)


@play("full_stream_means_never")
async def stream_is_full(s: Stage) -> None:
    """A stream refuses messages for a while: lines wait in their file."""
    await s.begun()
    await s.ship()
    await s.collected()
    s.stream.is_full = True
    s.write(3)
    await s.sleep(12.0)
    s.stream.is_full = False
    await s.ship()
    await s.collected()


@play("nothing_collected_is_recalled", "questions_are_not_answered")
async def positions_are_lost(s: Stage) -> None:
    """A shipper comes back with an empty folder, and asks what is collected."""
    await s.begun()
    await s.ship(5)
    await s.collected()
    s.kill(HOST)
    s.world.wipe(HOST)
    s.write(3)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play("holes_of_a_former_process_are_forgotten")
async def positions_are_lost_of_a_log_with_a_hole(s: Stage) -> None:
    """What its former process sent, and the server lost, is in the file."""
    s.explained.resends = s.explained.losses = True
    s.world.may_be_late = True
    await s.begun()
    await s.ship(5)
    await s.collected()
    s.deafen(OWNER)
    await s.ship_each(3)
    s.stream.remove(s.stream.last - 1)
    s.kill(HOST)
    s.world.wipe(HOST)
    s.hear(OWNER)
    s.write(3)
    s.start(HOST)
    await s.collected()


@play("reconnect_finds_no_loss", "lost_messages_are_not_sent_again")
async def tail_is_lost_before_it_was_read(s: Stage) -> None:
    """The server loses what was not collected: it is sent once more, before new lines."""
    s.explained.resends = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(OWNER)
    await s.ship_each(3)
    s.lose_tail(2)
    s.hear(OWNER)
    s.write(3)
    await s.collected()


@play("sequences_may_go_back")
async def tail_is_lost_and_may_not_be_looked_at(s: Stage) -> None:
    """The same, of a shipper that may not read its subject: the next acknowledgement shows it."""
    s.explained.resends = True
    s.world.may_be_late = True
    s.world.network.blind.add(HOST)
    await s.begun()
    await s.ship()
    await s.collected()
    s.deafen(OWNER)
    await s.ship_each(3)
    s.lose_tail(2)
    await s.sleep(4.0)
    s.write(1)
    again = s.stream.last + 2
    await s.until(lambda: s.stream.last > again, "the lost ones are sent once more", 10.0)
    s.hear(OWNER)
    await s.collected()


@play("roll_backs_are_not_heard_of")
async def tail_is_lost_and_an_owner_says_so(s: Stage) -> None:
    """The same, and no line is written: what a collector says of the stream shows it, at once."""
    s.explained.resends = True
    s.world.network.blind.add(HOST)
    await s.begun()
    await s.ship_each(3)
    await s.collected()
    s.deafen(OWNER)
    await s.ship_each(2)
    s.lose_tail(3)
    s.hear(OWNER)
    # The owner sees first what the server lost.
    s.world.network.parted.add(HOST)
    await s.sleep(2.5)
    s.world.network.parted.discard(HOST)
    before = s.stream.last
    await s.until(lambda: s.stream.last > before, "it is sent once more", 4.5)
    await s.collected()


@play("two_shippers_share_a_folder")
async def two_shippers_in_one_folder(s: Stage) -> None:
    """A second process is started in the folder of one that runs, and ends."""
    await s.begun()
    await s.ship()
    await s.collected()
    pid = s.world.loop.pid_of(HOST)
    s.world.is_left_alone.add(HOST)
    s.start(HOST)
    await s.sleep(5.0)
    answers = [each for each in await s.world.ask() if each["component"] == "shipper"]
    s.check(len(answers) == 1, f"one shipper answers, not {len(answers)}")
    s.world.kill(HOST, pid)
    await s.sleep(2.0)
    s.start(HOST)
    await s.ship()
    await s.collected()


@play("gaps_are_not_owed", "lost_messages_are_not_sent_again")
async def purged_before_it_was_read_and_the_clock_jumps_by_a_day(s: Stage) -> None:
    """A shipper whose clock is a day ahead takes an empty subject for one that was trimmed: that
    lines are gone is shown by the owner's reports. When the clock is a day behind, nothing is sent
    once more.
    """
    s.explained.resends = s.explained.losses = True
    s.world.may_be_late = True
    await s.begun()
    await s.ship()
    await s.collected()
    s.kill(OWNER)
    await s.ship()
    s.world.take_lines(0)
    s.stream.purge(below=None, filter=None)
    clock.WRONG_S[HOST] = DAY_S
    s.world.server.disconnect_all("server restarted")
    await s.sleep(5.0)
    s.start(OWNER)
    s.write(1)
    await s.sleep(30.0)
    await s.collected()
    s.check(not (await s.books()).lost, "all lines are there")
    stored = s.stream.last
    clock.WRONG_S[HOST] = clock.WRONG_S[OWNER] = -DAY_S
    s.world.server.disconnect_all("server restarted")
    await s.sleep(30.0)
    s.check(s.stream.last == stored, "nothing is sent once more")
    await s.collected()
