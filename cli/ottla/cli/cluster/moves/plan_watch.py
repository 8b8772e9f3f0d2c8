"""Starts replica moves that the controllers carry out, and shows their progress until they are
complete."""

import time
from collections.abc import Sequence

import trio

from ottla.cli.cluster.moves.move_bars import MoveBar, bars
from ottla.cli.cluster.moves.reassignment_requests import copied_parts_of
from ottla.cli.common import counted
from ottla.cli.terminal import draw_lines, is_watched, note
from ottla.client.admin import Admin
from ottla.insight.changes.move_plan_driver import start_plan
from ottla.insight.facts.reassignments_driver import ongoing_of
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.model.balance.cluster_load import ClusterLoad
from ottla.model.balance.plan_text import StoredMove

LOOK_AGAIN_S = 0.5
IDLE_LOOKS = 2
"""Number of consecutive checks without a balance plan after which all replica moves count as
complete. One check is not sufficient, because the broker that responds may not know the plan
yet."""
LEFT = (
    "the controllers go on with the moves; 'ottla cluster balance --status' shows them, --cancel "
    "undoes those that are not complete"
)


async def run_plan(
    admin: Admin, load: ClusterLoad, moves: Sequence[StoredMove], throttle: int, *, is_waiting: bool
) -> None:
    """Start replica moves that the controllers carry out. With `is_waiting`, show their progress
    until all are complete. `throttle` is in bytes per second."""
    await start_plan(admin, load, moves, throttle)
    if not is_waiting:
        note(LEFT)
        return
    started = time.monotonic()
    try:
        await watch_plan(admin, len(moves))
    except BaseException:  # an interrupted command, too: the moves continue without it
        note(LEFT)
        raise
    seconds = time.monotonic() - started
    note(f"{counted(len(moves), 'partition')} changed in {seconds:.1f} s")


async def watch_plan(admin: Admin, total: int) -> None:
    """Draw the progress of the replica moves that the cluster carries out until all `total` moves
    are complete."""
    line_count, idle_looks = 0, 0
    while idle_looks < IDLE_LOOKS:
        stored = await read_stored_plan(admin)
        idle_looks = 0 if stored.moves else idle_looks + 1
        if stored.moves and is_watched():
            planned = {move.at for move in stored.moves}
            moving = [one for one in await ongoing_of(admin, ()) if one.at in planned]
            parts = await copied_parts_of(admin, moving)
            drawn = [
                MoveBar(parts[one.at], one.name, ",".join(map(str, one.target))) for one in moving
            ]
            waiting = [MoveBar(0.0, str(one.at), "") for one in stored.moves if one.at not in parts]
            lines = bars([*drawn, *waiting], max(total, len(planned)), "partition")
            draw_lines(lines, line_count_before=line_count)
            line_count = len(lines)
        await trio.sleep(LOOK_AGAIN_S)
    if is_watched():
        draw_lines([], line_count_before=line_count)
