"""Scripts in which one stream holds two partitions, each with an owner and a host of its own."""

from __future__ import annotations

from simulated.stage import ONE_STREAM, OTHER, OWNER, Scripts, Stage
from simulated.writers import Writer

SCRIPTS = Scripts(ONE_STREAM)
play = SCRIPTS.add

# So long that the other owner looks twice at what the stream has.
FROZEN_S = 40.0
# After so long a server knows that it leads the stream no more.
FORMER_S = 5.0


async def begun(s: Stage) -> tuple[Writer, Writer]:
    """Have lines of the first partition read, and passed by the other one; return the logs of both
    partitions.
    """
    ours, others = s.world.writers
    await s.begun_by_both()
    await s.ship(3, log=ours)
    await s.passed()
    return ours, others


async def written_and_passed(s: Stage, others: Writer) -> None:
    """Ship lines of the other partition, and return when the first one has passed them."""
    for _ in range(3):
        await s.ship(2, log=others)
    await s.passed()


@play(
    "others_messages_are_never_passed", "partitions_share_a_consumers_name",
    "each_partition_reads_all",
)  # fmt: skip
async def others_write(s: Stage) -> None:
    """Only one partition has new lines: the other one passes them."""
    ours, others = s.world.writers
    await s.begun_by_both()
    s.write(3, log=others)
    await s.ship(3, log=ours)
    await s.passed()
    await s.ship(2, log=others)
    await s.ship(2, log=others)
    await s.passed()


@play("what_should_have_come_is_not_looked_for")
async def delivery_is_lost_and_others_write(s: Stage) -> None:
    """The last lines of a partition do not arrive at its owner, and only others follow."""
    ours, others = await begun(s)
    s.deafen(OWNER)
    await s.ship(2, log=ours)
    s.hear(OWNER)
    await s.ship(2, log=others)
    await s.passed()


@play("others_messages_are_passed_at_the_first_look")
async def former_leader_answers(s: Stage) -> None:
    """Who does not know yet that it leads the stream no more answers whether there is more: nothing
    is passed by that alone.
    """
    ours, others = await begun(s)
    await s.until(lambda: s.record.snapshot_at == s.stream.last, "there is a snapshot")
    s.stream.former_ns = s.stream.last_ns
    await s.ship(2, log=ours)
    await s.ship(2, log=others)
    await s.sleep(FORMER_S)
    s.trim()
    s.stream.former_ns = None
    await s.passed()


@play("what_was_passed_is_forgotten_at_a_take_over")
async def taken_over_when_others_are_trimmed(s: Stage) -> None:
    """A partition goes to another owner when all that it passed is trimmed: nothing is missed."""
    ours, others = await begun(s)
    await written_and_passed(s, others)
    s.trim()
    s.give(OTHER)
    await s.until(lambda: s.record.owner == OTHER and not s.record.released, "it takes over")
    await s.ship(2, log=ours)
    await s.passed()


@play("what_was_passed_is_believed")
async def tail_that_was_passed_is_lost(s: Stage) -> None:
    """The server loses what an owner passed, and lines of the owner take the sequences before it
    looks: nothing of them is trimmed.
    """
    # The lost lines are sent once more.
    s.explained.resends = s.world.may_be_late = True
    _, others = await begun(s)
    await written_and_passed(s, others)
    s.freeze(OWNER, FROZEN_S)
    s.lose_tail(3)
    for _ in range(3):
        await s.ship_more(2)
    await s.until(
        lambda: s.demands.records[1].read_to == s.stream.last, "the other one passed them", FROZEN_S
    )
    s.trim()
    await s.passed()
