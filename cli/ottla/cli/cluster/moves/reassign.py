"""`ottla topic reassign`: plans moves of replicas to other brokers, shows the plan, then starts,
watches or cancels the moves.

Moves between directories of one broker are in `directory_moves`.
"""

import argparse
import json
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import trio

from ottla.cli.cluster.moves.adapted_moves import check_adaptable, make_adapted
from ottla.cli.cluster.moves.directory_moves import move_directories
from ottla.cli.cluster.moves.move_bars import MoveBar, bars
from ottla.cli.cluster.moves.reassignment_plan import (
    Domain,
    Move,
    as_plan,
    moves_of,
    read_plan,
    spread,
    without,
)
from ottla.cli.cluster.moves.reassignment_requests import (
    cancel,
    copied_parts_of,
    places_of,
    sizes_of,
    start,
)
from ottla.cli.cluster.moves.throttled_moves import rate_asked_for, remove_and_note, throttled
from ottla.cli.cluster.moves.throttles import MovingReplicas
from ottla.cli.common import counted
from ottla.cli.confirmation import confirm_in_loop
from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount
from ottla.cli.terminal import draw_lines, is_watched, note, reason_of
from ottla.client.admin import Admin
from ottla.insight.facts.reassignments_driver import ongoing_of
from ottla.insight.facts.replica_assignments import OngoingMove, ReplicaAssignment
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.insight.facts.survey_driver import not_registered, registered, registrations_of
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition

DRAW_AGAIN_S = 0.5


async def reassign(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic reassign`: plan, start, watch or cancel reassignments, as the options request.
    Returns the exit code."""
    rate = rate_asked_for(arguments)
    if arguments.adapt and not (
        arguments.brokers or arguments.plan or arguments.evacuate is not None
    ):
        raise ConfigError("--adapt", "belongs to --brokers, --evacuate or --plan")
    if arguments.cancel:
        return await _cancel(admin, arguments)
    if arguments.verify:
        return await _verify(admin, arguments)
    if arguments.log_dir:
        return await move_directories(admin, arguments)
    if not arguments.brokers and not arguments.plan and arguments.evacuate is None:
        return await _status(admin, arguments, rate)
    moves = await _planned(admin, arguments)
    if arguments.adapt:
        await check_adaptable(admin, moves)
    if arguments.save:
        Path(arguments.save).write_text(json.dumps(as_plan(move.after for move in moves)) + "\n")
    if not moves:
        await _show_plan(admin, arguments, moves, [])
        note("nothing needs to move")
        return 0
    if not arguments.yes:
        await _show_plan(admin, arguments, moves, [])
    if not await confirm_in_loop(arguments, f"move {counted(len(moves), 'partition')}?"):
        return 0
    if arguments.adapt:
        if arguments.yes:
            await _show_plan(admin, arguments, moves, [])
        await make_adapted(admin, moves, rate, is_waiting=not arguments.no_wait)
    else:
        moving = [MovingReplicas(one.at, one.before.replicas, one.adding) for one in moves]
        async with throttled(admin, moving, rate) as throttle:
            refusals = await start(admin, moves)
            begun = [move for move in moves if move.at not in refusals]
            throttle.is_left = bool(begun) and (arguments.no_wait or bool(refusals))
            if not refusals:
                if arguments.yes:
                    await _show_plan(admin, arguments, begun, [])
                if not arguments.no_wait:
                    await watch_moves(admin, {move.at for move in begun})
        if refusals:
            await _show_plan(admin, arguments, begun, list(refusals.values()))
    return 0


async def _planned(admin: Admin, arguments: argparse.Namespace) -> list[Move]:
    if arguments.replicas is not None and (not arguments.brokers or arguments.replicas < 1):
        raise ConfigError("--replicas", "belongs to --brokers, and is at least 1")
    if arguments.plan:
        after = _read(arguments.plan)
        places = await places_of(admin, [one.topic for one in after])
        _check_known(places, after)
        return moves_of(places, after)
    if arguments.brokers and not arguments.names:
        raise ConfigError("--brokers", "names where to; name the topics, too")
    places = await places_of(admin, arguments.names or None)
    known = await registered(admin)
    registrations = (await registrations_of(admin)).brokers
    hosts = {one: found.host for one, found in registrations.items()}
    alive = {one.id: Domain(one.rack, hosts.get(one.id)) for one in known if not one.is_fenced}
    if arguments.brokers:
        chosen = _brokers(arguments.brokers, alive)
        after = spread(places, {one: alive[one] for one in chosen}, arguments.replicas)
    else:
        _check_evacuated(places, arguments.evacuate, {one.id for one in known})
        after = without(places, arguments.evacuate, alive)
    return moves_of(places, after)


def _read(path: str) -> list[ReplicaAssignment]:
    try:
        return read_plan(Path(path).read_text(), path)
    except OSError as error:
        raise ConfigError("--plan", f"{path} cannot be read: {reason_of(error)}") from None


def _brokers(text: str, alive: Collection[int]) -> list[int]:
    try:
        chosen = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise ConfigError("--brokers", f"is {text!r}; it must be ids with commas") from None
    away = [str(one) for one in chosen if one not in alive]
    if away:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"--brokers names {', '.join(away)}, not alive here; see 'ottla broker list'",
        )
    return chosen


def _check_evacuated(
    places: Sequence[ReplicaAssignment], broker: int, registered_ids: set[int]
) -> None:
    """Raise RefusedError if the broker to evacuate (to empty of replicas) is unknown. A removed
    broker counts as known if it is still in replica lists."""
    if broker not in registered_ids and all(broker not in one.replicas for one in places):
        raise not_registered(broker)


def _check_known(places: Sequence[ReplicaAssignment], after: Sequence[ReplicaAssignment]) -> None:
    known = {(one.topic, one.partition) for one in places}
    for one in after:
        if (one.topic, one.partition) not in known:
            raise ConfigError("--plan", f"names {one.name}, which is not there")


async def _show_plan(
    admin: Admin,
    arguments: argparse.Namespace,
    moves: Sequence[Move],
    refusals: Sequence[RefusedError],
) -> None:
    brokers = {broker for move in moves for broker in move.before.replicas}
    sizes = await sizes_of(admin, [one.at for one in moves], brokers)
    rows = [
        (
            move.before.topic,
            move.before.partition,
            move.before.replicas,
            move.after.replicas,
            ByteCount(len(move.adding) * max(sizes[move.at].values(), default=0)),
        )
        for move in moves
    ]
    show(arguments, ("TOPIC", "PARTITION", "WAS", "REPLICAS", "BYTES-TO-COPY"), rows, refusals)


async def _verify(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla topic reassign --verify`: show the reassignments in progress, then remove the
    throttles that no reassignment needs. Returns the exit code."""
    moving = await ongoing_of(admin, arguments.names)
    await _show_moving(admin, arguments, moving)
    await remove_and_note(admin, arguments.names or None)
    return 0


async def _cancel(admin: Admin, arguments: argparse.Namespace) -> int:
    moving = await ongoing_of(admin, arguments.names)
    refusals = await cancel(admin, moving) if moving else {}
    rows = [
        (*one.at, one.target, tuple(b for b in one.replicas if b not in one.adding))
        for one in moving
        if one.at not in refusals
    ]
    if moving:
        await remove_and_note(admin, sorted({one.at.topic for one in moving}), is_quiet=True)
    columns = ("TOPIC", "PARTITION", "WAS-TO-BE", "REPLICAS")
    plan = await read_stored_plan(admin)
    if plan.moves:
        note(
            f"{counted(len(plan.moves), 'move')} of a balance go on; 'ottla cluster balance "
            "--cancel' ends them"
        )
    show(arguments, columns, rows, list(refusals.values()))
    if not moving:
        note("nothing moves")
    return 0


async def _status(admin: Admin, arguments: argparse.Namespace, rate: int | None) -> int:
    moving = await ongoing_of(admin, arguments.names)
    if arguments.watch or rate is not None:
        replicas = [
            MovingReplicas(
                one.at, tuple(id_ for id_ in one.replicas if id_ not in one.adding), one.adding
            )
            for one in moving
        ]
        async with throttled(admin, replicas, rate) as throttle:
            throttle.is_left = arguments.no_wait
            if not arguments.no_wait:
                await watch_moves(admin, {one.at for one in moving})
        return 0
    await _show_moving(admin, arguments, moving)
    return 0


async def _show_moving(
    admin: Admin, arguments: argparse.Namespace, moving: Sequence[OngoingMove]
) -> None:
    done = await copied_parts_of(admin, moving)
    rows = [
        (*one.at, one.target, one.adding, one.removing, round(100 * done[one.at], 1))
        for one in moving
    ]
    columns = ("TOPIC", "PARTITION", "REPLICAS", "COMING", "GOING", "PERCENT")
    show(arguments, columns, rows)
    if not moving:
        note("nothing moves")


async def watch_moves(admin: Admin, wanted: set[TopicPartition]) -> None:
    """Draw the progress of partition reassignments on the terminal until all of them have
    finished."""
    total, lines = len(wanted), 0
    started = time.monotonic()
    while True:
        moving = [one for one in await ongoing_of(admin, ()) if one.at in wanted]
        if not moving:
            break
        if is_watched():
            done = await copied_parts_of(admin, moving)
            lines = _draw(_bars(moving, done, total), lines)
        await trio.sleep(DRAW_AGAIN_S)
    if is_watched():
        _draw([], lines)
    seconds = time.monotonic() - started
    if total:
        note(f"{counted(total, 'partition')} moved in {seconds:.1f} s")


def _bars(
    moving: Sequence[OngoingMove], done: dict[TopicPartition, float], total: int
) -> list[str]:
    """Return the lines of text that show the progress of reassignments. The first line shows the
    overall progress. `done` has the copied fraction of each move, from 0 to 1."""
    rows = [MoveBar(done[one.at], one.name, ",".join(map(str, one.target))) for one in moving]
    return bars(sorted(rows, key=lambda row: row.name), total, "partition")


def _draw(lines: Sequence[str], before: int) -> int:
    """Draw lines on the terminal over the `before` lines of the previous call. Returns the number
    of lines."""
    draw_lines(lines, line_count_before=before)
    return len(lines)
