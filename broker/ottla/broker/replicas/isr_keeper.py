"""Decides which ISR changes to request from the controller, and applies the responses.

Pure. A replica joins the ISR as soon as it has caught up (`note`). Lag is checked every half of
`replica.lag.time.max.ms`. Pauses of this process are subtracted from the lag. Otherwise a leader
would find all other replicas late after a pause.

One request is in flight at a time, with every partition whose change is due (`changes`). A
partition has at most one pending change until its outcome is known (`on_answer`). If a response is
lost (`on_silence`), the request is repeated with the same changes, until metadata with newer
partition epochs arrives. Dropping a change would also drop the maximal ISR, which protects the high
watermark.
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
from ottla.telemetry.metrics.instruments import Counter

logger = logging.getLogger("ottla.broker.isr")

RETRY_MS_FIRST = 50
RETRY_MS_MAX = 1_000
"""Maximum milliseconds between two attempts to send ISR changes. With a smaller value, a recovered
controller is found sooner. With a larger value, an overloaded controller gets fewer requests."""

REJECTED_PAUSE_MS = 500
"""Time in milliseconds before a partition's ISR change is requested again after the controller
rejected it. The controller rejects a change if it has fenced a replica's broker already; the
metadata with the fencing arrives soon after."""

TICK_MS_MAX = 1_000
"""Maximum milliseconds between two checks whether this process was paused. Shorter pauses are not
noticed."""

CHANGES_PER_REQUEST_MAX = 2_000
"""Maximum number of ISR changes in one request, and thus in one record batch of the controller.
Further changes are in the next request."""

Changes = Mapping[Partition, IsrChange]


class IsrKeeper:
    """ISR changes of the partitions that this broker leads: changes that are due, unanswered or
    rejected."""

    def __init__(
        self, table: PartitionTable, config: BrokerConfig, broker_epoch: Callable[[], int]
    ) -> None:
        """Create the keeper without ISR changes. `broker_epoch` returns the epoch under which this
        broker is registered at the controller."""
        self._table = table
        self._node_id = config.node_id
        self._broker_epoch = broker_epoch
        self._check_ms = max(1, config.replica_lag_time_ms_max // 2)
        self.tick_ms = min(TICK_MS_MAX, self._check_ms)
        """Milliseconds between two calls of `on_time`, which checks the lag of followers."""
        self.on_due: Callable[[], None] = lambda: None
        """Function that is called when `changes` may return an ISR change to send."""
        self._due: dict[Partition, None] = {}
        self._unanswered: dict[Partition, IsrChange] = {}
        self._rejected_until_ms: dict[Partition, int] = {}
        self._planned_ms = 0
        self._check_at_ms = 0
        self._retry_ms = RETRY_MS_FIRST
        self._retry_at_ms: int | None = None
        self._logged_silence = ""
        self.shrinks = Counter()
        """Counter of successful ISR changes that removed a replica."""
        self.expands = Counter()
        """Counter of successful ISR changes that added a replica."""
        self.failures = Counter()
        """Counter of ISR changes that the controller did not make."""

    @property
    def unanswered(self) -> Changes:
        """ISR changes that were sent to the controller and not answered yet."""
        return self._unanswered

    def note(self, partition: Partition) -> None:
        """Mark a partition for the next call of `changes`, because its ISR may have to grow or the
        controller must confirm its state."""
        if partition.pending_change is None and partition not in self._rejected_until_ms:
            self._due[partition] = None
            self.on_due()

    # ---- time

    def start(self, now_ms: int) -> None:
        """Start the interval that ends with the first check of the followers' lag."""
        self._planned_ms = now_ms + self.tick_ms
        self._check_at_ms = now_ms + self._check_ms

    def on_time(self, now_ms: int) -> None:
        """Review partitions whose pause after a rejected change is over. If a lag check is due,
        begin the ISR changes for lagging replicas.

        If the call is late by more than one interval, this process was paused. The pause is then
        not counted as lag, and the lag check is postponed.
        """
        self.end_pauses(now_ms)
        late_ms = now_ms - self._planned_ms
        if late_ms > self.tick_ms:
            self._extend_catch_up_times(late_ms, now_ms)
            self._check_at_ms = now_ms + self._check_ms
        elif now_ms >= self._check_at_ms:
            self._check_at_ms = now_ms + self._check_ms
            self.begin_isr_shrinks(now_ms)
        self._planned_ms = now_ms + self.tick_ms

    def _extend_catch_up_times(self, elapsed_ms: int, now_ms: int) -> None:
        logger.warning(
            "this broker was paused for %d ms; no follower counts as late because of that",
            elapsed_ms,
        )
        for partition in self._table:
            partition.extend_catch_up_time(elapsed_ms, now_ms)

    def begin_isr_shrinks(self, now_ms: int) -> None:
        """Begin an ISR change for every partition whose ISR contains a lagging replica."""
        for partition in self._table:
            self._begin(partition, now_ms, may_shrink=True)
        if self._unanswered:
            self.on_due()

    def end_pauses(self, now_ms: int) -> None:
        """Check the partitions again whose ISR changes the controller rejected more than
        REJECTED_PAUSE_MS ago."""
        ended = [one for one, until_ms in self._rejected_until_ms.items() if until_ms <= now_ms]
        for partition in ended:
            del self._rejected_until_ms[partition]
            self.note(partition)

    def _begin(self, partition: Partition, now_ms: int, *, may_shrink: bool) -> None:
        wanted = partition.wanted_isr(now_ms, may_shrink=may_shrink)
        if wanted is not None and partition not in self._rejected_until_ms:
            logger.info("%r: from ISR %s to %s", partition, sorted(partition.isr), sorted(wanted))
            self._unanswered[partition] = partition.begin_isr_change(wanted, self._broker_epoch())

    # ---- requests

    def changes(self, now_ms: int) -> Changes:
        """Return the ISR changes to send now: first the changes without a response, then the new
        changes."""
        for partition, change in list(self._unanswered.items()):
            if partition.pending_change is not change:
                # Metadata has overtaken the change.  Another change may be due instead.
                del self._unanswered[partition]
                self._due[partition] = None
        due, self._due = self._due, {}
        for partition in due:
            self._begin(partition, now_ms, may_shrink=False)
        return dict(list(self._unanswered.items())[:CHANGES_PER_REQUEST_MAX])

    def request(self, changes: Changes) -> pb.AlterPartitionRequest:
        """Return one AlterPartition request for all of `changes`."""
        return request_of(self._node_id, self._broker_epoch(), changes.values())

    def pause_ms(self, now_ms: int) -> int:
        """Return the time in milliseconds until the next request for ISR changes. A failed request
        is not repeated at once. Changes that become due in the meantime are part of the next
        request."""
        return 0 if self._retry_at_ms is None else max(0, self._retry_at_ms - now_ms)

    def on_silence(self, reason: str, now_ms: int) -> None:
        """Back off after a request for ISR changes without a response. The changes are kept, and
        sent again after the back-off."""
        if reason != self._logged_silence:
            self._logged_silence = reason
            logger.warning("ISR changes are unanswered and will be repeated: %s", reason)
        self._back_off(now_ms)

    def _back_off(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + self._retry_ms
        self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)

    def on_answer(self, changes: Changes, response: pb.AlterPartitionResponse, now_ms: int) -> None:
        """Apply the controller's answers to ISR changes. Changes without an answer are sent
        again."""
        results = results_of(response)
        is_whole = True
        for partition, change in changes.items():
            result = results.get((change.topic_id.bytes, change.index))
            outcome = ChangeOutcome.UNKNOWN if result is None else outcome_of(result.error_code)
            if result is None or outcome is ChangeOutcome.UNKNOWN:
                is_whole = False
                # Move it to the end, so that an undecidable change does not keep others out of the
                # request.
                self._unanswered[partition] = self._unanswered.pop(partition)
                continue
            if self._unanswered[partition] is change:
                del self._unanswered[partition]
            self._apply_change(partition, change, outcome, result, now_ms)
            # Other replicas may have caught up meanwhile.  This has no effect while an OVERTAKEN
            # change is pending.
            self.note(partition)
        self._logged_silence = ""
        if is_whole:
            self._retry_ms, self._retry_at_ms = RETRY_MS_FIRST, None
        else:
            self._back_off(now_ms)

    def _apply_change(
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
