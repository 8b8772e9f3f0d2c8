"""Keeps the in-sync replicas of what this broker leads: asks the controller to change them.

One request is under way at a time, with every partition whose change is due; a partition has one
change under way until its outcome is known.  A replica joins as soon as it has caught up (`note`);
lag is looked for every half of `replica.lag.time.max.ms`, by a clock that is set right where this
process stood still: a leader that wakes from a pause must not find everybody else late.

A request whose answer is lost is repeated with the same changes, for as long as no metadata has
overtaken them: dropping one would drop the guard it is for the high watermark.
"""

import logging
from collections.abc import Callable
from typing import Protocol

import trio

from ottla.broker.replicas.isr_changes import IsrChange, Outcome, outcome_of, request_of, results_of
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.background_driver import keep_running
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.proto import controller_pb2 as pb
from ottla.telemetry.instruments import Counter

logger = logging.getLogger("ottla.broker.isr")

REQUEST_TIMEOUT_MS = 2_000
"""Shorter asks a slow controller twice; longer waits longer on one that has just died."""

RETRY_MS_FIRST = 50
RETRY_MS_MAX = 1_000
"""Lower tells a recovered controller sooner; higher spares one that is in trouble."""

REJECTED_PAUSE_MS = 500
"""How long a partition waits whose change the controller rejected: it knows of a fenced broker
before we do, and the metadata that tells us is on its way."""

TICK_MS_MAX = 1_000
"""How often the clock is checked for a pause; a shorter pause than this is not noticed."""

CHANGES_PER_REQUEST_MAX = 2_000
"""Bounds one request, and one batch of the controller; more go with the next."""


class Controller(Protocol):
    """What it needs of the controller client."""

    async def alter_partition(
        self, request: pb.AlterPartitionRequest, *, deadline_ms: int
    ) -> pb.AlterPartitionResponse:
        """Have the active controller decide; RefusedError when there is no answer."""
        ...


class IsrKeeper:
    """Proposes the ISR changes of this broker's partitions, and puts the answers in force."""

    def __init__(
        self,
        table: PartitionTable,
        controller: Controller,
        clock: Clock,
        config: BrokerConfig,
        broker_epoch: Callable[[], int],
        errors: UnexpectedErrors | None = None,
    ) -> None:
        """`broker_epoch` returns this broker's own, as registered."""
        self._table = table
        self._controller = controller
        self._clock = clock
        self._config = config
        self._broker_epoch = broker_epoch
        self._errors = errors or UnexpectedErrors()
        self._due: dict[Partition, None] = {}
        self._unanswered: dict[Partition, IsrChange] = {}
        self._rejected_until_ms: dict[Partition, int] = {}
        self._is_due = trio.Event()
        self.shrinks = Counter()
        """Changes made that took a replica out."""
        self.expands = Counter()
        """Changes made that took a replica in."""
        self.failures = Counter()
        """Changes that the controller did not make."""

    def note(self, partition: Partition) -> None:
        """Have it looked at soon whether the partition's ISR should grow or be confirmed."""
        if partition.pending_change is None and partition not in self._rejected_until_ms:
            self._due[partition] = None
            self._is_due.set()

    async def run(self) -> None:
        """Keep the in-sync replicas until cancelled."""
        async with trio.open_nursery() as nursery:
            for name, work in (
                ("lag of replicas", self._check_regularly),
                ("changes of in-sync replicas", self._send_changes),
            ):
                nursery.start_soon(keep_running, name, work, self._errors)

    # ---- what is due

    async def _check_regularly(self) -> None:
        lag_ms = self._config.replica_lag_time_ms_max
        check_ms = max(1, lag_ms // 2)
        tick_ms = min(TICK_MS_MAX, check_ms)
        now_ms = self._clock.monotonic_ms()
        check_at_ms = now_ms + check_ms
        while True:
            planned_ms = now_ms + tick_ms
            await trio.sleep(tick_ms / 1000)
            now_ms = self._clock.monotonic_ms()
            self._end_pauses(now_ms)
            if now_ms - planned_ms > tick_ms:
                self._forgive(now_ms - planned_ms, now_ms)
                check_at_ms = now_ms + check_ms
            elif now_ms >= check_at_ms:
                check_at_ms = now_ms + check_ms
                self._look_for_lag(now_ms)

    def _forgive(self, elapsed_ms: int, now_ms: int) -> None:
        logger.warning("this broker stood still for %d ms; no follower is late for it", elapsed_ms)
        for partition in self._table:
            partition.forgive_lag(elapsed_ms, now_ms)

    def _look_for_lag(self, now_ms: int) -> None:
        for partition in self._table:
            self._begin(partition, now_ms, may_shrink=True)
        if self._unanswered:
            self._is_due.set()

    def _end_pauses(self, now_ms: int) -> None:
        ended = [one for one, until_ms in self._rejected_until_ms.items() if until_ms <= now_ms]
        for partition in ended:
            del self._rejected_until_ms[partition]
            self.note(partition)

    def _begin(self, partition: Partition, now_ms: int, *, may_shrink: bool) -> None:
        wanted = partition.wanted_isr(now_ms, may_shrink=may_shrink)
        if wanted is not None and partition not in self._rejected_until_ms:
            logger.info("%r: from ISR %s to %s", partition, sorted(partition.isr), sorted(wanted))
            self._unanswered[partition] = partition.begin_isr_change(wanted, self._broker_epoch())

    # ---- one request after the other

    async def _send_changes(self) -> None:
        retry_ms = RETRY_MS_FIRST
        said = ""
        if self._unanswered or self._due:
            self._is_due.set()
        while True:
            await self._is_due.wait()
            self._is_due = trio.Event()
            changes = self._changes()
            if not changes:
                continue
            try:
                response = await self._controller.alter_partition(
                    request_of(self._config.node_id, self._broker_epoch(), changes.values()),
                    deadline_ms=REQUEST_TIMEOUT_MS,
                )
            except RefusedError as error:
                is_answered = False
                if str(error) != said:
                    said = str(error)
                    logger.warning("ISR changes are not answered, repeated until then: %s", said)
            else:
                is_answered = self._take(changes, response)
                said = ""
            if is_answered:
                retry_ms = RETRY_MS_FIRST
            else:
                await trio.sleep(retry_ms / 1000)
                retry_ms = min(2 * retry_ms, RETRY_MS_MAX)
            if self._unanswered or self._due:
                self._is_due.set()

    def _changes(self) -> dict[Partition, IsrChange]:
        """Return what to ask now: first again what is open, then what has become due."""
        for partition, change in list(self._unanswered.items()):
            if partition.pending_change is not change:
                # Metadata has overtaken it; perhaps another change is due instead.
                del self._unanswered[partition]
                self._due[partition] = None
        now_ms = self._clock.monotonic_ms()
        due, self._due = self._due, {}
        for partition in due:
            self._begin(partition, now_ms, may_shrink=False)
        return dict(list(self._unanswered.items())[:CHANGES_PER_REQUEST_MAX])

    def _take(
        self, changes: dict[Partition, IsrChange], response: pb.AlterPartitionResponse
    ) -> bool:
        """Put the answers in force; return whether every change was answered."""
        now_ms = self._clock.monotonic_ms()
        results = results_of(response)
        is_whole = True
        for partition, change in changes.items():
            result = results.get((change.topic_id.bytes, change.index))
            outcome = Outcome.UNKNOWN if result is None else outcome_of(result.error_code)
            if result is None or outcome is Outcome.UNKNOWN:
                is_whole = False
                # To the end: what cannot be decided must not keep others out of the request.
                self._unanswered[partition] = self._unanswered.pop(partition)
                continue
            if self._unanswered[partition] is change:
                del self._unanswered[partition]
            if outcome is Outcome.APPLIED:
                self._count(partition.isr, frozenset(result.isr))
                partition.complete_isr_change(
                    change,
                    result.isr,
                    leader_epoch=result.leader_epoch,
                    partition_epoch=result.partition_epoch,
                    now_ms=now_ms,
                )
            else:
                self.failures.value += 1
                code = ErrorCode(result.error_code).name
                logger.info("%r: ISR %s: %s", partition, sorted(change.isr), code)
            if outcome is Outcome.REJECTED:
                partition.abandon_isr_change(change, now_ms)
                self._rejected_until_ms[partition] = now_ms + REJECTED_PAUSE_MS
            # Others may have caught up meanwhile; while OVERTAKEN is open this does nothing.
            self.note(partition)
        return is_whole

    def _count(self, old: frozenset[NodeId], new: frozenset[int]) -> None:
        self.shrinks.value += not old <= new
        self.expands.value += not new <= old
