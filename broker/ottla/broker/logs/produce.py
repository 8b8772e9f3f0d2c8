"""Produce: appends each partition's batch at once, and answers when the asked-for acks are there.

Pure; nothing awaits.  A batch whose records must be looked at one by one (`record.validation`, a
compacted topic, a topic with a codec of its own) is looked at apart from the loop when it is large,
and the connection's next request waits for that.  acks 0 and 1 answer after the append, acks -1
waits in the purgatory until the high watermark passes the batch.  The records stay a view into the
connection's buffer from here to the one write of the log.

Where Kafka has one leader per connection thread, our answers to a full purgatory are the same:
REQUEST_TIMED_OUT for the partitions still open.  The first batch of a transaction in a partition
waits for the transaction's coordinator (`transactional_appends`).
"""

from struct import Struct
from typing import Any

from ottla.broker.logs.leader_hints import HINTED, endpoints_of
from ottla.broker.logs.transactional_appends import AppendVerdict, Asked, TransactionalAppends
from ottla.broker.network.dispatch import HandlerResult, RequestContext
from ottla.broker.network.purgatory import SETTLED_PER_COST, Purgatory, WaitingEntry
from ottla.broker.network.request_times import RequestTimes
from ottla.broker.network.steps import Answer, Apart, StepPace, begun
from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.seams import Clock
from ottla.storage.append_info import AppendInfo, AppendOrigin
from ottla.storage.validate import (
    Accepted,
    InvalidRecordsError,
    RecordsToInspectError,
    accepted,
    is_costly,
)
from ottla.storage.verification import VerificationGuard
from ottla.wire.apis import PRODUCE, PRODUCE_TOPIC_IDS_FROM
from ottla.wire.batch import CODEC_MASK, CONTROL_FLAG, LENGTH_END, MAGIC, TRANSACTIONAL_FLAG
from ottla.wire.codec_types import Records
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

ACKS_NONE = 0
ACKS_LEADER = 1
HINTS_FROM = 10
ZSTD_FROM = 7
CODEC_ZSTD = 4

PARTITIONS_PER_STEP = 100
"""Of a request with very many: how many are appended to in one turn of the loop."""

_peek = Struct(">8xi4xb4xh").unpack_from
"""Of a batch header: its length, magic and attributes."""

NO_LEADER_HINT = LeaderIdAndEpoch()


class WaitingPartition:
    """A batch that is appended and not yet acknowledged."""

    __slots__ = ("answer", "end_offset", "partition")

    def __init__(
        self, partition: Partition, end_offset: Offset, answer: PartitionProduceResponse
    ) -> None:
        self.partition = partition
        self.end_offset = end_offset
        self.answer = answer

    def is_settled(self, acks: int) -> bool:
        """Return whether its outcome is known; the answer then carries it."""
        code = self.partition.acknowledgement(self.end_offset, acks)
        if code is None:
            return False
        if code is not ErrorCode.NONE:
            refuse(self.answer, code)
        return True


class Inspected:
    """A batch whose records are looked at one by one, which takes too long for the loop."""

    __slots__ = ("_config", "answer", "guard", "partition", "records", "topic")

    def __init__(
        self,
        topic: str,
        partition: Partition,
        records: Records,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
    ) -> None:
        assert isinstance(records, memoryview | bytes | bytearray)
        self.topic = topic
        self.partition = partition
        self.records = memoryview(records)
        self.answer = answer
        self.guard = guard
        self._config = partition.leader_log().config

    def accepted(self, now_ms: int) -> Accepted | RefusedError:
        """Return the batch as it may be appended, or why it may not; touches no log."""
        try:
            return accepted(
                self.records, AppendOrigin.CLIENT, self._config, now_ms=now_ms, is_apart=True
            )
        except RefusedError as error:
            return error


class WaitingProduce(WaitingEntry):
    """A produce whose batches are appended and not all acknowledged."""

    __slots__ = ("_acks", "_api", "_context", "_is_large", "_open", "_response")
    kind = "Produce"

    def __init__(
        self,
        api: "ProduceApi",
        context: RequestContext,
        response: ProduceResponse,
        open_partitions: list[WaitingPartition],
        acks: int,
        *,
        is_large: bool,
    ) -> None:
        super().__init__()
        self._is_large = is_large
        self._api = api
        self._context = context
        self._response = response
        self._open = open_partitions
        self._acks = acks

    @property
    def cost(self) -> int:
        """How many partitions are open, in those that a fetch reads in the same time."""
        return 1 + len(self._open) // SETTLED_PER_COST

    def try_complete(self) -> bool:
        """Answer once every partition's outcome is known."""
        self._open = [waiting for waiting in self._open if not waiting.is_settled(self._acks)]
        if self._open:
            return False
        self._answer()
        return True

    def on_expire(self) -> None:
        """Answer REQUEST_TIMED_OUT for what is still open."""
        for waiting in self._open:
            if not waiting.is_settled(self._acks):
                refuse(waiting.answer, ErrorCode.REQUEST_TIMED_OUT)
                self._api.times.note_refusal(PRODUCE, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def on_fault(self, fault: Exception) -> None:
        """Close the connection: what became of the batches is not known."""
        self._context.slot.fail(fault)

    def _answer(self) -> None:
        self._api.add_hints(self._context, self._response)
        if self._is_large:
            self._context.slot.complete_large(self._response)
        else:
            self._context.slot.complete(self._response)


class ProduceApi:
    """Serves Produce 3-13."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        transactions: TransactionalAppends,
        traffic: BrokerTraffic | None = None,
        times: RequestTimes | None = None,
    ) -> None:
        self._table = table
        self._transactions = transactions
        self._purgatory = purgatory
        self._clock = clock
        self._traffic = BrokerTraffic() if traffic is None else traffic
        self.times = RequestTimes() if times is None else times

    def handle(self, context: RequestContext, request: ProduceRequest) -> HandlerResult:
        """Append every batch, then answer or wait."""
        if request.transactional_id is not None:
            return begun(self._handle_transactional(context, request, is_large=False))
        return self._handle(context, request, None)

    def _handle(
        self, context: RequestContext, request: ProduceRequest, verdict: AppendVerdict | None
    ) -> HandlerResult:
        response = ProduceResponse()
        waiting: list[WaitingPartition] = []
        inspected: list[Inspected] = []
        asked = request.topic_data
        parts = context, request, asked, response.responses, waiting, inspected, verdict
        if len(asked) == 1 and len(asked[0].partition_data) == 1:  # as most do
            is_refused = self._append(*parts)
        else:
            with self._purgatory.one_event:
                is_refused = self._append(*parts)
        if inspected:
            return self._inspect(context, request, response, waiting, is_refused, inspected)
        return self._answer(context, request, response, waiting, is_refused)

    def handle_large(self, context: RequestContext, request: ProduceRequest) -> Answer:
        """Serve a request of very many partitions in steps."""
        if request.transactional_id is not None:
            return self._handle_transactional(context, request, is_large=True)
        return self._handle_large(context, request, None)

    def _handle_large(
        self, context: RequestContext, request: ProduceRequest, verdict: AppendVerdict | None
    ) -> Answer:
        response = ProduceResponse()
        waiting: list[WaitingPartition] = []
        inspected: list[Inspected] = []
        is_refused = False
        pace = StepPace()
        for topic in request.topic_data:
            answers: list[PartitionProduceResponse] = []
            for at in range(0, len(topic.partition_data), PARTITIONS_PER_STEP):
                data = topic.partition_data[at : at + PARTITIONS_PER_STEP]
                piece = TopicProduceData(
                    name=topic.name, topic_id=topic.topic_id, partition_data=data
                )
                done: list[TopicProduceResponse] = []
                with self._purgatory.one_event:
                    is_refused |= self._append(
                        context, request, [piece], done, waiting, inspected, verdict
                    )
                answers += done[0].partition_responses
                yield
            response.responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
            if pace.is_due():
                yield
        if inspected:
            return self._inspect(
                context, request, response, waiting, is_refused, inspected, is_large=True
            )
        return self._answer(context, request, response, waiting, is_refused, is_large=True)

    def _handle_transactional(
        self, context: RequestContext, request: ProduceRequest, *, is_large: bool
    ) -> Answer:
        """Serve a request of a transaction, in the steps that come before its batches' append."""
        version = context.api_version
        try:
            verdict, asked = yield from self._transactions.begin(request, version)
        except RefusedError as refusal:
            return self._refuse_all(context, request, refusal)
        if asked:
            return self._append_verified(context, request, verdict, asked, is_large=is_large)
        serve = self._handle_large if is_large else self._handle
        return serve(context, request, verdict)

    async def _append_verified(
        self,
        context: RequestContext,
        request: ProduceRequest,
        verdict: AppendVerdict,
        asked: Asked,
        *,
        is_large: bool,
    ) -> Any:
        """Append when the coordinator has answered."""
        version = context.api_version
        await self._transactions.complete(verdict, asked, request, version)
        serve = self._handle_large if is_large else self._handle
        return serve(context, request, verdict)

    def _refuse_all(
        self, context: RequestContext, request: ProduceRequest, refusal: RefusedError
    ) -> HandlerResult:
        response = ProduceResponse()
        for topic in request.topic_data:
            self._note_refusal(topic.name, refusal)
            answers = [_refusal(topic.name, data.index, refusal) for data in topic.partition_data]
            response.responses.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        return self._answer(context, request, response, [], True)

    def _append(
        self,
        context: RequestContext,
        request: ProduceRequest,
        asked: list[TopicProduceData],
        topics: list[TopicProduceResponse],
        waiting: list[WaitingPartition],
        inspected: list[Inspected],
        verdict: AppendVerdict | None,
    ) -> bool:
        """Append what can be appended at once.

        The answers, what has to be waited for and what is not appended yet are put behind the three
        lists; return whether something was refused.
        """
        acks = request.acks
        wall_ms = self._clock.wall_ms()
        is_refused = False
        for topic in asked:
            answers: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                try:
                    partition = self._checked_partition(context, request, topic, data)
                    records = data.records
                    assert records is not None
                    guard = None if verdict is None else verdict.guard(partition)
                    if partition.inspects_records and (inspected or is_costly(records)):
                        raise RecordsToInspectError
                    info = partition.append(
                        records,
                        acks=acks,
                        now_ms=wall_ms,
                        mono_ms=context.arrived_ms,
                        guard=guard,
                    )
                except RecordsToInspectError:
                    assert records is not None
                    answer = PartitionProduceResponse(index=data.index)
                    answers.append(answer)
                    inspected.append(
                        Inspected(self._name_of(topic), partition, records, answer, guard)
                    )
                    continue
                except RefusedError as error:
                    is_refused = True
                    name = self._name_of(topic)
                    self._note_refusal(name, error)
                    answers.append(_refusal(name, data.index, error))
                    continue
                traffic = partition.traffic
                traffic.produce_requests += 1
                traffic.bytes_in += len(records)
                traffic.messages_in += info.last_offset + 1 - info.base_offset
                answer = _accepted(data.index, info)
                answers.append(answer)
                end_offset = Offset(info.last_offset + 1)
                if partition.acknowledgement(end_offset, acks) is None and acks != ACKS_NONE:
                    waiting.append(WaitingPartition(partition, end_offset, answer))
            topics.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
        return is_refused

    def _inspect(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        waiting: list[WaitingPartition],
        is_refused: bool,
        inspected: list[Inspected],
        *,
        is_large: bool = False,
    ) -> Apart[list[Accepted | RefusedError]]:
        """Look at records apart from the loop, append what may be, then answer or wait."""
        now_ms = self._clock.wall_ms()

        def append(results: list[Accepted | RefusedError]) -> HandlerResult:
            is_any_refused = is_refused
            with self._purgatory.one_event:
                for each, found in zip(inspected, results, strict=True):
                    appended = self._append_inspected(context, request.acks, each, found)
                    if appended is not None:
                        waiting.append(appended)
                    is_any_refused |= each.answer.error_code != ErrorCode.NONE
            return self._answer(
                context, request, response, waiting, is_any_refused, is_large=is_large
            )

        return Apart(lambda: [each.accepted(now_ms) for each in inspected], append)

    def _append_inspected(
        self,
        context: RequestContext,
        acks: int,
        inspected: Inspected,
        found: Accepted | RefusedError,
    ) -> WaitingPartition | None:
        """Append a batch that was looked at apart; return what has to be waited for."""
        partition, records, answer = inspected.partition, inspected.records, inspected.answer
        try:
            if isinstance(found, RefusedError):
                raise found
            info = partition.append(
                records,
                acks=acks,
                now_ms=self._clock.wall_ms(),
                mono_ms=context.arrived_ms,
                accepted=found,
                guard=inspected.guard,
            )
        except RefusedError as error:
            self._note_refusal(inspected.topic, error)
            _refuse_for(answer, inspected.topic, error)
            return None
        traffic = partition.traffic
        traffic.produce_requests += 1
        traffic.bytes_in += len(records)
        traffic.messages_in += info.last_offset + 1 - info.base_offset
        answer.base_offset = info.base_offset
        answer.log_append_time_ms = info.log_append_time_ms
        answer.log_start_offset = info.log_start_offset
        end_offset = Offset(info.last_offset + 1)
        if acks == ACKS_NONE or partition.acknowledgement(end_offset, acks) is not None:
            return None
        return WaitingPartition(partition, end_offset, answer)

    def _name_of(self, topic: TopicProduceData) -> str:
        """Return the topic's name, which later versions do not send; "" for an unknown one."""
        known = None if topic.name else self._table.image.topics.get(topic.topic_id)
        return topic.name if known is None else known.name

    def _note_refusal(self, topic: str, error: RefusedError) -> None:
        self._traffic.note_failed_produce(topic)
        self.times.note_refusal(PRODUCE, error.code)

    def _answer(
        self,
        context: RequestContext,
        request: ProduceRequest,
        response: ProduceResponse,
        waiting: list[WaitingPartition],
        is_refused: bool,
        *,
        is_large: bool = False,
    ) -> ProduceResponse | None:
        slot = context.slot
        if request.acks == ACKS_NONE:
            if is_refused or context.has_refused_parts:
                # There is no answer to put the error into: the producer sees it as a hang-up.
                context.close_connection()
            else:
                slot.complete_silently()
            return None
        if not waiting:
            if is_refused:
                self.add_hints(context, response)
            return response
        entry = WaitingProduce(self, context, response, waiting, request.acks, is_large=is_large)
        # An earlier wake may have moved what this one waits for.
        if entry.try_complete():
            return None
        self._purgatory.watch(
            {item.partition.high_watermark_key for item in waiting},
            entry,
            context.arrived_ms + max(0, request.timeout_ms),
        )
        slot.on_abandoned = lambda: self._purgatory.cancel(entry)
        return None

    def _checked_partition(
        self,
        context: RequestContext,
        request: ProduceRequest,
        topic: TopicProduceData,
        data: PartitionProduceData,
    ) -> Partition:
        if request.acks not in (ACKS_ALL, ACKS_NONE, ACKS_LEADER):
            raise RefusedError(ErrorCode.INVALID_REQUIRED_ACKS)
        version = context.header.api_version
        if version >= PRODUCE_TOPIC_IDS_FROM:
            partition = self._table.find_by_id(topic.topic_id, data.index)
        else:
            partition = self._table.find(topic.name, data.index)
        check_batch(data.records, version, has_transaction=request.transactional_id is not None)
        return partition

    def add_hints(self, context: RequestContext, response: ProduceResponse) -> None:
        """Say who leads what we do not lead, and where that is."""
        if context.header.api_version < HINTS_FROM:
            return
        table = self._table
        leaders = set()
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code in HINTED:
                    leader_id, epoch = table.current_leader(
                        topic.name, topic.topic_id, answer.index
                    )
                    answer.current_leader = LeaderIdAndEpoch(
                        leader_id=leader_id, leader_epoch=epoch
                    )
                    leaders.add(leader_id)
        if leaders:
            found = endpoints_of(table.image, leaders, context.peer.listener_name)
            response.node_endpoints = [
                NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in found
            ]


def check_batch(records: Records | None, version: int, *, has_transaction: bool = False) -> None:
    """Refuse what can be seen without the log: not one whole v2 batch, or a codec too new.

    The log checks the rest (CRC, counts, sequences, sizes).
    """
    if not records:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have exactly one record batch per "
            "partition",
        )
    assert isinstance(records, memoryview | bytes | bytearray)
    size = len(records)
    if size < BATCH_HEADER_BYTES:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {size} bytes is cut off")
    batch_length, magic, attributes = _peek(records)
    if magic != MAGIC:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches "
            f"with magic version {MAGIC}, not {magic}",
        )
    if batch_length + LENGTH_END != size:
        if 0 < batch_length + LENGTH_END < size:
            raise RefusedError(
                ErrorCode.INVALID_RECORD,
                f"Produce requests with version {version} are only allowed to contain exactly one "
                "record batch per partition",
            )
        raise RefusedError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the record batch says it is {batch_length + LENGTH_END} bytes long, {size} came",
        )
    if attributes & CODEC_MASK == CODEC_ZSTD and version < ZSTD_FROM:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    is_transactional = attributes & TRANSACTIONAL_FLAG and not attributes & CONTROL_FLAG
    if is_transactional and not has_transaction:
        raise RefusedError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The batch belongs to a transaction, and the request has no transactional id",
        )


def refuse(answer: PartitionProduceResponse, code: ErrorCode, message: str | None = None) -> None:
    """Turn an answer into a refusal."""
    answer.error_code = code
    answer.error_message = message
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _refusal(topic: str, index: int, error: RefusedError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index, base_offset=-1, current_leader=NO_LEADER_HINT)
    _refuse_for(answer, topic, error)
    return answer


def _refuse_for(answer: PartitionProduceResponse, topic: str, error: RefusedError) -> None:
    """Turn an answer into a refusal that names the records at fault, if the error does."""
    if isinstance(error, InvalidRecordsError):
        error = error.located(f"{topic}-{answer.index}")
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    refuse(answer, error.code, error.message)


def _accepted(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
        current_leader=NO_LEADER_HINT,
    )
