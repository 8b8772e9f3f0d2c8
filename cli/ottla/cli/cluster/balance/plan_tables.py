"""Prints plans of replica moves and their progress, as tables and JSON."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.cli.cluster.balance.plan_progress import MoveProgress, PlanProgress
from ottla.cli.common import counted, print_json
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note, say
from ottla.insight.rules.plan import estimate_text, plan_text, unmoved_rows
from ottla.model.balance.move_plan import BalancePlan, PlannedMove

MOVE_COLUMNS = ("TOPIC", "PARTITION", "WAS", "REPLICAS", "BYTES-TO-COPY", "REASON")
LOAD_COLUMNS = (
    "BROKER",
    "BYTES",
    "BYTES-AFTER",
    "REPLICAS",
    "REPLICAS-AFTER",
    "LEADERS",
    "LEADERS-AFTER",
)
PROGRESS_COLUMNS = ("TOPIC", "PARTITION", "WAS", "REPLICAS", "PERCENT", "BYTES-LEFT", "REASON")
UNMOVED_COLUMNS = ("NOT-MOVED", "EXAMPLES", "REASON")


def show_plan(arguments: argparse.Namespace, plan: BalancePlan, throttle: int) -> None:
    """Print a plan of replica moves with the loads of the brokers, its estimated duration, and the
    reasons why other moves are not planned."""
    if arguments.format == "json":
        print_json(plan_json(plan, throttle))
        return
    if plan.moves:
        print_table(MOVE_COLUMNS, map(_move_row, plan.moves))
        say()
        print_table(LOAD_COLUMNS, _load_rows(plan))
    if plan.unmoved:
        if plan.moves:
            say()
        print_table(UNMOVED_COLUMNS, unmoved_rows(plan.unmoved))
    if plan.moves:
        note(plan_text(plan, throttle))


def plan_json(plan: BalancePlan, throttle: int) -> dict[str, Any]:
    """Return a plan of replica moves as the JSON object that `ottla cluster balance` prints."""
    return {
        "moves": [
            {
                "topic": move.at.topic,
                "partition": move.at.partition,
                "was": move.before,
                "replicas": move.after,
                "bytes_to_copy": move.copied_bytes,
                "reason": move.reason,
            }
            for move in plan.moves
        ],
        "brokers": [
            {
                "broker": broker,
                **{
                    f"{name}_before": value for name, value in plan.before[broker]._asdict().items()
                },
                **{f"{name}_after": value for name, value in totals._asdict().items()},
            }
            for broker, totals in plan.after.items()
        ],
        "not_moved": [one._asdict() for one in plan.unmoved],
        "bytes_to_copy": plan.copied_bytes,
        "throttle_bytes_per_s": throttle,
        "seconds": round(plan.seconds(throttle)),
    }


def show_progress(progress: PlanProgress) -> None:
    """Print the replica moves that are not complete, and the estimated time left."""
    if not progress.rows:
        return
    print_table(PROGRESS_COLUMNS, map(_progress_row, progress.rows))
    estimate = estimate_text(progress.left_bytes, progress.seconds_left, progress.rate)
    note(f"{counted(len(progress.rows), 'move')} left: {estimate}")


def progress_json(progress: PlanProgress) -> dict[str, Any]:
    """Return the progress of a plan's replica moves as the JSON object that `ottla cluster balance`
    prints."""
    return {
        "moves": [
            {
                "topic": row.move.at.topic,
                "partition": row.move.at.partition,
                "was": row.move.before,
                "replicas": row.move.after,
                "copied": row.part,
                "bytes_left": row.left_bytes * len(row.move.adding),
                "waits_because": row.reason or None,
            }
            for row in progress.rows
        ],
        "bytes_left": progress.left_bytes,
        "throttle_bytes_per_s": progress.rate,
        "seconds_left": round(progress.seconds_left),
    }


def _progress_row(row: MoveProgress) -> Sequence[object]:
    percent = None if row.part is None else round(100 * row.part, 1)
    left = ByteCount(row.left_bytes * len(row.move.adding))
    return (*row.move.at, row.move.before, row.move.after, percent, left, row.reason or None)


def _move_row(move: PlannedMove) -> Sequence[object]:
    return (*move.at, move.before, move.after, ByteCount(move.copied_bytes), move.reason)


def _load_rows(plan: BalancePlan) -> Iterable[Sequence[object]]:
    for broker, after in plan.after.items():
        before = plan.before[broker]
        yield (
            broker,
            ByteCount(before.size_bytes),
            ByteCount(after.size_bytes),
            before.replica_count,
            after.replica_count,
            before.leader_count,
            after.leader_count,
        )
