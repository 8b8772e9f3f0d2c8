"""Decides which in-sync replicas to propose to the controller, and what its answers mean.

Pure.  A replica joins as soon as it has caught up (`note`); lag is looked for every half of
`replica.lag.time.max.ms`, by a clock that is set right where this process stood still: a leader
that wakes from a pause must not find all others late.

One request is under way at a time, with every partition whose change is due (`changes`); a
partition has one change under way until its outcome is known (`on_answer`).  A request whose answer
is lost (`on_silence`) is repeated with the same changes, for as long as no metadata has overtaken
them: dropping one would drop the guard it is for the high watermark.
"""

import logging
from collections.abc import Callable, Mapping

from ottla.broker.replicas.isr_changes import (
    ChangeOutcome,
    IsrChange,
    outcome_of,
    request_of,
    results_of,
)
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.proto import controller_pb2 as pb
from ottla.telemetry.instruments import Counter

logger = logging.getLogger("ottla.broker.isr")

RETRY_MS_FIRST = 50
RETRY_MS_MAX = 1_000
"""Lower reaches a recovered controller sooner; higher spares one that is in trouble."""

REJECTED_PAUSE_MS = 500
"""How long a partition waits whose change the controller rejected: it knows of a fenced broker
before we do, and the metadata that tells us is on its way."""

TICK_MS_MAX = 1_000
"""How often the clock is checked for a pause; a shorter pause than this is not noticed."""

CHANGES_PER_REQUEST_MAX = 2_000
"""Bounds one request, and one batch of the controller; more go with the next."""

Changes = Mapping[Partition, IsrChange]


class IsrKeeper:
    """The ISR changes of this broker's partitions: due, unanswered and rejected."""

    def __init__(
        self, table: PartitionTable, config: BrokerConfig, broker_epoch: Callable[[], int]
    ) -> None:
        """`broker_epoch` returns this broker's own, as registered."""
        self._table = table
        self._node_id = config.node_id
        self._broker_epoch = broker_epoch
        self._check_ms = max(1, config.replica_lag_time_ms_max // 2)
        self.tick_ms = min(TICK_MS_MAX, self._check_ms)
        """Time between two calls of `on_time`."""
        self.on_due: Callable[[], None] = lambda: None
        """Called when `changes` may return something."""
        self._due: dict[Partition, None] = {}
        self._unanswered: dict[Partition, IsrChange] = {}
        self._rejected_until_ms: dict[Partition, int] = {}
        self._planned_ms = 0
        self._check_at_ms = 0
        self._retry_ms = RETRY_MS_FIRST
        self._retry_at_ms: int | None = None
        self._logged_silence = ""
        self.shrinks = Counter()
        """Changes made that took a replica out."""
        self.expands = Counter()
        """Changes made that took a replica in."""
        self.failures = Counter()
        """Changes that the controller did not make."""

    @property
    def unanswered(self) -> Changes:
        """The changes that the controller was or will be asked for, and has not answered."""
        return self._unanswered

    def note(self, partition: Partition) -> None:
        """Have `changes` check whether the partition's ISR should grow or be confirmed."""
        if partition.pending_change is None and partition not in self._rejected_until_ms:
            self._due[partition] = None
            self.on_due()

    # ---- time

    def start(self, now_ms: int) -> None:
        """Begin to watch the clock."""
        self._planned_ms = now_ms + self.tick_ms
        self._check_at_ms = now_ms + self._check_ms

    def on_time(self, now_ms: int) -> None:
        """End pauses of rejected changes; look for lag when that is due and the clock did not jump.

        A tick that is late by more than another one means that this process stood still.
        """
        self.end_pauses(now_ms)
        late_ms = now_ms - self._planned_ms
        if late_ms > self.tick_ms:
            self._forgive(late_ms, now_ms)
            self._check_at_ms = now_ms + self._check_ms
        elif now_ms >= self._check_at_ms:
            self._check_at_ms = now_ms + self._check_ms
            self.look_for_lag(now_ms)
        self._planned_ms = now_ms + self.tick_ms

    def _forgive(self, elapsed_ms: int, now_ms: int) -> None:
        logger.warning("this broker stood still for %d ms; no follower is late for it", elapsed_ms)
        for partition in self._table:
            partition.forgive_lag(elapsed_ms, now_ms)

    def look_for_lag(self, now_ms: int) -> None:
        """Begin a change of every partition with a replica in sync that lags."""
        for partition in self._table:
            self._begin(partition, now_ms, may_shrink=True)
        if self._unanswered:
            self.on_due()

    def end_pauses(self, now_ms: int) -> None:
        """Note partitions again whose changes were rejected long enough ago."""
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

    def changes(self, now_ms: int) -> Changes:
        """Return the changes to send now: those without an answer again, then those newly due."""
        for partition, change in list(self._unanswered.items()):
            if partition.pending_change is not change:
                # Metadata has overtaken it; perhaps another change is due instead.
                del self._unanswered[partition]
                self._due[partition] = None
        due, self._due = self._due, {}
        for partition in due:
            self._begin(partition, now_ms, may_shrink=False)
        return dict(list(self._unanswered.items())[:CHANGES_PER_REQUEST_MAX])

    def request(self, changes: Changes) -> pb.AlterPartitionRequest:
        """Return the one request for all these changes."""
        return request_of(self._node_id, self._broker_epoch(), changes.values())

    def pause_ms(self, now_ms: int) -> int:
        """Return how long to wait before the next request: one that failed is not repeated at once.

        What becomes due meanwhile goes with it.
        """
        return 0 if self._retry_at_ms is None else max(0, self._retry_at_ms - now_ms)

    def on_silence(self, reason: str, now_ms: int) -> None:
        """Keep all changes of a request that was not answered, to be asked for again."""
        if reason != self._logged_silence:
            self._logged_silence = reason
            logger.warning("ISR changes are not answered, repeated until then: %s", reason)
        self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)

    def on_answer(self, changes: Changes, response: pb.AlterPartitionResponse, now_ms: int) -> None:
        """Put the answers in force; what is not answered among them is asked for again."""
        results = results_of(response)
        is_whole = True
        for partition, change in changes.items():
            result = results.get((change.topic_id.bytes, change.index))
            outcome = ChangeOutcome.UNKNOWN if result is None else outcome_of(result.error_code)
            if result is None or outcome is ChangeOutcome.UNKNOWN:
                is_whole = False
                # To the end: what cannot be decided must not keep others out of the request.
                self._unanswered[partition] = self._unanswered.pop(partition)
                continue
            if self._unanswered[partition] is change:
                del self._unanswered[partition]
            self._put_in_force(partition, change, outcome, result, now_ms)
            # Others may have caught up meanwhile; while OVERTAKEN is open this does nothing.
            self.note(partition)
        self._logged_silence = ""
        if is_whole:
            self._retry_ms, self._retry_at_ms = RETRY_MS_FIRST, None
        else:
            self._back_off(now_ms)

    def _put_in_force(
        self,
        partition: Partition,
        change: IsrChange,
        outcome: ChangeOutcome,
        result: pb.AlterPartitionResult,
        now_ms: int,
    ) -> None:
        if outcome is ChangeOutcome.APPLIED:
            self._count(partition.isr, frozenset(result.isr))
            partition.complete_isr_change(
                change,
                result.isr,
                leader_epoch=result.leader_epoch,
                partition_epoch=result.partition_epoch,
                now_ms=now_ms,
            )
            return
        self.failures.value += 1
        code = ErrorCode(result.error_code).name
        logger.info("%r: ISR %s: %s", partition, sorted(change.isr), code)
        if outcome is ChangeOutcome.REJECTED:
            partition.abandon_isr_change(change, now_ms)
            self._rejected_until_ms[partition] = now_ms + REJECTED_PAUSE_MS

    def _count(self, old: frozenset[NodeId], new: frozenset[int]) -> None:
        self.shrinks.value += not old <= new
        self.expands.value += not new <= old
