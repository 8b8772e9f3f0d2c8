"""ListOffsets: returns the start or end offset of a partition, or the first record at or after a
timestamp.

Pure. Start and end offsets are returned at once. A lookup by timestamp may read index and log bytes
from disk. If only the object store has the oldest records, the lookup reads from the object store.
Lookups are awaited, and several lookups of a request run concurrently.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.tier.remote_fetches import NO_REMOTE_PORTS, RemotePorts
from ottla.broker.tier.remote_reads import NOTHING_COPIED, RemoteReadError, code_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, NO_OFFSET, Offset, OffsetAndEpoch
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.steps import (
    STEP_COST,
    VALUES_PER_STEP,
    Answer,
    StepPace,
    Steps,
    begun,
    used_up,
)
from ottla.storage.log.log import Log
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.storage.tier.store_seam import StoreError
from ottla.wire.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from ottla.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.offset_timestamps import (
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

VERSION_OF = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""First ListOffsets version in which a client may send each special timestamp. The keys are the
timestamps."""

OFFSET_NOT_AVAILABLE_FROM = 5
LEADER_EPOCHS_FROM = 4
READ_COMMITTED = 1
CONSUMER = -1
NO_TIMESTAMP = -1


LOOK_UPS_PER_STEP = 50
"""Maximum number of lookups of offsets by timestamp that run concurrently before other requests are
served. Each lookup may read an index or a part of a log."""

LookUps: TypeAlias = Sequence[Callable[[], Coroutine[Any, Any, None]]]

REMOTE_TIMEOUT_MS = 30_000
"""Default of remote.list.offsets.request.timeout.ms, in milliseconds."""


async def one_by_one(look_ups: LookUps) -> None:
    """Run lookups of offsets one after the other. Tests and simulations with at most one disk use
    this function."""
    for look_up in look_ups:
        await look_up()


class OffsetLookup(NamedTuple):
    """Partition in a ListOffsets request, and its entry in the response."""

    topic: str
    asked: ListOffsetsPartition
    answer: ListOffsetsPartitionResponse


class ListOffsetsApi:
    """Handler of ListOffsets, versions 1 to 11."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        run_all: Callable[[LookUps], Awaitable[None]] = one_by_one,
        remote: RemotePorts = NO_REMOTE_PORTS,
        remote_timeout_ms: int = REMOTE_TIMEOUT_MS,
    ) -> None:
        """Create the handler. `run_all` runs the given lookups by timestamp, and returns when all
        are done.

        `remote` reads copied segments. Each of its lookups is limited by the timeout in the
        request, or by `remote_timeout_ms` milliseconds if the request has no timeout.
        """
        self._table = table
        self._run_all = run_all
        self._remote = remote.reads
        self._within = remote.within
        self.remote_timeout_ms = remote_timeout_ms
        """Maximum time in milliseconds of a lookup in the object store, if a request has no timeout
        (remote.list.offsets.request.timeout.ms)."""

    def handle(self, context: RequestContext, request: ListOffsetsRequest) -> HandlerResult:
        """Answer the ListOffsets request at once if no timestamp needs a lookup in a log; otherwise
        answer when the lookups are done."""
        return begun(self._answer(context, request))

    def _answer(self, context: RequestContext, request: ListOffsetsRequest) -> Answer:
        pace = StepPace()
        named = yield from _counted(request, pace)
        response = ListOffsetsResponse()
        by_time: list[OffsetLookup] = []
        for topic in used_up(request.topics):
            answers = []
            for asked in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                answers.append(answer)
                is_named_twice = named[topic.name, asked.partition_index] > 1
                look_up = OffsetLookup(topic.name, asked, answer)
                if is_named_twice:
                    answer.error_code = ErrorCode.INVALID_REQUEST
                elif asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
                    if self._is_here(look_up):
                        by_time.append(look_up)
                else:
                    # Without a lookup by timestamp the coroutine awaits nothing.
                    with suppress(StopIteration):
                        self._look_up(context, request, look_up).send(None)
                        raise AssertionError("the ends of a log are known without waiting")
                if pace.is_due():
                    yield
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
            if pace.is_due():
                yield
        return self._by_time(context, request, response, by_time) if by_time else response

    def _is_here(self, look_up: OffsetLookup) -> bool:
        """Return whether the requested partition is on this broker and the client may read it. If
        the result is False, the error is set in the response."""
        try:
            self._table.find(look_up.topic, look_up.asked.partition_index)
        except RefusedError as refusal:
            look_up.answer.error_code = refusal.code
            return False
        return True

    async def _by_time(
        self,
        context: RequestContext,
        request: ListOffsetsRequest,
        response: ListOffsetsResponse,
        left: list[OffsetLookup],
    ) -> Any:
        """Run up to LOOK_UPS_PER_STEP lookups of offsets by timestamp. Returns the steps for the
        remaining lookups, or the response if all are done."""
        await self._run_all(
            [
                partial(self._look_up, context, request, look_up)
                for look_up in left[:LOOK_UPS_PER_STEP]
            ]
        )
        rest = left[LOOK_UPS_PER_STEP:]
        return self._later(context, request, response, rest) if rest else response

    def _later(
        self,
        context: RequestContext,
        request: ListOffsetsRequest,
        response: ListOffsetsResponse,
        left: list[OffsetLookup],
    ) -> Answer:
        yield
        return self._by_time(context, request, response, left)

    async def _look_up(
        self, context: RequestContext, request: ListOffsetsRequest, look_up: OffsetLookup
    ) -> None:
        version = context.header.api_version
        asked, answer = look_up.asked, look_up.answer
        try:
            partition = self._table.find(look_up.topic, asked.partition_index)
            await self._look_up_in(version, request, asked, partition, answer)
            if version < LEADER_EPOCHS_FROM:
                answer.leader_epoch = NO_EPOCH
        except RefusedError as error:
            answer.error_code = error.code

    async def _look_up_in(
        self,
        version: int,
        request: ListOffsetsRequest,
        asked: ListOffsetsPartition,
        partition: Partition,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        log = partition.leader_log(asked.current_leader_epoch)
        timestamp = asked.timestamp
        if timestamp < EARLIEST_PENDING_UPLOAD or version < VERSION_OF.get(timestamp, 0):
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
        bound = _bound(log, request)
        match timestamp:
            case -1:
                _check_available(version, request, partition, log)
                answer.offset = bound
                answer.leader_epoch = _epoch_of_end(log, partition, bound)
            case -2:
                answer.offset = log.log_start_offset
                answer.leader_epoch = log.epoch_of(log.log_start_offset)
            case -4:
                answer.offset = log.local_start_offset
                answer.leader_epoch = log.epoch_of(log.local_start_offset)
            case -5 | -6:
                if log.is_tiered:
                    highest = self._remote.highest_remote(partition.key) or NOTHING_COPIED
                    _answer_copied(timestamp, log, highest, answer)
                    if request.replica_id == CONSUMER and answer.offset >= bound:
                        # As in Kafka, a client gets no offset that it cannot fetch yet.
                        _check_available(version, request, partition, log)
                        answer.offset, answer.leader_epoch = NO_OFFSET, NO_EPOCH
                else:
                    answer.offset = -1
            case _:
                found = None
                if timestamp == MAX_TIMESTAMP:
                    found = await log.max_timestamp_offset(bound)
                else:
                    if log.log_start_offset < log.local_start_offset:
                        found = await self._look_up_copied(
                            request, partition, log, timestamp, bound
                        )
                    if found is None:
                        found = await log.offset_for_timestamp(timestamp, bound)
                if partition.log is not log or not partition.is_leader:
                    raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                if found is None:
                    # A new leader that has not committed in its epoch could wrongly return "no such
                    # offset".
                    _check_available(version, request, partition, log)
                    return
                answer.offset = found.offset
                answer.timestamp = found.timestamp_ms
                answer.leader_epoch = found.leader_epoch

    async def _look_up_copied(
        self,
        request: ListOffsetsRequest,
        partition: Partition,
        log: Log,
        timestamp: int,
        bound: Offset,
    ) -> TimestampedOffset | None:
        """Return the first record of the copied segments at or after a timestamp, or None. Raises
        RefusedError if the object store fails or takes too long."""
        timeout_ms = request.timeout_ms if request.timeout_ms > 0 else self.remote_timeout_ms
        found: list[TimestampedOffset | None] = []

        async def look() -> None:
            found.append(
                await self._remote.offset_for_timestamp(
                    partition.key, log, timestamp, end_offset=bound
                )
            )

        try:
            if not await self._within(timeout_ms / 1_000, look):
                raise RefusedError(ErrorCode.REQUEST_TIMED_OUT)
        except (RemoteReadError, StoreError) as error:
            raise RefusedError(code_of(error), str(error)) from None
        return found[0]


def _answer_copied(
    timestamp: int, log: Log, highest: OffsetAndEpoch, answer: ListOffsetsPartitionResponse
) -> None:
    """Answer a request for the last copied offset (timestamp -5) or the first offset that is not
    copied (timestamp -6) of a tiered log. The answer is -1 if the offset is unknown."""
    answer.offset, answer.leader_epoch = highest
    if timestamp == EARLIEST_PENDING_UPLOAD:
        start = log.log_start_offset
        if highest.offset == NO_OFFSET and start < log.local_start_offset:
            return  # the copied segments are not known yet
        answer.offset = max(highest.offset + 1, start)
        answer.leader_epoch = log.epoch_of(Offset(answer.offset))


def _counted(request: ListOffsetsRequest, pace: StepPace) -> Steps[Counter[tuple[str, int]]]:
    """Return the number of times that a ListOffsets request names each partition."""
    named: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        for at in range(0, len(topic.partitions), VALUES_PER_STEP):
            part = topic.partitions[at : at + VALUES_PER_STEP]
            named.update((topic.name, asked.partition_index) for asked in part)
            if pace.is_due(1 + len(part) * STEP_COST // VALUES_PER_STEP):
                yield
    return named


def _bound(log: Log, request: ListOffsetsRequest) -> Offset:
    if request.replica_id != CONSUMER:
        return log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return log.last_stable_offset
    return log.high_watermark


def _check_available(
    version: int, request: ListOffsetsRequest, partition: Partition, log: Log
) -> None:
    """Raise RefusedError while the high watermark may be below a value that an earlier leader
    reported to clients (KIP-207).

    For the last stable offset, this may last as long as a transaction is open.
    """
    is_lagging = log.high_watermark < partition.leader_epoch_start_offset
    if request.replica_id == CONSUMER and is_lagging:
        if version >= OFFSET_NOT_AVAILABLE_FROM:
            raise RefusedError(ErrorCode.OFFSET_NOT_AVAILABLE)
        raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE)


def _epoch_of_end(log: Log, partition: Partition, bound: Offset) -> int:
    if bound == log.end_offset:
        return partition.leader_epoch
    epoch = log.epoch_of(bound)
    return partition.leader_epoch if epoch == NO_EPOCH else epoch
