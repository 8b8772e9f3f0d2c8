"""DeleteRecords: raises the log start offset of partitions (KIP-107). Segments that end below the
new start offset are deleted later.

Pure except for awaiting the log. A response without an error means that the records are deleted on
every live replica. The request waits in the purgatory until each live replica has raised its log
start offset too, which followers report in their fetches. The request does not wait for a replica
on a fenced or shutting-down broker. Such a replica raises its offset when its broker is back.
"""

from typing import Any, NamedTuple

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.purgatory import SETTLED_PER_COST, Purgatory, WaitingEntry
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import STEP_COST, Answer, StepPace, begun
from ottla.storage.log.log import Log
from ottla.wire.messages.delete_records_request import DeleteRecordsRequest
from ottla.wire.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1
"""Special offset in a DeleteRecords request that denotes the high watermark. All committed records
are then deleted."""

NO_LOW_WATERMARK = -1


class PendingDeletion:
    """Partition in a DeleteRecords request whose records are deleted on the leader, but perhaps not
    yet on all replicas."""

    __slots__ = ("before", "partition", "result")

    def __init__(
        self, partition: Partition, before: Offset, result: DeleteRecordsPartitionResult
    ) -> None:
        self.partition = partition
        self.before = before
        self.result = result

    def is_settled(self) -> bool:
        """Return whether the outcome of this deletion is known: all replicas have deleted the
        records, or this broker no longer leads the partition. Updates the response if the outcome
        is known."""
        if not self.partition.is_leader:
            _refuse(self.result, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        self.result.low_watermark = self.partition.low_watermark
        return self.result.low_watermark >= self.before


class WaitingDeletion(WaitingEntry):
    """DeleteRecords request whose records are deleted on the leader, but perhaps not yet on all
    replicas."""

    __slots__ = ("_is_large", "_open", "_response", "_slot")
    kind = "DeleteRecords"

    def __init__(
        self,
        slot: ResponseSlot,
        response: DeleteRecordsResponse,
        open_partitions: list[PendingDeletion],
    ) -> None:
        super().__init__()
        entry_count = len(response.topics) + sum(len(one.partitions) for one in response.topics)
        self._is_large = entry_count > STEP_COST
        self._slot = slot
        self._response = response
        self._open = open_partitions

    @property
    def cost(self) -> int:
        """Number of partitions of the request whose deletion is not complete. Checking a partition
        costs about as much as reading one partition in a fetch."""
        return 1 + len(self._open) // SETTLED_PER_COST

    def try_complete(self) -> bool:
        """Send the DeleteRecords response if the outcome of every partition is known. Returns True
        if it was sent."""
        self._open = [waiting for waiting in self._open if not waiting.is_settled()]
        if self._open:
            return False
        self._answer()
        return True

    def on_expire(self) -> None:
        """Answer the DeleteRecords request at its timeout, with REQUEST_TIMED_OUT for the
        partitions that are still waiting."""
        for waiting in self._open:
            if not waiting.is_settled():
                _refuse(waiting.result, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def on_fault(self, fault: Exception) -> None:
        """Close the client's connection after an unexpected error, since the outcome of the
        deletion is unknown."""
        self._slot.fail(fault)

    def _answer(self) -> None:
        if self._is_large:
            self._slot.complete_large(self._response)
        else:
            self._slot.complete(self._response)


DELETIONS_PER_STEP = 50
"""Number of partitions of a DeleteRecords request that are handled per event-loop iteration, so
that other requests are not delayed."""


class Deletion(NamedTuple):
    """Partition in a DeleteRecords request, and its entry in the response."""

    topic: str
    offset: Offset
    result: DeleteRecordsPartitionResult


class DeleteRecordsApi:
    """Handler of DeleteRecords, versions 0 to 2."""

    def __init__(self, *, table: PartitionTable, purgatory: Purgatory) -> None:
        self._table = table
        self._purgatory = purgatory

    def handle(self, context: RequestContext, request: DeleteRecordsRequest) -> HandlerResult:
        """Delete the requested records of each partition. Sends the response when all replicas have
        deleted them, or at the timeout.

        If the request names a partition twice, the last offset counts, as in Kafka.
        """
        return begun(self._serve(context, request))

    def _serve(self, context: RequestContext, request: DeleteRecordsRequest) -> Answer:
        pace = StepPace()
        response = DeleteRecordsResponse()
        asked: dict[str, dict[int, Offset]] = {}
        for topic in request.topics:
            offsets = asked.setdefault(topic.name, {})
            for one in topic.partitions:
                offsets[one.partition_index] = Offset(one.offset)
                if pace.is_due():
                    yield
            if pace.is_due():
                yield
        left: list[Deletion] = []
        for name, offsets in asked.items():
            results = []
            for index, offset in offsets.items():
                result = DeleteRecordsPartitionResult(
                    partition_index=index, low_watermark=NO_LOW_WATERMARK
                )
                results.append(result)
                left.append(Deletion(name, offset, result))
                if pace.is_due():
                    yield
            response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
            if pace.is_due():
                yield
        deleted: list[PendingDeletion] = []
        return self._delete_some(context, request, response, left, deleted)

    async def _delete_some(
        self,
        context: RequestContext,
        request: DeleteRecordsRequest,
        response: DeleteRecordsResponse,
        left: list[Deletion],
        deleted: list[PendingDeletion],
    ) -> Any:
        """Delete records of up to DELETIONS_PER_STEP partitions. Returns a coroutine for the
        remaining partitions, or None.

        All log start offsets are raised before the first one is flushed, so that one disk write
        makes all of them durable.
        """
        begun: list[tuple[Log, PendingDeletion]] = []
        for one in left[:DELETIONS_PER_STEP]:
            try:
                partition = self._table.find(one.topic, one.result.partition_index)
                log, before = _begin_deletion(partition, one.offset)
            except RefusedError as error:
                _refuse(one.result, error.code)
            else:
                begun.append((log, PendingDeletion(partition, before, one.result)))
        for log, waiting in begun:
            try:
                await log.delete_records_before(waiting.before)
            except RefusedError as error:
                _refuse(waiting.result, error.code)
            else:
                waiting.partition.on_start_raised()
                deleted.append(waiting)
        rest = left[DELETIONS_PER_STEP:]
        if rest:
            return self._later(context, request, response, rest, deleted)
        entry = WaitingDeletion(context, response, deleted)
        if not entry.try_complete() and not context.is_abandoned:
            self._purgatory.watch(
                {waiting.partition.high_watermark_key for waiting in deleted},
                entry,
                context.arrived_ms + max(0, request.timeout_ms),
            )
            context.on_abandoned = lambda: self._purgatory.cancel(entry)
        return None

    def _later(self, *state: Any) -> Answer:
        yield
        return self._delete_some(*state)


def _begin_deletion(partition: Partition, asked: Offset) -> tuple[Log, Offset]:
    """Raise the log start offset of a partition that this broker leads. Returns the log and its new
    start offset.

    Raises RefusedError if records of the partition cannot be deleted, or if the requested offset
    `asked` is out of range.
    """
    if partition.is_internal:
        raise RefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Cannot delete records of internal topic {partition.topic}",
        )
    log = partition.leader_log()
    policy = partition.config.cleanup_policy
    if policy and "delete" not in policy:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete"
        )
    before = log.high_watermark if asked == HIGH_WATERMARK else asked
    if not 0 <= before <= log.high_watermark:
        raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.raise_log_start(before)
    return log, before


def _refuse(result: DeleteRecordsPartitionResult, code: ErrorCode) -> None:
    result.error_code = code
    result.low_watermark = NO_LOW_WATERMARK
