"""`ottla cleaner run`: requests compaction passes from brokers, waits for them, and shows their
results."""

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import trio

from ottla.cli.cluster.cleaning.cleaner_targets import ask_each, named_refusal, replicas_of
from ottla.cli.common import counted, print_json
from ottla.cli.tables import ByteCount, Milliseconds, print_table
from ottla.cli.terminal import draw, is_watched, note, wipe
from ottla.cli.times import parse_duration
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_cleaner import (
    CleanerDescription,
    CleaningAnswer,
    CleaningPass,
    LogCleaning,
)
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, TopicPartition

OK, UNHEALTHY, UNREACHABLE, UNKNOWN = 0, 2, 3, 4
LOOK_AGAIN_S = 0.25
COLUMNS = (
    "TOPIC",
    "PARTITION",
    "BROKER",
    "OUTCOME",
    "TOOK",
    "BEFORE",
    "AFTER",
    "DIRTY-%",
    "REASON",
)
NAMES_SHOWN = 3


class ReplicaAt(NamedTuple):
    """One replica of a partition: the id of its broker, and the partition."""

    at: TopicPartition
    broker: NodeId


@dataclass(slots=True)
class RequestedPass:
    """A replica for which a compaction pass was requested, and the outcome of that pass."""

    replica: ReplicaAt
    before: CleaningPass | None
    """Last completed compaction of the log before the requested compaction, or None if there was no
    earlier compaction."""
    outcome: str = ""
    """Outcome of the requested compaction pass. Empty until the pass has ended."""
    reason: str | None = None
    last: CleaningPass | None = None
    dirty_ratio: float | None = None
    is_cleaning: bool = False

    def look(self, log: LogCleaning | None) -> None:
        """Update the state of the requested compaction pass from the broker's description of the
        log. If `log` is None, the replica no longer exists."""
        if log is None:
            self.outcome, self.reason = "gone", "the replica is not on this broker any longer"
            return
        self.is_cleaning = log.state == "cleaning"
        if self.is_cleaning or (log.is_wanted and log.cleanable_bytes and log.state != "offline"):
            return
        self.dirty_ratio, self.reason = log.dirty_ratio, log.reason
        if log.state in ("failed", "set aside", "offline"):
            self.outcome = log.state
        elif log.last is not None and log.last != self.before:
            self.outcome, self.reason, self.last = "compacted", None, log.last
        elif log.cleanable_bytes:
            self.outcome = "ended early"
            self.reason = "the log was changed meanwhile, or its broker restarted; run it again"
        else:
            self.outcome = "nothing to do"


async def run_passes(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla cleaner run`: request compaction passes and wait until they end.

    Returns exit code 2 if a pass failed, 3 if a broker does not respond, 4 if a pass has not ended
    in time.
    """
    timeout_s = parse_duration("--timeout", arguments.timeout)
    targets = await replicas_of(admin, arguments.names, arguments.broker)
    asked, failures, refusals = await _begin(admin, targets)
    if refusals and not asked and not failures:
        raise refusals[0]
    silent = set[NodeId]()
    if not arguments.no_wait:
        with trio.move_on_after(timeout_s):
            silent = await _watch(admin, asked)
        if is_watched():
            wipe()
    asked.sort(key=lambda one: one.replica)
    if arguments.format == "json":
        print_json([_as_json(one, has_waited=not arguments.no_wait) for one in asked])
    elif asked:
        print_table(COLUMNS, [_row(one, has_waited=not arguments.no_wait) for one in asked])
    for sentence in (*failures, *refusals):
        note(f"ottla cleaner: {sentence}")
    if failures or silent:
        return UNREACHABLE
    if refusals or any(one.outcome in ("failed", "set aside", "offline") for one in asked):
        return UNHEALTHY
    waiting = [one for one in asked if not one.outcome]
    if waiting and not arguments.no_wait:
        note(
            f"{counted(len(waiting), 'replica')} not compacted within {arguments.timeout}; the "
            "passes go on, see 'ottla cleaner status'"
        )
        return UNKNOWN
    return OK


async def _begin(
    admin: Admin, targets: Mapping[NodeId, set[TopicPartition] | None]
) -> tuple[list[RequestedPass], list[str], list[RefusedError]]:
    """Request compaction passes from each broker. Returns the accepted passes, an error message for
    each broker that did not respond, and the refusals of brokers."""

    async def ask(
        broker: NodeId,
    ) -> tuple[CleanerDescription, Mapping[TopicPartition, CleaningAnswer]]:
        wanted = targets[broker] or set()
        before = await admin.describe_cleaner(broker, wanted)
        return before, await admin.clean_logs(broker, wanted)

    asked: list[RequestedPass] = []
    failures: list[str] = []
    refusals: dict[str, RefusedError] = {}
    for one in await ask_each(targets, ask):
        if one.answer is None:
            failures.append(one.failure)
            continue
        before, answers = one.answer
        for at, answer in sorted(answers.items()):
            if answer.refusal is not None:
                refusal = named_refusal(at, one.broker, answer.refusal)
                refusals[str(refusal)] = refusal
                continue
            log = before.logs.get(at)
            found = RequestedPass(ReplicaAt(at, one.broker), None if log is None else log.last)
            if answer.note is not None:
                found.outcome, found.reason = "nothing to do", answer.note
                found.dirty_ratio = 0.0
            asked.append(found)
    return asked, failures, list(refusals.values())


async def _watch(admin: Admin, asked: Iterable[RequestedPass]) -> set[NodeId]:
    """Poll the brokers until every requested compaction pass has ended. Returns the brokers that
    stopped responding."""
    asked, silent = list(asked), set[NodeId]()

    async def ask(broker: NodeId) -> CleanerDescription:
        partitions = [
            one.replica.at for one in asked if one.replica.broker == broker and not one.outcome
        ]
        return await admin.describe_cleaner(broker, partitions)

    while brokers := {one.replica.broker for one in asked if not one.outcome}:
        found = {answer.broker: answer for answer in await ask_each(brokers, ask)}
        for one in asked:
            answer = found.get(one.replica.broker)
            if one.outcome or answer is None:
                continue
            if answer.answer is None:
                silent.add(one.replica.broker)
                one.outcome, one.reason = "no answer", answer.failure
            else:
                one.look(answer.answer.logs.get(one.replica.at))
        if is_watched():
            draw(progress_of(asked))
        if any(not one.outcome for one in asked):
            await trio.sleep(LOOK_AGAIN_S)
    return silent


def progress_of(asked: Iterable[RequestedPass]) -> str:
    """Return a line of text with the progress of the requested compaction passes."""
    asked = list(asked)
    ended = [one for one in asked if one.outcome]
    names = [f"{one.replica.at} on broker {one.replica.broker}" for one in asked if one.is_cleaning]
    line = f"{len(ended)} of {counted(len(asked), 'replica')} done"
    if names:
        line += f"; cleaning {', '.join(names[:NAMES_SHOWN])}" + ", …" * (len(names) > NAMES_SHOWN)
    return line


def _row(one: RequestedPass, *, has_waited: bool) -> tuple[object, ...]:
    last = one.last
    passed: tuple[object, ...] = (None,) * 3
    if last is not None:
        took = Milliseconds(last.duration_ms)
        passed = (took, ByteCount(last.read_bytes), ByteCount(last.written_bytes))
    return (
        *one.replica.at,
        one.replica.broker,
        _outcome(one, has_waited=has_waited),
        *passed,
        None if one.dirty_ratio is None else 100 * one.dirty_ratio,
        one.reason,
    )


def _outcome(one: RequestedPass, *, has_waited: bool) -> str:
    return one.outcome or ("not ended" if has_waited else "asked for")


def _as_json(one: RequestedPass, *, has_waited: bool) -> dict[str, Any]:
    last = one.last
    return {
        **one.replica.at._asdict(),
        "broker": one.replica.broker,
        "outcome": _outcome(one, has_waited=has_waited),
        "reason": one.reason,
        "dirty_ratio": one.dirty_ratio,
        "pass": None if last is None else {**last._asdict(), "saved_bytes": last.saved_bytes},
    }
