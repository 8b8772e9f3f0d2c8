"""Removes a broker permanently: moves its replicas away, waits until it has stopped, and deletes
its registration.

Each step starts from the cluster's present state, so a second run resumes where the first ended.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import trio

from ottla.client.admin import Admin
from ottla.insight.changes.broker_registrations_driver import is_running, unregister_broker
from ottla.insight.changes.cordon_driver import set_cordon
from ottla.insight.changes.move_plan_driver import check_idle, start_plan, stored_moves_of
from ottla.insight.changes.progress import Report
from ottla.insight.facts.reassignments_driver import in_sync_of, ongoing_of
from ottla.insight.facts.removal_driver import removal_of
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.insight.facts.survey_driver import brokers_of
from ottla.insight.rules.removal_delays import catch_up_text
from ottla.model.amounts import counted
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition

ROUNDS_MAX = 500
"""Maximum number of consecutive plans of replica moves for the removal of one broker. A plan has at
most 1,000 moves. Topics created in the meantime may place further replicas on a broker that is
down."""
ASK_AGAIN_S = 0.5
STOP_TIMEOUT_S = 600.0
MOVE_TIMEOUT_S = 3_600.0
IDLE_LOOKS = 2
"""Number of consecutive checks without a plan of replica moves after which the plan counts as
complete. More than one is needed, because the broker that answers the first check may not know the
plan yet."""

WatchMoves: TypeAlias = Callable[[Admin, set[TopicPartition]], Awaitable[None]]
"""Function that shows the progress of partition moves. It returns when all moves are complete."""


class RemovalResult(NamedTuple):
    """Result of the removal of a broker."""

    moved_count: int
    """Number of partitions whose replica was moved away."""
    is_removed: bool
    """False if the broker's replicas were all moved, but its process did not stop in time."""
    left: str
    """Sentence about partitions that still have the broker in their list of replicas, or an empty
    text."""


async def remove_broker(
    admin: Admin,
    broker_id: int,
    report: Report,
    *,
    throttle: int,
    watch: WatchMoves | None = None,
    timeout_s: float = MOVE_TIMEOUT_S,
    stop_timeout_s: float = STOP_TIMEOUT_S,
) -> RemovalResult:
    """Move a broker's replicas to other brokers, wait until the broker has stopped, and unregister
    it.

    `throttle` is the highest rate of the moves in bytes per second. `watch` replaces the reports of
    the moves. Raises RefusedError if the broker still has replicas after `timeout_s` seconds.
    """
    watching = watch or _reporter_of(report)
    # Neither new topics nor a balance may give it replicas while it is emptied.
    await set_cordon(admin, broker_id, is_cordoned=True)
    moved = await _move_away(admin, broker_id, throttle, watching, timeout_s)
    if not await _wait_stopped(admin, broker_id, stop_timeout_s, report):
        return RemovalResult(len(moved), False, "")
    # The operator may have taken long to stop the broker. Replicas that were placed on the broker
    # in the meantime are therefore moved under a new timeout.
    moved |= await _move_away(admin, broker_id, throttle, watching, timeout_s)
    # The setting would apply to the next broker with this id.
    await set_cordon(admin, broker_id, is_cordoned=False)
    left = await unregister_broker(admin, broker_id)
    return RemovalResult(len(moved), True, left)


async def _move_away(
    admin: Admin, broker_id: int, throttle: int, watch: WatchMoves, timeout_s: float
) -> set[TopicPartition]:
    """Move replicas away from a broker until it has none. Returns the partitions that moved."""
    ends_at_s = trio.current_time() + timeout_s
    moved: set[TopicPartition] = set()
    for _ in range(ROUNDS_MAX):
        stored = await read_stored_plan(admin)
        if stored.moves:
            # An earlier removal was interrupted, and its moves go on.
            if not all(
                broker_id in move.before and broker_id not in move.after for move in stored.moves
            ):
                await check_idle(admin)
            moving = {move.at for move in stored.moves}
        else:
            found = await removal_of(admin, broker_id, throttle)
            moving = found.partitions
            if not moving:
                return moved
            if found.plan.moves:
                await start_plan(admin, found.load, stored_moves_of(found.plan), throttle)
        await _watch(admin, broker_id, moving, watch, ends_at_s)
        moved |= moving
    raise RefusedError(
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        f"broker {broker_id} is given new replicas all the time; stop it, then run "
        f"'ottla broker remove {broker_id} --yes' again",
    )


async def _watch(
    admin: Admin, broker_id: int, wanted: set[TopicPartition], watch: WatchMoves, ends_at_s: float
) -> None:
    """Wait until the reassignments of the partitions `wanted` have ended. Raises RefusedError at
    the deadline `ends_at_s`."""
    with trio.move_on_at(ends_at_s) as scope:
        await watch(admin, wanted)
    if not scope.cancelled_caught:
        return
    moving = [one for one in await ongoing_of(admin, ()) if one.at in wanted]
    if not moving and not (await read_stored_plan(admin)).moves:
        return
    in_sync = await in_sync_of(admin, {one.at.topic for one in moving}) if moving else {}
    raise RefusedError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{catch_up_text(moving, in_sync)}; the moves go on: run "
        f"'ottla broker remove {broker_id} --yes' again, or call them back with "
        "'ottla cluster balance --cancel'",
    )


def _reporter_of(report: Report) -> WatchMoves:
    async def watch(admin: Admin, wanted: set[TopicPartition]) -> None:
        idle_looks = 0
        while idle_looks < IDLE_LOOKS:
            planned = {one.at for one in (await read_stored_plan(admin)).moves}
            left = planned | ({one.at for one in await ongoing_of(admin, ())} & wanted)
            idle_looks = 0 if left else idle_looks + 1
            total = counted(len(wanted), "partition")
            report(f"{max(0, len(wanted) - len(left)):,} of {total} moved")
            await trio.sleep(ASK_AGAIN_S)

    return watch


async def _wait_stopped(admin: Admin, broker_id: int, timeout_s: float, report: Report) -> bool:
    is_asked = False
    ends_at = trio.current_time() + timeout_s
    while True:
        found = await brokers_of(admin, only=broker_id)
        if not any(is_running(one) for one in found):
            return True
        if trio.current_time() >= ends_at:
            return False
        if not is_asked:
            report(
                f"broker {broker_id} holds no replica any longer: stop it now (SIGTERM); waiting"
            )
            is_asked = True
        await trio.sleep(ASK_AGAIN_S)
