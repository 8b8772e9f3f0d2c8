"""`ottla cleaner status|run|retry`: state of compaction, immediate passes, retries of failures."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ottla.cli.cluster.cleaning.cleaner_passes import run_passes
from ottla.cli.cluster.cleaning.cleaner_targets import (
    BrokerAnswer,
    ask_each,
    named_refusal,
    not_compacted,
    replicas_of,
)
from ottla.cli.common import counted, print_json
from ottla.cli.options import option
from ottla.cli.outcomes import show
from ottla.cli.tables import ByteCount, Milliseconds, print_table
from ottla.cli.terminal import note, say
from ottla.cli.verbs import admin_verb
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cleaner import (
    CleanerDescription,
    CleaningAnswer,
    CleaningPass,
    LogCleaning,
)
from ottla.model.amounts import amount, duration
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicPartition

UNHEALTHY = 2
UNREACHABLE = 3
UNCLEANED = ("failed", "set aside")
"""States of a compacted log in which its last cleaning has failed."""

COLUMNS = (
    "TOPIC",
    "PARTITION",
    "BROKER",
    "STATE",
    "DIRTY-%",
    "CLEAN",
    "DIRTY",
    "PASSED-AGO",
    "REASON",
)
RETRY_COLUMNS = ("TOPIC", "PARTITION", "BROKER", "OUTCOME")


async def status(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla cleaner status`: show the state of every compacted log. Returns exit code 2 if the
    state of a log is "set aside" (excluded from cleaning after a failure), 3 if a broker does not
    respond."""
    targets = await replicas_of(admin, arguments.names, arguments.broker)

    async def ask(broker: NodeId) -> CleanerDescription:
        return await admin.describe_cleaner(broker, targets[broker])

    answers = await ask_each(targets, ask)
    shown = [_filtered(one, only_failed=arguments.failed) for one in answers]
    _check_compacted(arguments.names, shown)
    if arguments.format == "json":
        print_json([_broker_json(one) for one in shown])
    else:
        _print_status(shown)
    for one in shown:
        if one.failure:
            note(f"ottla cleaner: {one.failure}")
    if any(one.failure for one in shown):
        return UNREACHABLE
    rows = (log for one in shown if one.answer for log in one.answer.logs.values())
    return UNHEALTHY if any(log.state == "set aside" for log in rows) else 0


async def retry(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla cleaner retry`: retry the compaction of logs whose last compaction failed. Without
    names of logs, all such logs are retried. Returns the exit code."""
    targets = await replicas_of(admin, arguments.names, arguments.broker)

    async def ask(broker: NodeId) -> Mapping[TopicPartition, CleaningAnswer]:
        return await admin.retry_cleaning(broker, targets[broker])

    answers = await ask_each(targets, ask)
    rows = []
    refusals: dict[str, RefusedError] = {}
    for one in answers:
        for at, answer in sorted((one.answer or {}).items()):
            if answer.refusal is None:
                rows.append((*at, one.broker, answer.note or "tried again"))
            else:
                refusal = named_refusal(at, one.broker, answer.refusal)
                refusals[str(refusal)] = refusal
    for one in answers:
        if one.failure:
            note(f"ottla cleaner: {one.failure}")
    if rows or refusals or arguments.format == "json":
        show(arguments, RETRY_COLUMNS, sorted(rows), list(refusals.values()), command="cleaner")
    elif not any(one.failure for one in answers):
        note("the cleaning of no log has failed")
    return UNREACHABLE if any(one.failure for one in answers) else 0


def _filtered(
    one: BrokerAnswer[CleanerDescription], *, only_failed: bool
) -> BrokerAnswer[CleanerDescription]:
    if not only_failed or one.answer is None:
        return one
    logs = {at: log for at, log in one.answer.logs.items() if log.state in UNCLEANED}
    fields = {name: getattr(one.answer, name) for name in CleanerDescription.__slots__}
    return BrokerAnswer(one.broker, CleanerDescription(**{**fields, "logs": logs}))


def _check_compacted(
    names: Iterable[str], answers: Iterable[BrokerAnswer[CleanerDescription]]
) -> None:
    """Raise RefusedError if a topic that the command names is not compacted."""
    if not names:
        return
    for one in answers:
        for at, log in one.answer.logs.items() if one.answer else ():
            if log.state == "not compacted":
                raise not_compacted(at.topic)


def _print_status(answers: Iterable[BrokerAnswer[CleanerDescription]]) -> None:
    described = [one.answer for one in answers if one.answer is not None]
    logs = sorted((at, found.node, found.now_ms) for found in described for at in found.logs)
    by_node = {found.node: found.logs for found in described}
    rows = [(*at, node, *_cells(by_node[node][at], now_ms)) for at, node, now_ms in logs]
    print_table(COLUMNS, rows)
    say()
    for found in described:
        died = f", workers that died: {found.died_worker_count}" * bool(found.died_worker_count)
        say(
            f"broker {found.node}: {counted(found.thread_count, 'cleaner')}; since its start "
            f"passes: {found.pass_count}, failed: {found.failure_count}, before: "
            f"{amount(found.read_bytes)}, after: {amount(found.written_bytes)}{died}"
        )


def _cells(log: LogCleaning, now_ms: int) -> tuple[object, ...]:
    last = log.last
    # The figures of the last pass are in JSON and in the output of `run`: sentences need the room.
    passed = None if last is None else Milliseconds(max(0, now_ms - last.ended_ms))
    reason = log.reason
    if log.retry_in_ms is not None:
        reason = f"{reason} (tried again in {duration(log.retry_in_ms)})"
    return (
        log.state,
        100 * log.dirty_ratio,
        ByteCount(log.clean_bytes),
        ByteCount(log.cleanable_bytes),
        passed,
        reason,
    )


def _broker_json(one: BrokerAnswer[CleanerDescription]) -> dict[str, Any]:
    if one.answer is None:
        return {"broker": one.broker, "failure": one.failure, "logs": []}
    found = asdict(one.answer)
    del found["node"], found["logs"]
    return {
        "broker": one.broker,
        "failure": "",
        **found,
        "logs": [
            {**at._asdict(), **_log_json(log, one.answer.now_ms)}
            for at, log in sorted(one.answer.logs.items())
        ],
    }


def _log_json(log: LogCleaning, now_ms: int) -> dict[str, Any]:
    fields = {name: getattr(log, name) for name in LogCleaning.__slots__ if name != "last"}
    last = None if log.last is None else _pass_json(log.last, now_ms)
    return {**fields, "dirty_ratio": log.dirty_ratio, "last_pass": last}


def _pass_json(last: CleaningPass, now_ms: int) -> dict[str, Any]:
    return {
        **last._asdict(),
        "saved_bytes": last.saved_bytes,
        "ended_ms_ago": max(0, now_ms - last.ended_ms),
    }


ALL_LOGS = option("names TOPIC[:PARTITION]", "topics or partitions (default: all)", nargs="*")
BROKER = option("--broker ID", "node.id of a broker (default: all)", type=int)
VERBS = (
    admin_verb(
        "status",
        "show dirty ratios, last passes, and the reasons why logs are not compacted",
        status,
        option("--failed", "show only logs whose compaction failed"),
        ALL_LOGS,
        BROKER,
    ),
    admin_verb(
        "run",
        "compact logs now, whatever their dirty ratio; their active segments are closed",
        run_passes,
        option("--no-wait", "return when the passes are requested"),
        option(
            "--timeout DURATION",
            "time to wait for the passes, which continue afterwards (default: 10m)",
            default="10m",
        ),
        option("names TOPIC[:PARTITION] ...", "topics or partitions"),
        BROKER,
    ),
    admin_verb("retry", "retry logs whose compaction failed", retry, ALL_LOGS, BROKER),
)
