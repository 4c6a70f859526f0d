"""Carry a plan out. The plan is the only input: what it does not say is not done.

Applying again after any interruption is safe: each step either still is to be done, or is done.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from logpipeline.nats.connection import NotSent, OutcomeUnknown
from logpipeline.nats.jetstream import CONSUMER_NOT_FOUND, STREAM_NOT_FOUND, ApiError, JetStream
from logpipeline.plan.desired import desired
from logpipeline.plan.diff import make_plan
from logpipeline.plan.model import Config, FieldChange, Kind, Plan, Problem, Step
from logpipeline.plan.observe import account_of, ask, observe
from logpipeline.plan.server_defaults import (
    CONSUMER_DEFAULTS,
    STREAM_DEFAULTS,
    normal_consumer,
    normal_stream,
    unknown_fields,
    without_defaults,
)
from logpipeline.spec import LogPipeline

# A request whose answer is lost is looked after and sent again so often.
ATTEMPTS_MAX = 5
RETRY_S = 0.2
# For each request, a server that restarts is waited for; one that is gone must be reported soon.
RECONNECT_S = 10.0

# What people can do about a refusal, by the server's error code.
_ADVICE = {
    10026: "remove consumers, or raise the stream's max_consumers",
    10027: "the account's max_streams is reached: raise it, or use fewer partitions",
    10002: "the account's storage is used up: raise its limit, or set spec.stream.maxBytes lower",
    10028: "the account's storage is used up: raise its limit, or set spec.stream.maxBytes lower",
    10047: "the server's max_file_store or disk is too small: set spec.stream.maxBytes lower, or "
    "give it more storage",
    10005: "no server has the room, or the placement fits none: change spec.stream.placement, or "
    "add storage",
    10058: "a stream of that name was made meanwhile: plan again",
    10065: "another stream has these subjects: choose another spec.subject",
    10074: "replicas need a cluster: set spec.stream.replicas to 1, or add servers",
    10148: "a consumer of that name was made meanwhile: plan again",
}


async def plan_pipeline(
    js: JetStream,
    pipeline: LogPipeline,
    *,
    storage_bytes: int | None = None,
    installation: str = "",
) -> Plan:
    """Return the changes that the server needs for *pipeline*; see `desired` for the arguments.

    Raises:
        JetStreamOff: there is no JetStream.
        OutcomeUnknown, NotSent: the server did not answer.
        ApiError: it refused a request.
    """
    wanted = desired(
        pipeline,
        account=await account_of(js),
        storage_bytes=storage_bytes,
        installation=installation,
    )
    return make_plan(wanted, await observe(js, wanted))


class Result(StrEnum):
    """The outcome of a step, in a word."""

    DONE = "done"
    HELD_BACK = "held back"
    REFUSED = "refused"
    CHANGED_MEANWHILE = "changed meanwhile"
    UNKNOWN = "unknown"
    NOT_TRIED = "not tried"


# Steps of these kinds change fields of a stream or consumer that exists.
_CHANGES = (Kind.IN_PLACE, Kind.DELETES_DATA, Kind.REFUSED)

# After one of these the rest is not tried: it may build on what failed.
_FATAL = (Result.REFUSED, Result.CHANGED_MEANWHILE, Result.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of *step*; *held* are its changes that were not made: one of them, or of another
    step, would delete data or would be refused.
    """

    step: Step
    result: Result
    detail: str = ""
    held: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcomes of a plan."""

    outcomes: tuple[Outcome, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything was done."""
        return not any(problem.is_blocking for problem in self.problems) and all(
            outcome.result is Result.DONE and not outcome.held for outcome in self.outcomes
        )


async def apply(js: JetStream, plan: Plan, *, allow_data_loss: bool) -> Report:
    """Make the changes of *plan* one after the other, and return the outcome of each.

    Nothing is done while the plan has a problem that blocks. Changes that delete data are made
    only with *allow_data_loss*. All changed fields of the plan are one change: while one of them is
    held back, none is made. Missing streams and consumers are created all the same.
    """
    outcomes: list[Outcome] = []
    stopped = bool(plan.blocking)
    is_held = _holds_back(plan, allow_data_loss=allow_data_loss)
    for step in plan.steps:
        if stopped:
            outcomes.append(Outcome(step=step, result=Result.NOT_TRIED))
            continue
        if is_held and step.kind in _CHANGES:
            outcomes.append(_held_with_all(step, allow_data_loss=allow_data_loss))
            continue
        outcome = await _apply_step(js, step, allow_data_loss=allow_data_loss)
        outcomes.append(outcome)
        stopped = outcome.result in _FATAL
    return Report(outcomes=tuple(outcomes), problems=plan.problems)


def held_changes(step: Step, *, allow_data_loss: bool) -> tuple[FieldChange, ...]:
    """Return the changes of *step* that must not be made."""
    kept_out = {Kind.REFUSED} if allow_data_loss else {Kind.REFUSED, Kind.DELETES_DATA}
    return tuple(change for change in step.changes if change.kind in kept_out)


def report_of_held(plan: Plan, *, allow_data_loss: bool) -> Report | None:
    """Return the report of not applying *plan*, None if no field of it must be held back, and no
    stream or consumer in it is of others.

    Half of a change may be worse than either state: with a lower `max_msgs`, but not the lower
    `max_age` that would have made room, a stream that discards new messages takes none.
    """
    is_foreign = any(step.kind is Kind.ADOPT_NEEDED for step in plan.steps)
    is_held = is_foreign or _holds_back(plan, allow_data_loss=allow_data_loss)
    if plan.blocking or not is_held:
        return None
    outcomes: list[Outcome] = []
    for step in plan.steps:
        if step.kind in _CHANGES:
            outcomes.append(_held_with_all(step, allow_data_loss=allow_data_loss))
        elif step.kind is Kind.ADOPT_NEEDED:
            outcomes.append(_left_to_others(step))
        else:
            outcomes.append(Outcome(step=step, result=Result.NOT_TRIED))
    return Report(outcomes=tuple(outcomes), problems=plan.problems)


def _holds_back(plan: Plan, *, allow_data_loss: bool) -> bool:
    """Return whether a field of *plan* must not be changed, so that no field is changed."""
    return any(
        held_changes(step, allow_data_loss=allow_data_loss)
        for step in plan.steps
        if step.kind in _CHANGES
    )


def _held_with_all(step: Step, *, allow_data_loss: bool) -> Outcome:
    detail = "nothing of the change is made while a part of it is held back"
    if held_changes(step, allow_data_loss=allow_data_loss):
        detail = ""
    return Outcome(step=step, result=Result.HELD_BACK, detail=detail, held=step.changes)


def _left_to_others(step: Step) -> Outcome:
    detail = f"{step.asset}: {step.note}: set spec.stream.adopt to take it over"
    return Outcome(step=step, result=Result.HELD_BACK, detail=detail, held=step.changes)


def config_to_send(step: Step) -> dict[str, Any]:
    """Return the configuration that makes the changes of *step*.

    The other fields are sent as they were found, also those that we do not know.
    """
    assert step.found is not None
    is_stream = step.consumer is None
    defaults = STREAM_DEFAULTS if is_stream else CONSUMER_DEFAULTS
    full = normal_stream(step.found) if is_stream else normal_consumer(step.found)
    full.update({change.field: change.wanted for change in step.changes})
    return {**unknown_fields(step.found, defaults), **without_defaults(full, defaults)}


async def _apply_step(js: JetStream, step: Step, *, allow_data_loss: bool) -> Outcome:
    if step.kind is Kind.ADOPT_NEEDED:
        return _left_to_others(step)
    if step.kind is Kind.DELETE and not allow_data_loss:
        detail = f"{step.asset} is kept: deleting it loses its position"
        return Outcome(step=step, result=Result.HELD_BACK, detail=detail)
    config = config_to_send(step) if step.kind in _CHANGES else dict(step.wanted)
    result, detail = await _carry_out(js, step, config)
    return Outcome(step=step, result=result, detail=detail)


async def _carry_out(js: JetStream, step: Step, config: Config) -> tuple[Result, str]:
    detail = ""
    for _ in range(ATTEMPTS_MAX):
        try:
            there = await _there(js, step)
            if _is_reached(step, config, there):
                return Result.DONE, ""
            if not _is_as_planned(step, there):
                return Result.CHANGED_MEANWHILE, f"{step.asset} was changed by others: plan again"
            await _send(js, step, config)
        except ApiError as error:
            advice = _ADVICE.get(error.err_code)
            return Result.REFUSED, f"{error}: {advice}" if advice else str(error)
        except (OutcomeUnknown, NotSent) as error:
            # The next round looks at what became of it, before anything is sent again.
            detail = str(error)
            await asyncio.sleep(RETRY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(RECONNECT_S):
                    await js.connection.wait_connected()
        else:
            return Result.DONE, ""
    return Result.UNKNOWN, f"{detail}: plan again once the server answers"


async def _send(js: JetStream, step: Step, config: Config) -> None:
    if step.consumer is None:
        verb = "CREATE" if step.kind is Kind.CREATE else "UPDATE"
        await js.call(f"STREAM.{verb}.{step.stream}", dict(config))
    elif step.kind is Kind.DELETE:
        await js.consumer_delete(step.stream, step.consumer)
    else:
        # Always with the action: a create that meets a consumer would otherwise change it.
        action = "create" if step.kind is Kind.CREATE else "update"
        await js.consumer_create(step.stream, dict(config), action=action)


async def _there(js: JetStream, step: Step) -> dict[str, Any] | None:
    request = f"STREAM.INFO.{step.stream}"
    if step.consumer is not None:
        request = f"CONSUMER.INFO.{step.stream}.{step.consumer}"
    try:
        info: dict[str, Any] = await ask(js, request)
    except ApiError as error:
        if error.err_code in (STREAM_NOT_FOUND, CONSUMER_NOT_FOUND):
            return None
        raise
    return info


def _is_reached(step: Step, config: Config, there: dict[str, Any] | None) -> bool:
    if step.kind is Kind.DELETE:
        return there is None
    return there is not None and _full(step, there["config"]) == _full(step, config)


def _is_as_planned(step: Step, there: dict[str, Any] | None) -> bool:
    if step.found is None or there is None:
        return step.found is None and there is None
    is_same = step.created == there["created"]
    return is_same and _full(step, there["config"]) == _full(step, step.found)


def _full(step: Step, config: Config) -> dict[str, Any]:
    if step.consumer is not None:
        return normal_consumer(config)
    return normal_stream(config)
