"""Produce: appends each partition's batch, and answers when the requested acknowledgements have
arrived.

Pure; nothing awaits. `ProduceApi.handle` serves every request. A `FlatProduce` is a request that is
read directly from its bytes, without message objects; only the encoding of its response differs.

* acks 0 and 1 are answered after the append.  acks -1 waits in the purgatory until the high
  watermark passes the batch. Partitions still open at the timeout are answered REQUEST_TIMED_OUT.
* Some batches must be read record by record (`record.validation`, a compacted topic, a topic with
  its own compression codec). A large batch is read in a worker thread. The next request of the
  connection is not started until the batch has been read.
* The first batch of a transaction in a partition waits for the transaction coordinator
  (`transactional_appends`).
* A request with more batches than PARTITIONS_PER_STEP is appended in steps. A batch whose records
  are read counts as INSPECTION_COST batches.

The records stay a view into the connection's buffer until the single write to the log.
"""

from collections.abc import Coroutine, Hashable, Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Any, Final, TypeAlias

from ottla.broker.logs.early_requests import EarlyRequests, named_by_produce
from ottla.broker.logs.leader_hints import HINTED, endpoints_of
from ottla.broker.logs.produce_answers import (
    accepted_answer,
    refusal_answer,
    refuse,
    refuse_for,
    topic_answer,
)
from ottla.broker.logs.transactional_appends import AppendVerdict, TransactionalAppends
from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.seams import Clock
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.node.network.purgatory import SETTLED_PER_COST, Purgatory, WaitingEntry
from ottla.node.network.request_times import RequestTimes
from ottla.node.network.steps import Answer, ThreadWork, begun
from ottla.storage.log.validate import (
    Accepted,
    RecordsToInspectError,
    accepted,
    is_costly,
)
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin
from ottla.wire.apis import PRODUCE, PRODUCE_TOPIC_IDS_FROM
from ottla.wire.batch import CODEC_MASK, CONTROL_FLAG, LENGTH_END, MAGIC, TRANSACTIONAL_FLAG
from ottla.wire.codec_types import Records
from ottla.wire.flat.flat_produce import FlatProduce, flat_produce_answer
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
_ACKS: Final = (ACKS_ALL, ACKS_LEADER, ACKS_NONE)
HINTS_FROM: Final = 10

ZSTD_FROM: Final = 7
CODEC_ZSTD: Final = 4

PARTITIONS_PER_STEP: Final = 100
"""Number of batches in one Produce request that are appended per event-loop iteration. A smaller
value yields more often. A larger value delays other connections."""

INSPECTION_COST: Final = 10
"""Number of batches as which a batch counts whose records are inspected on the event loop. An
inspection takes 1 ms at most, longer ones are done in a thread."""

PLACES_MAX: Final = 256
"""Maximum number of cached lookups of partitions, by the bytes of topic and index in a
`FlatProduce` (a Produce request that is read directly from its bytes). A smaller value repeats
lookups. A larger value keeps more removed partitions in memory."""

FLAGS_AT: Final = 22
"""Position of the low byte of the attributes in the header of a record batch."""

_peek: Final = Struct(">8xi4xb4xh").unpack_from
"""Function that unpacks the length, magic and attributes from the header of a record batch."""

ProduceForm: TypeAlias = ProduceRequest | FlatProduce
"""A Produce request as message objects, or as a `FlatProduce`, which is read directly from its
bytes."""

Outcome: TypeAlias = AppendInfo | RefusedError | RecordsToInspectError
"""Outcome of one produced batch: appended, refused, or waiting until its records are read."""


class WaitingPartition:
    """Produced batch that is appended to its partition but not acknowledged yet."""

    __slots__ = ("answer", "end_offset", "partition")

    def __init__(
        self, partition: Partition, end_offset: Offset, answer: PartitionProduceResponse
    ) -> None:
        self.partition = partition
        self.end_offset = end_offset
        self.answer = answer

    def is_settled(self, acks: int) -> bool:
        """Return whether the outcome of this produced batch is known. An error is set in the
        response."""
        code = self.partition.acknowledgement(self.end_offset, acks)
        if code is None:
            return False
        if code is not ErrorCode.NONE:
            refuse(self.answer, code)
        return True


class BatchToInspect:
    """Produced batch whose records must be read one by one. A worker thread reads them, because
    this would block the event loop too long."""

    __slots__ = ("_config", "answer", "partition", "records", "topic")

    def __init__(
        self,
        topic: str,
        partition: Partition,
        records: memoryview,
        answer: PartitionProduceResponse,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.records = records
        self.answer = answer
        self._config = partition.leader_log().config

    def accepted(self, now_ms: int) -> Accepted | RefusedError:
        """Validate the records of the produced batch, without reading the log. Returns the batch in
        the form to append, or the error that refuses it."""
        try:
            return accepted(
                self.records, AppendOrigin.CLIENT, self._config, now_ms, is_in_thread=True
            )
        except RefusedError as error:
            return error


class WaitingProduce(WaitingEntry):
    """Produce request whose appended batches are not all acknowledged yet. It waits in the
    purgatory."""

    __slots__ = ("_acks", "_api", "_context", "_is_large", "_open", "_response")
    kind = "Produce"

    def __init__(self, api: "ProduceApi", produce: "Produce") -> None:
        super().__init__()
        self._is_large = produce.is_large
        self._api = api
        self._context = produce.context
        self._response = produce.response
        self._open: dict[Hashable, list[WaitingPartition]] = {}
        """Batches that wait for the high watermark of their partition, by wake-up key. A wake-up
        checks only the batches under its key."""
        for waiting in produce.waiting:
            self._open.setdefault(waiting.partition.high_watermark_key, []).append(waiting)
        self._acks = produce.request.acks

    @property
    def cost(self) -> int:
        """Number of partitions whose batch is not acknowledged yet. Checking a partition costs
        about as much as reading one partition in a fetch."""
        return 1 + len(self._open) // SETTLED_PER_COST

    @property
    def keys_left(self) -> Iterable[Hashable]:
        """Wake-up keys in the purgatory of the partitions whose batch is not acknowledged yet."""
        return self._open.keys()

    def try_complete(self) -> bool:
        """Send the Produce response if the outcome of every partition is known. Returns True if it
        was sent."""
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
        """Answer the Produce request at its timeout, with REQUEST_TIMED_OUT for the partitions that
        are still waiting."""
        for found in self._open.values():
            for waiting in found:
                if not waiting.is_settled(self._acks):
                    refuse(waiting.answer, ErrorCode.REQUEST_TIMED_OUT)
                    self._api.times.note_refusal(PRODUCE, ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    def on_fault(self, fault: Exception) -> None:
        """Close the producer's connection after an unexpected error, since the outcome of the
        batches is unknown."""
        self._context.fail(fault)

    def _answer(self) -> None:
        self._api.add_hints(self._context, self._response)
        if self._is_large:
            self._context.complete_large(self._response)
        else:
            self._context.complete(self._response)


class Produce:
    """Produce request in progress: its partial response, and its unacknowledged batches."""

    __slots__ = (
        "_topic", "answers", "context", "inspected", "is_large", "is_refused", "request",
        "response", "verdict", "waiting",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, request: ProduceForm, verdict: AppendVerdict | None = None
    ) -> None:
        self.context = context
        self.request = request
        self.verdict = verdict
        """Verification result of the request's transactional batches, or None if the request has no
        transaction."""
        self.response = ProduceResponse()
        self.answers: list[PartitionProduceResponse] = []
        """Partition responses of the topic whose batches are being appended."""
        self.waiting: list[WaitingPartition] = []
        self.inspected: list[BatchToInspect] = []
        self.is_refused = False
        self.is_large = False
        """True if the request's batches were appended in several steps. The response is then
        encoded in steps as well."""
        self._topic: TopicProduceData | None = None

    def turn_to(self, topic: TopicProduceData) -> None:
        """Begin the part of the Produce response for the next topic."""
        if topic is not self._topic:
            self._topic = topic
            self.answers = []
            self.response.responses.append(topic_answer(topic, self.answers))


class ProduceApi:
    """Handler of Produce, versions 3 to 13."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        transactions: TransactionalAppends,
        early: EarlyRequests | None = None,
        traffic: BrokerTraffic | None = None,
        times: RequestTimes | None = None,
    ) -> None:
        self.table = table
        self._early = early
        self._transactions = transactions
        self._purgatory = purgatory
        self.clock = clock
        self._traffic = BrokerTraffic() if traffic is None else traffic
        self.times = RequestTimes() if times is None else times
        self._by_id: dict[bytes, Partition] = {}
        self._by_name: dict[bytes, Partition] = {}
        """Cached partitions, by the topic and index bytes of a `FlatProduce` (a Produce request
        that is read directly from its bytes)."""

    def handle(self, context: RequestContext, request: ProduceForm) -> HandlerResult:
        """Append every batch of a Produce request. With acks=all, the response is sent when the
        in-sync replicas have the batches, otherwise at once."""
        if self.table.opening and self._early is not None:
            named = named_by_produce(request)
            later = self._early.wait(context, request, self._serve_decoded, named)
            if later is not None:
                return later
        if isinstance(request, FlatProduce):
            partition = (self._by_id if request.is_by_id else self._by_name).get(request.place)
            if partition is None or partition.is_removed:
                partition = self._look_up(request)
            if partition is not None:
                acks = request.acks
                outcome = self._append(context, acks, partition, request.records)
                if (
                    isinstance(outcome, AppendInfo)
                    and acks != ACKS_NONE
                    and (
                        (acks == ACKS_LEADER and not partition.is_flush_awaited)
                        or partition.acknowledgement(outcome.end_offset, acks) is not None
                    )
                ):
                    answer = flat_produce_answer(
                        context.correlation_id,
                        request.place,
                        outcome.base_offset,
                        outcome.log_append_time_ms,
                        outcome.log_start_offset,
                        context.settle_charge(),
                    )
                    context.complete_frame([answer])
                    return None
                produce = Produce(context, request)
                (topic,) = request.topic_data
                produce.turn_to(topic)
                self._settle(produce, topic, topic.partition_data[0], partition, outcome)
                return self._finish(produce)
        return self._serve_decoded(context, request)

    def _look_up(self, request: FlatProduce) -> Partition | None:
        """Look up the partition of a `FlatProduce` (a Produce request that is read directly from
        its bytes) and cache it. Returns None if the partition is not on this broker."""
        (topic,) = request.topic_data
        try:
            found = self._find(topic, topic.partition_data[0].index, is_by_id=request.is_by_id)
        except RefusedError:
            return None
        places = self._by_id if request.is_by_id else self._by_name
        if len(places) >= PLACES_MAX:
            places.clear()
        places[request.place] = found
        return found

    def _serve_decoded(self, context: RequestContext, request: ProduceForm) -> HandlerResult:
        """Serve a Produce request with any number of batches, which may be transactional."""
        if request.transactional_id is None:
            return begun(self._serve(context, request))
        assert isinstance(request, ProduceRequest)
        return begun(self._serve_transactional(context, request))

    def _serve_transactional(self, context: RequestContext, request: ProduceRequest) -> Answer:
        """Serve a transactional Produce request: request the verification of its batches from the
        transaction coordinator, then append the batches."""
        try:
            verdict, asked = yield from self._transactions.begin(request, context.api_version)
        except RefusedError as refusal:
            return self._refuse_all(context, request, refusal)
        if asked:
            verified = self._transactions.complete(verdict, asked, request, context.api_version)
            if verified is not None:
                return self._append_verified(context, request, verdict, verified)
        return (yield from self._serve(context, request, verdict))

    def _serve(
        self, context: RequestContext, request: ProduceForm, verdict: AppendVerdict | None = None
    ) -> Answer:
        """Append every batch of a Produce request, in steps if there are many."""
        produce = Produce(context, request, verdict)
        parts = _parts(request.topic_data)
        while self._append_some(produce, parts):
            produce.is_large = True
            yield
        return self._finish(produce)

    def _append_some(
        self,
        produce: Produce,
        parts: Iterator[tuple[TopicProduceData, PartitionProduceData | None]],
    ) -> bool:
        """Append the batches of one step of a Produce request. Returns whether more batches may be
        left."""
        left = PARTITIONS_PER_STEP
        with self._purgatory.one_event:
            for topic, data in parts:
                produce.turn_to(topic)
                is_inspected = data is not None and self._append_part(produce, topic, data)
                left -= INSPECTION_COST if is_inspected else 1
                if left <= 0:
                    return True
        return False

    def _append_part(
        self, produce: Produce, topic: TopicProduceData, data: PartitionProduceData
    ) -> bool:
        """Append the batch for one partition of a Produce request, and record the outcome. Returns
        whether the records of the batch were inspected."""
        context, request = produce.context, produce.request
        partition = None
        outcome: Outcome
        try:
            if request.acks not in _ACKS:
                raise RefusedError(ErrorCode.INVALID_REQUIRED_ACKS)
            is_by_id = context.header.api_version >= PRODUCE_TOPIC_IDS_FROM
            partition = self._find(topic, data.index, is_by_id=is_by_id)
            outcome = self._append(
                context,
                request.acks,
                partition,
                view_of(data.records),
                produce.verdict,
                is_behind=bool(produce.inspected),
            )
        except RefusedError as refusal:
            outcome = refusal
        self._settle(produce, topic, data, partition, outcome)
        return (
            partition is not None
            and partition.inspects_records
            and not isinstance(outcome, RecordsToInspectError)
        )

    async def _append_verified(
        self,
        context: RequestContext,
        request: ProduceRequest,
        verdict: AppendVerdict,
        verified: Coroutine[Any, Any, None],
    ) -> Any:
        """Wait until the transaction coordinator has verified the transaction, then append the
        request's batches."""
        await verified
        return begun(self._serve(context, request, verdict))

    def _refuse_all(
        self, context: RequestContext, request: ProduceRequest, refusal: RefusedError
    ) -> HandlerResult:
        """Refuse every batch of a Produce request with one error. The metrics count one refusal for
        each topic."""
        produce = Produce(context, request)
        produce.is_refused = True
        for topic in request.topic_data:
            self._note_refusal(topic.name, refusal)
            produce.turn_to(topic)
            produce.answers += [
                refusal_answer(topic.name, data.index, refusal) for data in topic.partition_data
            ]
        return self._answer(produce)

    def _append(
        self,
        context: RequestContext,
        acks: int,
        partition: Partition,
        records: memoryview,
        verdict: AppendVerdict | None = None,
        first: Accepted | None = None,
        is_behind: bool = False,
    ) -> Outcome:
        """Append one produced batch and count it in the metrics. Batches are accepted or refused
        only in this method.

        `verdict` has the verification guards of a transaction's batches. `first` is the validated
        batch if its records were read before. `is_behind` is True while an earlier batch of the
        request is being read in a worker thread. A batch that must also be read is then appended
        after the earlier batch.
        """
        version = context.header.api_version
        size = len(records)
        try:
            # The log refuses everything that `check_batch` refuses, except these.
            if (
                partition.inspects_records
                or version < ZSTD_FROM
                or size < BATCH_HEADER_BYTES
                or records[FLAGS_AT] & TRANSACTIONAL_FLAG
            ):
                check_batch(records, version, verdict is not None)
            guard = None if verdict is None else verdict.guard(partition)
            if partition.inspects_records and first is None and (is_behind or is_costly(records)):
                return RecordsToInspectError()
            # Positional, because keywords take a tenth of the call's time.
            info = partition.append(
                records, acks, self.clock.wall_ms(), context.arrived_ms, first, guard
            )
        except RecordsToInspectError as error:
            return error
        except RefusedError as refusal:
            return _refusal_of_batch(records, version, verdict is not None) or refusal
        traffic = partition.traffic
        traffic.produce_requests += 1
        traffic.bytes_in += size
        traffic.messages_in += info.end_offset - info.base_offset
        return info

    def _settle(
        self,
        produce: Produce,
        topic: TopicProduceData,
        data: PartitionProduceData,
        partition: Partition | None,
        outcome: Outcome,
    ) -> None:
        """Store the outcome of a batch in the Produce response. If the outcome is not known yet,
        record the acknowledgement or inspection that the batch waits for."""
        if isinstance(outcome, AppendInfo):
            assert partition is not None
            answer = accepted_answer(data.index, outcome)
            end_offset = outcome.end_offset
            if _is_open(partition, end_offset, produce.request.acks):
                produce.waiting.append(WaitingPartition(partition, end_offset, answer))
        elif isinstance(outcome, RefusedError):
            name = self._name_of(topic)
            self._note_refusal(name, outcome)
            produce.is_refused = True
            answer = refusal_answer(name, data.index, outcome)
        else:
            assert partition is not None
            answer = PartitionProduceResponse(index=data.index)
            produce.inspected.append(
                BatchToInspect(self._name_of(topic), partition, view_of(data.records), answer)
            )
        produce.answers.append(answer)

    def _finish(self, produce: Produce) -> HandlerResult:
        """Finish the Produce request once every batch is appended, refused or waiting for
        inspection.

        Returns the response, or None while acknowledgements are missing. If batches must be
        inspected, returns a coroutine that validates them in a thread and then appends them."""
        if not produce.inspected:
            return self._answer(produce)
        now_ms = self.clock.wall_ms()
        return ThreadWork(
            lambda: [each.accepted(now_ms) for each in produce.inspected],
            lambda results: begun(self._append_all_inspected(produce, results)),
        )

    def _append_all_inspected(
        self, produce: Produce, results: list[Accepted | RefusedError]
    ) -> Answer:
        """Append the batches that were inspected in a thread, in steps if there are many. `results`
        are the results of the inspections."""
        pairs = zip(produce.inspected, results, strict=True)
        while step := list(islice(pairs, PARTITIONS_PER_STEP)):
            with self._purgatory.one_event:
                for each, found in step:
                    self._append_inspected(produce, each, found)
            if len(step) == PARTITIONS_PER_STEP:
                produce.is_large = True
                yield
        return self._answer(produce)

    def _append_inspected(
        self, produce: Produce, inspected: BatchToInspect, found: Accepted | RefusedError
    ) -> None:
        """Append a produced batch after its records were inspected, and complete its part of the
        response."""
        partition, answer, acks = inspected.partition, inspected.answer, produce.request.acks
        outcome: Outcome = (
            found
            if isinstance(found, RefusedError)
            else self._append(
                produce.context,
                acks,
                partition,
                inspected.records,
                produce.verdict,
                first=found,
            )
        )
        if isinstance(outcome, AppendInfo):
            answer.base_offset = outcome.base_offset
            answer.log_append_time_ms = outcome.log_append_time_ms
            answer.log_start_offset = outcome.log_start_offset
            if _is_open(partition, outcome.end_offset, acks):
                produce.waiting.append(WaitingPartition(partition, outcome.end_offset, answer))
            return
        assert isinstance(outcome, RefusedError), "its records were read"
        self._note_refusal(inspected.topic, outcome)
        produce.is_refused = True
        refuse_for(answer, inspected.topic, outcome)

    def _find(self, topic: TopicProduceData, index: int, *, is_by_id: bool) -> Partition:
        """Return a partition of a topic in the Produce request. Raises RefusedError, with the error
        code that follows from the metadata, if the partition is not on this broker."""
        if is_by_id:
            return self.table.find_by_id(topic.topic_id, index)
        return self.table.find(topic.name, index)

    def _name_of(self, topic: TopicProduceData) -> str:
        """Return the name of a topic in the Produce request, or "" if the topic is unknown. Later
        versions of the request contain only the topic id."""
        known = None if topic.name else self.table.image.topics.get(topic.topic_id)
        return topic.name if known is None else known.name

    def _note_refusal(self, topic: str, error: RefusedError) -> None:
        self._traffic.note_failed_produce(topic)
        self.times.note_refusal(PRODUCE, error.code)

    def _answer(self, produce: Produce) -> ProduceResponse | None:
        """Return the Produce response, or None if it waits for acknowledgements."""
        context, request, response = produce.context, produce.request, produce.response
        if request.acks == ACKS_NONE:
            if produce.is_refused or context.has_refused_parts:
                # acks 0 has no response for an error; the producer sees the connection close.
                context.close_connection()
            else:
                context.complete_silently()
            return None
        if not produce.waiting:
            if produce.is_refused:
                self.add_hints(context, response)
            return response
        entry = WaitingProduce(self, produce)
        # A wake-up may already have acknowledged the batches of this entry.
        if entry.try_complete():
            return None
        self._purgatory.watch(
            entry.keys_left,
            entry,
            context.arrived_ms + max(0, request.timeout_ms),
        )
        context.on_abandoned = lambda: self._purgatory.cancel(entry)
        return None

    def add_hints(self, context: RequestContext, response: ProduceResponse) -> None:
        """Add to a Produce response the current leaders of partitions that this broker does not
        lead, and their endpoints."""
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


def _is_open(partition: Partition, end_offset: Offset, acks: int) -> bool:
    """Return whether an appended batch still waits for its acknowledgement.

    A batch with acks 1 waits only if the topic requires a flush.
    """
    return (acks == ACKS_ALL or (acks == ACKS_LEADER and partition.is_flush_awaited)) and (
        partition.acknowledgement(end_offset, acks) is None
    )


def _parts(
    topics: list[TopicProduceData],
) -> Iterator[tuple[TopicProduceData, PartitionProduceData | None]]:
    """Yield each batch of a Produce request with its topic. For a topic without batches, yield the
    topic once with None."""
    for topic in topics:
        for data in topic.partition_data or (None,):
            yield topic, data


def check_batch(batch: memoryview, version: int, has_transaction: bool) -> None:
    """Check the properties of a produced batch that do not depend on its log.

    Raises RefusedError if `batch` is not exactly one v2 batch, if the request version does not
    allow its codec, or if it is transactional in a request without a transactional id.
    """
    if not batch:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have exactly one record batch per "
            "partition",
        )
    size = len(batch)
    if size < BATCH_HEADER_BYTES:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {size} bytes is cut off")
    batch_length, magic, attributes = _peek(batch)
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


def _refusal_of_batch(
    batch: memoryview, version: int, has_transaction: bool
) -> RefusedError | None:
    """Return the error that refuses a produced batch for any log. Returns None if only the log
    itself can refuse the batch."""
    try:
        check_batch(batch, version, has_transaction)
    except RefusedError as refusal:
        return refusal
    return None


def view_of(records: Records | None) -> memoryview:
    """Return the records of a Produce request as a memory view. The view is read-only if this
    broker sent the request to itself, because the broker may send the same bytes again."""
    if isinstance(records, memoryview):
        return records
    assert records is None or isinstance(records, (bytes, bytearray))
    return memoryview(records or b"").toreadonly()
