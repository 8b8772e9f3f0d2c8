"""Handlers of InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn. Pure.

A handler checks everything that does not depend on the state, and passes the request to the
coordinator. The response is sent when the coordinator's decision is committed. Leaders of data
partitions send AddPartitionsToTxn 4 and later, for several transactions at once.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ottla.broker.coordinators.answer_collector import AnswerCollector
from ottla.broker.coordinators.effects import Responder
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.transactions.producer_id_supply import ProducerIdSupply
from ottla.broker.transactions.transaction import IMPLICIT_VERSION
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.broker.transactions.transaction_rules import NamedProducer
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.model.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.node.network.dispatch import HandlerResult, Permissions, RequestContext
from ottla.node.network.steps import StepPace, Steps, begun
from ottla.wire.apis import ADD_PARTITIONS_OF_BROKERS_FROM
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

E = ErrorCode

NO_EPOCH_GIVEN = -1

BUMPING_FROM = 5
"""First version of EndTxn in which every end of a transaction bumps the producer epoch
(KIP-890)."""
FENCED_FROM = {InitProducerIdRequest: 4, AddPartitionsToTxnRequest: 2, AddOffsetsToTxnRequest: 2,
               EndTxnRequest: 2}  # fmt: skip
"""First version of each request whose clients know the error code PRODUCER_FENCED. Clients of
earlier versions get another error code."""

ID_WAIT_S = 2.0
"""Maximum seconds that an InitProducerId request waits for the first block of producer ids. After
this time, the client must retry."""

TRANSACTION_COST = 5
"""Cost of passing one transaction's request to the coordinator, relative to the cost of one entry
in a response."""


def client_code_of(kind: type, code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code to send to a client for `code`: the same code, or another code if
    clients of the request version do not know it."""
    if code is E.PRODUCER_FENCED and version < FENCED_FROM[kind]:
        return E.INVALID_PRODUCER_EPOCH
    return code


CreateTopic = Callable[[RequestContext, Sequence[str]], Awaitable[object]]


class TransactionApis:
    """Handlers of InitProducerId (versions 0 to 5), AddPartitionsToTxn (0 to 5), AddOffsetsToTxn (0
    to 4) and EndTxn (0 to 5)."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        *,
        image: Callable[[], MetadataImage],
        ids: ProducerIdSupply,
        create_topic: CreateTopic,
    ) -> None:
        """Create the handlers. `create_topic` requests the creation of a missing topic. It returns
        even if the creation has failed."""
        self._coordinator = coordinator
        self._create_topic = create_topic
        self._image = image
        self._ids = ids

    # ---- InitProducerId

    def init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> HandlerResult:
        """Assign a producer id and epoch to the producer that sent the request, and abort its open
        transaction."""
        if self._ids.has_some:
            return self._init(context, request)
        return self._init_when_ids_available(context, request)

    async def _init_when_ids_available(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        await self._ids.wait(ID_WAIT_S)
        return self._init(context, request)

    def _init(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        version = context.api_version

        def answer(answer: NamedProducer | ErrorCode) -> None:
            context.complete(_initialised(answer, version))

        has_id = request.producer_id != NO_PRODUCER_ID
        has_epoch = request.producer_epoch != NO_EPOCH_GIVEN
        transactional_id = request.transactional_id
        if has_id != has_epoch or transactional_id == "":
            return _initialised(E.INVALID_REQUEST, version)
        if transactional_id is None:
            return self._idempotent(version)
        expected = None
        if has_id:
            expected = NamedProducer(ProducerId(request.producer_id), request.producer_epoch)
        self._coordinator.perform(
            transactional_id,
            answer,
            lambda shard, now: shard.init_producer(
                transactional_id,
                expected,
                timeout_ms=request.transaction_timeout_ms,
                responder=answer,
                now=now,
            ),
        )
        return None

    def _idempotent(self, version: int) -> InitProducerIdResponse:
        try:
            return _initialised(NamedProducer(self._ids.take(), 0), version)
        except RefusedError as refusal:
            return _initialised(refusal.code, version)

    # ---- AddPartitionsToTxn

    def add_partitions(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> HandlerResult:
        """Add partitions to transactions, or verify that the partitions belong to the
        transactions."""
        if context.api_version < ADD_PARTITIONS_OF_BROKERS_FROM:
            return begun(self._add_of_client(context, request))
        return begun(self._add_of_broker(context, request))

    def _add_of_client(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Steps[None]:
        version = context.api_version
        topics = request.v3_and_below_topics
        partitions, refused = yield from self._known(
            topics, is_client=True, permissions=context.permissions
        )

        def answer(answer: Any) -> None:
            if isinstance(answer, ErrorCode):
                answer = client_code_of(AddPartitionsToTxnRequest, answer, version)
            context.complete(
                AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=list(_results(topics, answer))
                )
            )

        if refused:
            answer(refused)
            return
        transactional_id = request.v3_and_below_transactional_id
        producer = NamedProducer(
            ProducerId(request.v3_and_below_producer_id), request.v3_and_below_producer_epoch
        )
        self._add_or_hold(transactional_id, producer, partitions, responder=answer)

    def _add_of_broker(
        self, context: RequestContext, request: AddPartitionsToTxnRequest
    ) -> Steps[None]:
        asked = request.transactions

        def answer(answers: Sequence[Any]) -> None:
            context.complete(
                AddPartitionsToTxnResponse(
                    results_by_transaction=[
                        AddPartitionsToTxnResult(
                            transactional_id=one.transactional_id,
                            topic_results=list(_results(one.topics, said)),
                        )
                        for one, said in zip(asked, answers, strict=True)
                    ]
                )
            )

        pace = StepPace()
        collector = AnswerCollector(len(asked), answer)
        for at, one in enumerate(asked):
            partitions, refused = yield from self._known(one.topics, is_client=False)
            if refused:
                collector.responder(at)(refused)
            else:
                self._ask(one, partitions, collector.responder(at))
            if pace.is_due(TRANSACTION_COST):
                yield

    def _ask(
        self,
        one: AddPartitionsToTxnTransaction,
        partitions: frozenset[TopicPartition],
        responder: Responder,
    ) -> None:
        if one.verify_only:
            self._coordinator.verify(
                one.transactional_id, one.producer_id, one.producer_epoch, partitions, responder
            )
            return
        self._add(
            one.transactional_id,
            NamedProducer(ProducerId(one.producer_id), one.producer_epoch),
            partitions,
            client_version=IMPLICIT_VERSION,
            responder=responder,
        )

    def _add_or_hold(
        self,
        transactional_id: str,
        producer: NamedProducer,
        partitions: frozenset[TopicPartition],
        *,
        responder: Responder,
    ) -> None:
        """Add partitions to a client's transaction. If the client's previous transaction is still
        ending, wait for its end first.

        A commit is answered before its markers are written, so the client's next transaction often
        begins while they are being written.
        """
        add = partial(self._add, transactional_id, producer, partitions, client_version=0)

        def answer(answer: Any) -> None:
            is_busy = answer is E.CONCURRENT_TRANSACTIONS
            again = partial(add, responder=responder)
            if not (is_busy and self._coordinator.when_completed(transactional_id, again)):
                responder(answer)

        add(responder=answer)

    def _add(
        self,
        transactional_id: str,
        producer: NamedProducer,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int,
        responder: Responder,
    ) -> None:
        self._coordinator.perform(
            transactional_id,
            responder,
            lambda shard, now: shard.add(
                transactional_id,
                producer,
                partitions,
                client_version=client_version,
                responder=responder,
                now=now,
            ),
        )

    def _known(
        self,
        topics: Iterable[AddPartitionsToTxnTopic],
        *,
        is_client: bool,
        permissions: Permissions | None = None,
    ) -> Steps[tuple[frozenset[TopicPartition], dict[TopicPartition, ErrorCode]]]:
        """Return all partitions that an AddPartitionsToTxn request names, and the error codes of
        partitions that cannot be added. If any partition cannot be added, all others get
        OPERATION_NOT_ATTEMPTED.
        """
        image = self._image()
        pace = StepPace()
        partitions: set[TopicPartition] = set()
        refused: dict[TopicPartition, ErrorCode] = {}
        for asked in topics:
            topic = image.topic(asked.name)
            is_closed = is_client and asked.name in INTERNAL_TOPICS
            if permissions is not None and not is_closed:
                is_closed = not permissions.allows(
                    AclOperation.WRITE, ResourceType.TOPIC, asked.name
                )
            for index in asked.partitions:
                one = TopicPartition(asked.name, index)
                partitions.add(one)
                if is_closed:
                    refused[one] = E.TOPIC_AUTHORIZATION_FAILED
                elif topic is None or index not in topic.partitions:
                    refused[one] = E.UNKNOWN_TOPIC_OR_PARTITION
                if pace.is_due():
                    yield
        if refused:
            for one in partitions - refused.keys():
                refused[one] = E.OPERATION_NOT_ATTEMPTED
        return frozenset(partitions), refused

    # ---- AddOffsetsToTxn

    def add_offsets(
        self, context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> HandlerResult:
        """Add the partition that stores a group's offsets to a transaction.

        A producer may send this request before any client has looked up a group coordinator. In
        this case, the request creates the topic `__consumer_offsets`, and is retried.
        """
        version = context.api_version

        def answer(code: ErrorCode) -> None:
            own_code = client_code_of(AddOffsetsToTxnRequest, code, version)
            context.complete(AddOffsetsToTxnResponse(error_code=own_code))

        topic = self._image().topic(OFFSETS_TOPIC)
        if topic is None:
            return self._create_offsets_topic(context)
        index = partition_of(request.group_id, len(topic.partitions))
        self._add_or_hold(
            request.transactional_id,
            NamedProducer(ProducerId(request.producer_id), request.producer_epoch),
            frozenset((TopicPartition(OFFSETS_TOPIC, index),)),
            responder=answer,
        )
        return None

    async def _create_offsets_topic(self, context: RequestContext) -> AddOffsetsToTxnResponse:
        await self._create_topic(context, [OFFSETS_TOPIC])
        return AddOffsetsToTxnResponse(error_code=E.COORDINATOR_NOT_AVAILABLE)

    # ---- EndTxn

    def end(self, context: RequestContext, request: EndTxnRequest) -> None:
        """Commit or abort a transaction. The response is sent when the decision is committed."""
        version = context.api_version
        is_bumping = version >= BUMPING_FROM

        def answer(answer: NamedProducer | ErrorCode) -> None:
            if isinstance(answer, ErrorCode):
                code = client_code_of(EndTxnRequest, answer, version)
                response = EndTxnResponse(error_code=code)
            elif is_bumping:
                response = EndTxnResponse(
                    producer_id=answer.producer_id, producer_epoch=answer.epoch
                )
            else:
                response = EndTxnResponse()
            context.complete(response)

        self._coordinator.perform(
            request.transactional_id,
            answer,
            lambda shard, now: shard.end(
                request.transactional_id,
                NamedProducer(ProducerId(request.producer_id), request.producer_epoch),
                is_commit=request.committed,
                client_version=IMPLICIT_VERSION if is_bumping else 0,
                responder=answer,
                now=now,
            ),
        )


def _initialised(answer: NamedProducer | ErrorCode, version: int) -> InitProducerIdResponse:
    if isinstance(answer, ErrorCode):
        code = client_code_of(InitProducerIdRequest, answer, version)
        return InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH_GIVEN)
    return InitProducerIdResponse(producer_id=answer.producer_id, producer_epoch=answer.epoch)


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], answer: dict[TopicPartition, ErrorCode] | ErrorCode
) -> Iterator[AddPartitionsToTxnTopicResult]:
    """Yield the entry of the AddPartitionsToTxn response for each topic, with each partition
    once."""
    for topic in topics:
        yield AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=(
                        answer
                        if isinstance(answer, ErrorCode)
                        else answer[TopicPartition(topic.name, index)]
                    ),
                )
                for index in dict.fromkeys(topic.partitions)
            ],
        )
