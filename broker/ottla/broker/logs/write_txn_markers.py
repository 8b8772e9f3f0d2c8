"""WriteTxnMarkers: appends commit and abort markers to the partitions of a transaction.

Pure. Each marker is a separate control batch. The request is answered when its markers are
committed, because the last stable offset has advanced by then. Markers for `__consumer_offsets` are
passed to the group coordinator, which commits or drops the pending transactional offsets.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.seams import Clock
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.purgatory import SETTLED_PER_COST, Purgatory, WaitingEntry
from ottla.node.network.steps import Answer, StepPace, begun
from ottla.wire.batch_builder import ControlType, build_end_transaction_marker
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
)
from ottla.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

MARKER_COST = 10
"""Cost of writing one transaction marker, relative to the cost of one entry in a response."""

COORDINATOR_ERRORS = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
"""Error codes from the group coordinator which mean that this broker does not coordinate the
group."""


class TransactionEnd(NamedTuple):
    """Content of a transaction marker, which ends a transaction in a partition."""

    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: Epoch
    transaction_version: int

    @property
    def is_of_producer(self) -> bool:
        """True if the marker has a valid producer id and a valid producer epoch. Negative values
        are invalid."""
        return self.producer_id >= 0 and self.producer_epoch >= 0

    def batch(self, now_ms: int) -> bytes:
        """Return the control batch that contains the transaction marker."""
        return build_end_transaction_marker(
            ControlType.COMMIT if self.is_commit else ControlType.ABORT,
            timestamp_ms=now_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            coordinator_epoch=self.coordinator_epoch,
        )


class MarkerBytes(NamedTuple):
    """Transaction marker with its control batch. Each partition gets the same bytes; its log sets
    the offset."""

    end: TransactionEnd
    wall_ms: int
    """Wall time in milliseconds, which is the timestamp of the marker."""
    batch: bytes
    """Control batch of the marker. Empty if no log gets it: the producer is invalid, or only
    partitions of `__consumer_offsets` are named."""


class OffsetsMarkers(Protocol):
    """Part of the group coordinator that handles transaction markers for committed offsets."""

    def end_transaction(
        self, index: int, end: TransactionEnd, responder: Callable[[ErrorCode], None]
    ) -> None:
        """End a transaction in a partition of `__consumer_offsets`. Calls `responder` with the
        resulting error code."""
        ...


class MarkerRequest:
    """A WriteTxnMarkers request in progress, with its response and the number of markers whose
    result is still unknown."""

    __slots__ = ("_context", "_open_count", "response")

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._open_count = 1
        """Number of transaction markers without an outcome, plus one while the request itself is
        being processed."""
        self.response = WriteTxnMarkersResponse()

    def begin(self) -> None:
        """Count a transaction marker whose outcome is not known yet."""
        self._open_count += 1

    def settle(self) -> None:
        """Count a transaction marker whose result is known. Sends the response after the last
        marker of the request."""
        self._open_count -= 1
        if not self._open_count:
            self._context.complete(self.response)


class WaitingMarker(NamedTuple):
    """Transaction marker that is written and not yet committed."""

    partition: Partition
    end_offset: Offset
    answer: WritableTxnMarkerPartitionResult


class WaitingMarkers(WaitingEntry):
    """Uncommitted transaction markers of a WriteTxnMarkers request, which waits in the
    purgatory."""

    __slots__ = ("_context", "_open", "_request")
    kind = "WriteTxnMarkers"

    def __init__(
        self, request: MarkerRequest, context: RequestContext, markers: list[WaitingMarker]
    ) -> None:
        super().__init__()
        self._request = request
        self._context = context
        self._open = markers

    @property
    def cost(self) -> int:
        """Number of transaction markers that are not committed yet. Checking a marker costs about
        as much as reading one partition in a fetch."""
        return 1 + len(self._open) // SETTLED_PER_COST

    def try_complete(self) -> bool:
        """Send the WriteTxnMarkers response if the outcome of every marker is known. Returns True
        if it was sent."""
        still_open = []
        for waiting in self._open:
            code = waiting.partition.acknowledgement(waiting.end_offset, ACKS_ALL)
            if code is None:
                still_open.append(waiting)
            else:
                waiting.answer.error_code = code
        self._open = still_open
        if still_open:
            return False
        self._request.settle()
        return True

    def on_expire(self) -> None:
        """Set REQUEST_TIMED_OUT for the transaction markers that are still waiting, and answer the
        request. The coordinator sends these markers again."""
        for waiting in self._open:
            waiting.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._request.settle()

    def on_fault(self, fault: Exception) -> None:
        """Close the coordinator's connection after an unexpected error, since the outcome of the
        markers is unknown."""
        self._context.fail(fault)


class WriteTxnMarkersApi:
    """Handler of WriteTxnMarkers, versions 1 and 2."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        offsets: OffsetsMarkers,
        timeout_ms: int,
    ) -> None:
        """Create the handler. `timeout_ms` is the maximum time in milliseconds that a marker may
        wait for the in-sync replicas."""
        self._table = table
        self._purgatory = purgatory
        self._clock = clock
        self._offsets = offsets
        self._timeout_ms = timeout_ms

    def handle(self, context: RequestContext, request: WriteTxnMarkersRequest) -> HandlerResult:
        """Write every transaction marker in the request, and answer when all are committed."""
        return begun(self._write_all(context, request))

    def _write_all(self, context: RequestContext, request: WriteTxnMarkersRequest) -> Answer:
        pace = StepPace()
        waiting: list[WaitingMarker] = []
        answered = MarkerRequest(context)
        for marker in request.markers:
            built = self._built(marker)
            topics = []
            for topic in marker.topics:
                partitions = []
                for index in topic.partition_indexes:
                    answer = WritableTxnMarkerPartitionResult(partition_index=index)
                    partitions.append(answer)
                    self._write(answered, topic.name, built, answer, waiting)
                    if pace.is_due(MARKER_COST):
                        yield
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
                if pace.is_due():
                    yield
            answered.response.markers.append(
                WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)
            )
            if pace.is_due():
                yield
        if waiting:
            self._wait(context, answered, waiting)
        answered.settle()
        return None

    def _wait(
        self, context: RequestContext, answered: MarkerRequest, waiting: list[WaitingMarker]
    ) -> None:
        answered.begin()
        entry = WaitingMarkers(answered, context, waiting)
        if entry.try_complete():
            return
        self._purgatory.watch(
            {marker.partition.high_watermark_key for marker in waiting},
            entry,
            context.arrived_ms + self._timeout_ms,
        )
        context.on_abandoned = lambda: self._purgatory.cancel(entry)

    def _write(
        self,
        answered: MarkerRequest,
        topic: str,
        built: MarkerBytes,
        answer: WritableTxnMarkerPartitionResult,
        waiting: list[WaitingMarker],
    ) -> None:
        """Write one transaction marker to its partition, or pass it to the group coordinator."""
        end = built.end
        if topic == OFFSETS_TOPIC and end.is_of_producer:
            answered.begin()

            def settle(code: ErrorCode) -> None:
                is_elsewhere = code in COORDINATOR_ERRORS
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else code
                answered.settle()

            self._offsets.end_transaction(answer.partition_index, end, settle)
            return
        try:
            partition = self._table.find(topic, answer.partition_index)
            end_offset = self._append(partition, built)
        except RefusedError as refusal:
            answer.error_code = refusal.code
        else:
            waiting.append(WaitingMarker(partition, end_offset, answer))

    def _append(self, partition: Partition, built: MarkerBytes) -> Offset:
        partition.leader_log()
        if not built.end.is_of_producer:
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)  # The same error code as Kafka's.
        if partition.is_internal:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if len(partition.isr) < partition.min_isr_count:
            raise RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return partition.append_of_coordinator(
            built.batch,
            now_ms=built.wall_ms,
            mono_ms=self._clock.monotonic_ms(),
            transaction_version=built.end.transaction_version,
        )

    def _built(self, marker: WritableTxnMarker) -> MarkerBytes:
        end = TransactionEnd(
            ProducerId(marker.producer_id),
            marker.producer_epoch,
            marker.transaction_result,
            Epoch(marker.coordinator_epoch),
            marker.transaction_version,
        )
        wall_ms = self._clock.wall_ms()
        is_written = end.is_of_producer and any(one.name != OFFSETS_TOPIC for one in marker.topics)
        return MarkerBytes(end, wall_ms, end.batch(wall_ms) if is_written else b"")
