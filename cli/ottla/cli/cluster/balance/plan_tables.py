"""A plan of moves as tables and JSON."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.cli.common import counted, print_json
from ottla.cli.tables import ByteCount, print_table
from ottla.cli.terminal import note, say
from ottla.model.amounts import amount, duration
from ottla.model.balance.move_plan import BalancePlan, PlannedMove, UnmovedReason

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
UNMOVED_COLUMNS = ("NOT-MOVED", "EXAMPLES", "REASON")
EXAMPLES_MAX = 3
MS_PER_S = 1_000


def show_plan(arguments: argparse.Namespace, plan: BalancePlan, throttle: int) -> None:
    """Print a plan with its loads, its estimated duration, and the reasons for moves not made."""
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
        print_table(UNMOVED_COLUMNS, _unmoved_rows(plan.unmoved))
    if plan.moves:
        note(plan_text(plan, throttle))


def plan_text(plan: BalancePlan, throttle: int) -> str:
    """Return the size of a plan and its estimated duration as a sentence."""
    copies = sum(bool(move.adding) for move in plan.moves)
    text = f"{counted(len(plan.moves) - copies, 'election')}, {counted(copies, 'move')}"
    if copies:
        seconds = plan.seconds(throttle)
        text += (
            f": {amount(plan.copied_bytes)} to copy, at least {duration(round(seconds) * MS_PER_S)}"
            f" at {amount(throttle)}/s to and from each broker"
        )
    return text


def plan_json(plan: BalancePlan, throttle: int) -> dict[str, Any]:
    """Return a plan in the JSON form."""
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


def _unmoved_rows(unmoved: Iterable[UnmovedReason]) -> Iterable[Sequence[object]]:
    """Yield one row for all subjects with the same reason."""
    by_reason: dict[str, list[str]] = {}
    for one in unmoved:
        by_reason.setdefault(one.reason, []).append(one.subject or "cluster")
    for reason, subjects in by_reason.items():
        more = ", …" if len(subjects) > EXAMPLES_MAX else ""
        yield len(subjects), ", ".join(subjects[:EXAMPLES_MAX]) + more, reason
