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

from collections.abc import Hashable, Iterable
from typing import Any, Final

from ottla.broker.logs.leader_hints import HINTED, endpoints_of
from ottla.broker.logs.produced_parts import (
    accepted_answer,
    checked_batch,
    empty_answer,
    refusal_answer,
    refuse,
    refuse_for,
    topic_answer,
)
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
from ottla.model.seams import Clock
from ottla.storage.append_info import AppendOrigin
from ottla.storage.validate import (
    Accepted,
    RecordsToInspectError,
    accepted,
    is_costly,
)
from ottla.storage.verification import VerificationGuard
from ottla.wire.apis import PRODUCE, PRODUCE_TOPIC_IDS_FROM
from ottla.wire.messages.produce_request import (
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
_ACKS: Final = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
HINTS_FROM: Final = 10

PARTITIONS_PER_STEP = 100
"""Of a request with very many: how many are appended to in one turn of the loop."""


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
        records: memoryview,
        answer: PartitionProduceResponse,
        guard: VerificationGuard | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
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
        self._open: dict[Hashable, list[WaitingPartition]] = {}
        """What is not settled, by the key that wakes it: one wake looks at one partition."""
        for waiting in open_partitions:
            self._open.setdefault(waiting.partition.high_watermark_key, []).append(waiting)
        self._acks = acks

    @property
    def cost(self) -> int:
        """How many partitions are open, in those that a fetch reads in the same time."""
        return 1 + len(self._open) // SETTLED_PER_COST

    @property
    def keys_left(self) -> Iterable[Hashable]:
        """The keys of what is not settled."""
        return self._open.keys()

    def try_complete(self) -> bool:
        """Answer once every partition's outcome is known."""
        woken_by = self.woken_by
        for key in list(self._open) if woken_by is None else (woken_by,):
            found = self._open.pop(key, ())
            left = [each for each in found if not each.is_settled(self._acks)]
            if left:
                self._open[key] = left
        if self._open:
            return False
        self._answer()
        return True

    def on_expire(self) -> None:
        """Answer REQUEST_TIMED_OUT for what is still open."""
        for found in self._open.values():
            for waiting in found:
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
        self.table = table
        self._transactions = transactions
        self._purgatory = purgatory
        self.clock = clock
        self._traffic = BrokerTraffic() if traffic is None else traffic
        self.times = RequestTimes() if times is None else times

    def handle(
        self,
        context: RequestContext,
        request: ProduceRequest,
        verdict: AppendVerdict | None = None,
    ) -> HandlerResult:
        """Append every batch, then answer or wait.

        `verdict` is of a transaction's batches, for which the steps that come before are done.
        """
        if request.transactional_id is not None and verdict is None:
            return begun(self._handle_transactional(context, request, is_large=False))
        response = empty_answer()
        topics = response.responses
        waiting: list[WaitingPartition] = []
        inspected: list[Inspected] = []
        asked = request.topic_data
        if len(asked) == 1 and len(asked[0].partition_data) == 1:  # as most do
            is_refused = self._append(context, request, asked, topics, waiting, inspected, verdict)
        else:
            with self._purgatory.one_event:
                is_refused = self._append(
                    context, request, asked, topics, waiting, inspected, verdict
                )
        if inspected:
            return self._inspect(context, request, response, waiting, is_refused, inspected)
        if waiting or is_refused or request.acks == ACKS_NONE:
            return self._answer(context, request, response, waiting, is_refused)
        return response

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
            response.responses.append(topic_answer(topic, answers))
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
        serve = self._handle_large if is_large else self.handle
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
        serve = self._handle_large if is_large else self.handle
        return serve(context, request, verdict)

    def _refuse_all(
        self, context: RequestContext, request: ProduceRequest, refusal: RefusedError
    ) -> HandlerResult:
        response = ProduceResponse()
        for topic in request.topic_data:
            self._note_refusal(topic.name, refusal)
            answers = [
                refusal_answer(topic.name, data.index, refusal) for data in topic.partition_data
            ]
            response.responses.append(topic_answer(topic, answers))
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
        version = context.header.api_version
        by_name, by_id = self.table.by_name, self.table.by_id
        has_transaction = request.transactional_id is not None
        wall_ms = self.clock.wall_ms()
        is_refused = False
        for topic in asked:
            answers: list[PartitionProduceResponse] = []
            is_by_id = version >= PRODUCE_TOPIC_IDS_FROM
            partitions = by_id.get(topic.topic_id) if is_by_id else by_name.get(topic.name)
            for data in topic.partition_data:
                records = data.records
                try:
                    if acks not in _ACKS:
                        raise RefusedError(ErrorCode.INVALID_REQUIRED_ACKS)
                    found = None if partitions is None else partitions.get(data.index)
                    partition = found or self._find(topic, data.index, version)  # which refuses
                    batch = checked_batch(records, version, has_transaction=has_transaction)
                    guard = None if verdict is None else verdict.guard(partition)
                    if partition.inspects_records and (inspected or is_costly(batch)):
                        raise RecordsToInspectError
                    info = partition.append(
                        batch,
                        acks=acks,
                        now_ms=wall_ms,
                        mono_ms=context.arrived_ms,
                        guard=guard,
                    )
                except RecordsToInspectError:
                    answer = PartitionProduceResponse(index=data.index)
                    answers.append(answer)
                    inspected.append(
                        Inspected(self._name_of(topic), partition, batch, answer, guard)
                    )
                    continue
                except RefusedError as error:
                    is_refused = True
                    name = self._name_of(topic)
                    self._note_refusal(name, error)
                    answers.append(refusal_answer(name, data.index, error))
                    continue
                end_offset = info.end_offset
                traffic = partition.traffic
                traffic.produce_requests += 1
                traffic.bytes_in += len(batch)
                traffic.messages_in += end_offset - info.base_offset
                answer = accepted_answer(data.index, info)
                answers.append(answer)
                # What the leader alone acknowledges waits only for a flush, where that is awaited.
                if (acks == ACKS_ALL or (acks == ACKS_LEADER and partition.is_flush_awaited)) and (
                    partition.acknowledgement(end_offset, acks) is None
                ):
                    waiting.append(WaitingPartition(partition, end_offset, answer))
            topics.append(topic_answer(topic, answers))
        return is_refused

    def _find(self, topic: TopicProduceData, index: int, version: int) -> Partition:
        """Return a partition; else refuse as fits what the image knows of it."""
        if version >= PRODUCE_TOPIC_IDS_FROM:
            return self.table.find_by_id(topic.topic_id, index)
        return self.table.find(topic.name, index)

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
        now_ms = self.clock.wall_ms()

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
                now_ms=self.clock.wall_ms(),
                mono_ms=context.arrived_ms,
                accepted=found,
                guard=inspected.guard,
            )
        except RefusedError as error:
            self._note_refusal(inspected.topic, error)
            refuse_for(answer, inspected.topic, error)
            return None
        traffic = partition.traffic
        traffic.produce_requests += 1
        traffic.bytes_in += len(records)
        traffic.messages_in += info.end_offset - info.base_offset
        answer.base_offset = info.base_offset
        answer.log_append_time_ms = info.log_append_time_ms
        answer.log_start_offset = info.log_start_offset
        end_offset = info.end_offset
        if acks == ACKS_NONE or partition.acknowledgement(end_offset, acks) is not None:
            return None
        return WaitingPartition(partition, end_offset, answer)

    def _name_of(self, topic: TopicProduceData) -> str:
        """Return the topic's name, which later versions do not send; "" for an unknown one."""
        known = None if topic.name else self.table.image.topics.get(topic.topic_id)
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
            entry.keys_left,
            entry,
            context.arrived_ms + max(0, request.timeout_ms),
        )
        slot.on_abandoned = lambda: self._purgatory.cancel(entry)
        return None

    def add_hints(self, context: RequestContext, response: ProduceResponse) -> None:
        """Say who leads what we do not lead, and where that is."""
        if context.header.api_version < HINTS_FROM:
            return
        table = self.table
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
