"""The transactions of one producer: requests to the transaction coordinator and to group
coordinators.

This module makes no decisions: `transaction_flow` selects the requests and interprets the
responses. Only one request to the transaction coordinator is in flight at a time, so that no
partition or offset is added to a transaction that has already ended.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NoReturn, TypeVar

import trio

from ottla.client.groups.coordinator import (
    Coordinator,
)
from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import Committed
from ottla.client.network.background import WakeUp
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.produce.accumulator import ProducerIdentity
from ottla.client.produce.flush import settle_all
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.transactions.coordinator_calls import (
    FIRST_RETRY_S,
    CoordinatorAnswer,
    CoordinatorCalls,
    version_of,
)
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.client.transactions.transaction_flow import (
    ADD_PARTITIONS_VERSION_MAX,
    TXN_OFFSET_COMMIT_ADDS_FROM,
    ProducerFencedError,
    ResponseMeaning,
    TransactionAbortedError,
    TransactionCall,
    TransactionFlow,
    TransactionOutcomeUnknownError,
    TransactionProtocol,
    TransactionStage,
    protocol_for,
)
from ottla.client.transactions.transaction_messages import (
    topics_to_add,
    topics_to_commit,
)
from ottla.client.transactions.transactional_accumulator import TransactionalAccumulator, outside
from ottla.model.errors import ErrorCode, OttlaError, ProtocolError, RefusedError
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.limits import INT16_MAX
from ottla.model.settings.client import ProducerConfig
from ottla.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequest
from ottla.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse

R = TypeVar("R", bound=Message)

TRANSACTION_VERSION = "transaction.version"
END_BOUND_S = 10.0
"""Maximum time in seconds by which an abort, or a cancelled commit, delays the end of the
transaction's `async with` block.

With a smaller value, more transactions stay open until a new producer epoch or their timeout ends
them. With a larger value, a cancelled task takes longer to end.
"""
EPOCHS_FROM = 3
"""First version of InitProducerId whose request contains the current producer id and epoch
(KIP-360)."""
NO_OFFSETS_VERSION_MAX = TXN_OFFSET_COMMIT_ADDS_FROM - 1


class ProducerTransaction:
    """An open transaction of a producer.

    Records that the application passes to the producer's `send` belong to the transaction.
    `send_offsets` adds offsets of a consumer group to the transaction.
    """

    def __init__(self, transactions: "ProducerTransactions") -> None:
        self._transactions = transactions

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | Committed], group: Membership
    ) -> None:
        """Commit offsets of a consumer group as part of the transaction.

        Each offset must be the offset of the next record to process. `group` is the consumer's
        `group_metadata()`. Raises TransactionAbortedError if the group has a newer generation, or
        if the offsets are refused for another reason. After this error, the transaction can only be
        aborted.
        """
        await self._transactions.send_offsets(self, offsets, group)

    async def prepare(self) -> PreparedTransaction | None:
        """Deliver all records, but leave the transaction open. Any process can then end it with
        `complete_transactions`.

        The transaction's `async with` block then neither commits nor aborts the transaction at its
        end, but still aborts it if the block raises an error. The producer cannot start another
        transaction. Returns None if the transaction is empty and therefore needs no completion.
        Raises TransactionAbortedError if a record was not delivered.
        """
        return await self._transactions.prepare(self)


class ProducerTransactions:
    """The transactions of one producer, of which at most one is open at a time."""

    def __init__(self, cluster: Cluster, config: ProducerConfig) -> None:
        assert config.transactional_id is not None
        self._cluster = cluster
        self._config = config
        self._id = config.transactional_id
        self.flow = TransactionFlow()
        self._calls = CoordinatorCalls(cluster, config, self.flow, self._id)
        self._wake_up = WakeUp()
        self.gathered = TransactionalAccumulator(config, self.flow, self._wake_up.set)
        self._is_busy = False
        """True while a transaction is starting, open or ending."""
        self._open: ProducerTransaction | None = None
        self._looked_at_s = 0.0
        """Time, in seconds of trio's clock, of the last request for API versions and features."""
        self._coordinators: dict[str, Coordinator] = {}
        self.wake: Callable[[], None] = lambda: None
        """Function that is called when batches are ready to be sent or have failed."""

    @property
    def _block_s(self) -> float:
        return self._config.block_ms_max / 1_000

    async def run(self) -> NoReturn:
        """Add partitions to the open transaction when records are sent to them. Runs until
        cancelled."""
        while True:
            await self._wake_up.wait()
            while wanted := self._wanted():
                await self._add_partitions(wanted)

    async def aclose(self) -> None:
        """Close the connections to all coordinators."""
        for coordinator in (self._calls.coordinator, *self._coordinators.values()):
            await coordinator.forget()

    # Start.

    async def initialise(self) -> None:
        """Request the producer id and epoch of the transactional id.

        This fences earlier producers with the same transactional id, and ends their open
        transaction.
        """
        deadline = trio.current_time() + self._block_s
        self._looked_at_s = trio.current_time()
        await self._identify(deadline)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[ProducerTransaction]:
        """Begin a transaction and yield it. The transaction is committed at the end of the caller's
        `async with` block, or aborted if the block raises an error."""
        if self._is_busy:
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE, "the producer's previous transaction is still open"
            )
        self._is_busy = True
        try:
            await self._begin()
            self._open = transaction = ProducerTransaction(self)
            try:
                yield transaction
                self._open = None
                if self.flow.stage is TransactionStage.PREPARED:
                    self.flow.end_for_good(_handed_over(self._id))
                else:
                    await self._commit()
            except BaseException as error:
                self._open = None
                await self._abort_for(error)
                raise
        finally:
            self._is_busy = False

    async def _begin(self) -> None:
        self._raise_final()
        deadline = trio.current_time() + self._block_s
        protocol = await self._find_protocol(deadline)
        if self.flow.must_identify(protocol):
            # Batches of an abort that was given up may still be in flight.
            with trio.CancelScope(deadline=deadline) as scope:
                await settle_all(self.gathered, self.wake)
            if scope.cancelled_caught:
                raise RefusedError(
                    ErrorCode.REQUEST_TIMED_OUT, "an earlier batch has no response yet"
                )
            await self._identify(deadline)
        self.gathered.take_unseen_failure()
        self.flow.begin(protocol)
        self.gathered.open()

    async def _find_protocol(self, deadline: float) -> TransactionProtocol:
        coordinator = self._calls.coordinator
        wait_s, trouble = FIRST_RETRY_S, "nothing was asked"
        age_s = self._config.metadata_age_ms_max / 1_000
        with trio.CancelScope(deadline=deadline):
            while True:
                try:
                    if trio.current_time() >= self._looked_at_s + age_s:
                        await coordinator.refresh_versions(self._config.request_timeout_ms / 1_000)
                        self._looked_at_s = trio.current_time()
                    return protocol_for(
                        await coordinator.feature_level(TRANSACTION_VERSION),
                        produce=await version_of(coordinator, PRODUCE),
                        txn_offset_commit=await version_of(coordinator, TXN_OFFSET_COMMIT),
                        end_txn=await version_of(coordinator, END_TXN),
                    )
                except (ConnectionLostError, ProtocolError) as error:
                    trouble = str(error)
                except RefusedError as error:
                    if not error.is_retriable:
                        raise
                    trouble = str(error)
                await trio.sleep(wait_s)
                wait_s = self._calls.next_wait(wait_s)
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"no coordinator: {trouble}")

    async def _identify(self, deadline: float) -> None:
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._config.transaction_timeout_ms
        )
        if self.flow.identity is not None:
            request.producer_id, request.producer_epoch = self.flow.identity

        async def version() -> int:
            found = await self._calls.coordinator.version_of(INIT_PRODUCER_ID)
            if found < EPOCHS_FROM:
                request.producer_id, request.producer_epoch = -1, -1
            return found

        answer = await self._calls.ask(
            TransactionCall.INITIALISE, request, InitProducerIdResponse, version, deadline
        )
        outcome = answer.message
        if answer.verdict is ResponseMeaning.DONE:
            assert isinstance(outcome, InitProducerIdResponse)
            identity = ProducerIdentity(ProducerId(outcome.producer_id), outcome.producer_epoch)
            self.flow.identify(identity)
            self.gathered.become(identity)
            return
        if answer.verdict is ResponseMeaning.RETRY:
            raise RefusedError(answer.code, f"transactional id {self._id!r}: {answer.why}")
        self._end_for_good(answer)
        self._raise_final()

    # In a transaction.

    def _wanted(self) -> tuple[TopicPartition, ...]:
        return () if self.gathered.ended_by is not None else self.flow.wanted()

    async def _add_partitions(self, wanted: tuple[TopicPartition, ...]) -> None:
        number = self.flow.number
        producer_id, epoch = self._identity()
        answer = await self._calls.ask(
            TransactionCall.ADD,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=topics_to_add(wanted),
            ),
            AddPartitionsToTxnResponse,
            self._calls.at_most(ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION_MAX),
            trio.current_time() + self._block_s,
            is_wanted=lambda: self.flow.number == number and bool(self._wanted()),
        )
        if self.flow.number != number:
            return  # the transaction was given up, and the response is for an earlier epoch
        if answer.verdict is ResponseMeaning.DONE:
            self.flow.add(wanted)
        elif self._wanted():
            self._require_abort(answer)
        self.wake()

    async def send_offsets(
        self,
        transaction: ProducerTransaction,
        offsets: Mapping[TopicPartition, int | Committed],
        group: Membership,
    ) -> None:
        """Commit offsets of a consumer group as part of the open transaction."""
        if self._open is not transaction or self.gathered.ended_by is not None:
            raise self.gathered.refusal or outside()
        if not group.group_id:
            raise RefusedError(
                ErrorCode.INVALID_GROUP_ID, "offsets need the consumer's group_metadata()"
            )
        if not offsets:
            await trio.lowlevel.checkpoint()
            return
        try:
            await self._send_offsets(offsets, group)
        except BaseException as error:
            # After any error, it is unknown whether the offsets are in the transaction.
            self._require_abort(
                CoordinatorAnswer(ResponseMeaning.ABORT, _code_of(error), why=f"offsets: {error}")
            )
            raise

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, int | Committed], group: Membership
    ) -> None:
        deadline = trio.current_time() + self._block_s
        producer_id, epoch = self._identity()
        if self.flow.must_add_group(group.group_id):
            added = await self._calls.ask(
                TransactionCall.ADD,
                AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    group_id=group.group_id,
                ),
                AddOffsetsToTxnResponse,
                self._calls.at_most(ADD_OFFSETS_TO_TXN, INT16_MAX),
                deadline,
            )
            self._raise_refused(added)
            self.flow.add_group(group.group_id)
        coordinator = self._coordinators.get(group.group_id)
        if coordinator is None:
            coordinator = Coordinator(
                self._cluster, group.group_id, client_id=self._config.client_id
            )
            self._coordinators[group.group_id] = coordinator
        is_implicit = self.flow.protocol is TransactionProtocol.IMPLICIT
        version_max = TXN_OFFSET_COMMIT_ADDS_FROM if is_implicit else NO_OFFSETS_VERSION_MAX
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=topics_to_commit(offsets),
        )
        answer = await self._calls.ask(
            TransactionCall.COMMIT_OFFSETS,
            request,
            TxnOffsetCommitResponse,
            self._calls.at_most(TXN_OFFSET_COMMIT, version_max, coordinator),
            deadline,
            coordinator=coordinator,
        )
        self._raise_refused(answer)

    def _raise_refused(self, answer: CoordinatorAnswer) -> None:
        if answer.verdict is ResponseMeaning.DONE:
            return
        self._require_abort(answer)
        self._raise_final()
        raise TransactionAbortedError(answer.code, answer.why)

    def _require_abort(self, answer: CoordinatorAnswer) -> None:
        """Allow only an abort of the transaction from now on. If the response is fatal, the
        producer also ends."""
        error: RefusedError = TransactionAbortedError(answer.code, answer.why)
        if answer.verdict in (ResponseMeaning.FENCED, ResponseMeaning.FATAL):
            self._end_for_good(answer)
            error = self.flow.final or error
        else:
            self.flow.require_abort()
        self.gathered.require_abort(error)
        self.wake()

    # End.

    async def prepare(self, transaction: ProducerTransaction) -> PreparedTransaction | None:
        """Deliver all records of the open transaction, which `complete_transactions` will end.
        Returns the prepared transaction, or None if nothing was sent."""
        if self._open is not transaction or self.flow.stage is TransactionStage.PREPARED:
            raise self.gathered.refusal or outside()
        await self._deliver_all()
        self.flow.prepare()
        if not self.flow.must_end:
            return None
        return PreparedTransaction(self._id, self._identity(), self.flow.protocol)

    async def _deliver_all(self) -> None:
        self.gathered.close()
        await settle_all(self.gathered, self.wake)
        self._raise_final()
        failure = self.gathered.ended_by
        if failure is not None or self.flow.stage is not TransactionStage.OPEN:
            assert failure is not None
            raise TransactionAbortedError(failure.code, failure.message) from failure

    async def _commit(self) -> None:
        await self._deliver_all()
        self.flow.begin_commit()
        if not self.flow.must_end:
            self.flow.on_ended(None)
            return
        try:
            answer = await self._calls.end(trio.current_time() + self._block_s, is_commit=True)
        except BaseException:
            # The commit may have succeeded; only the coordinator's response can confirm that.
            with trio.CancelScope(shield=True):
                bound = trio.current_time() + END_BOUND_S
                self._take_commit(await self._calls.end(bound, is_commit=True))
            raise
        self._take_commit(answer)

    def _take_commit(self, answer: CoordinatorAnswer) -> None:
        verdict = self.flow.commit_verdict(answer.verdict)
        if verdict is ResponseMeaning.DONE:
            self._take_end(answer)
        elif verdict is ResponseMeaning.ABORT:
            raise TransactionAbortedError(answer.code, answer.why)
        else:
            self._end_for_good(answer._replace(verdict=verdict))
            self._raise_final()

    async def _abort_for(self, error: BaseException) -> None:
        """Abort the transaction because its `async with` block raised `error`. Raises the permanent
        error of the producer if it has one, or TransactionAbortedError if a record was not
        delivered."""
        if self.flow.stage in (TransactionStage.READY, TransactionStage.UNIDENTIFIED):
            return  # the commit was completed before its task was cancelled
        if self.flow.stage is not TransactionStage.FINAL:
            code = _code_of(error)
            why = TransactionAbortedError(code, f"the transaction is aborted: {error!r}")
            self.gathered.require_abort(why)
        self.gathered.close()
        with trio.CancelScope(shield=True):
            await self._abort(trio.current_time() + min(END_BOUND_S, self._block_s))
        self.gathered.take_unseen_failure()
        final = self.flow.final
        if final is not None and final is not error and isinstance(error, OttlaError):
            raise final from error
        if isinstance(error, NotDeliveredError):
            raise TransactionAbortedError(error.code, error.message) from error

    async def _abort(self, deadline: float) -> None:
        with trio.CancelScope(deadline=deadline) as scope:
            # A batch that arrives after the end would be outside of the transaction, or part of the
            # next one.
            await settle_all(self.gathered, self.wake)
        if self.flow.stage is TransactionStage.FINAL:
            return
        self.flow.begin_abort()
        # Request the versions again: an abort may be due to a change of the cluster's protocol.
        self._looked_at_s = -math.inf
        if not self.flow.must_end:
            self.flow.on_ended(None)
            return
        if scope.cancelled_caught:
            self.flow.give_up()
            return
        answer = await self._calls.end(deadline, is_commit=False)
        if answer.verdict is ResponseMeaning.DONE:
            self._take_end(answer)
        elif answer.verdict in (ResponseMeaning.FENCED, ResponseMeaning.FATAL):
            self._end_for_good(answer)
        else:
            self.flow.give_up()

    def _take_end(self, answer: CoordinatorAnswer) -> None:
        outcome = answer.message
        identity = None
        if isinstance(outcome, EndTxnResponse) and outcome.producer_id >= 0:
            identity = ProducerIdentity(ProducerId(outcome.producer_id), outcome.producer_epoch)
        if self.flow.on_ended(identity) and identity is not None:
            self.gathered.become(identity)

    def _end_for_good(self, answer: CoordinatorAnswer) -> None:
        name = f"transactional id {self._id!r}"
        error: RefusedError
        if answer.verdict is ResponseMeaning.FENCED:
            error = ProducerFencedError(
                answer.code, f"{name}: another producer has it, or the transaction took too long"
            )
        elif self.flow.stage is TransactionStage.COMMITTING:
            error = TransactionOutcomeUnknownError(
                answer.code, f"{name}: it is unknown if the transaction is committed: {answer.why}"
            )
        else:
            error = RefusedError(answer.code, f"{name}: {answer.why}")
        self.flow.end_for_good(error)
        self.gathered.require_abort(error)
        self.gathered.refusal = error
        self.wake()

    def _raise_final(self) -> None:
        if self.flow.final is not None:
            raise self.flow.final

    def _identity(self) -> ProducerIdentity:
        assert self.flow.identity is not None
        return self.flow.identity


def _handed_over(transactional_id: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_TXN_STATE,
        f"transactional id {transactional_id!r}: its transaction is prepared, and ended elsewhere",
    )


def _code_of(error: BaseException) -> ErrorCode:
    return error.code if isinstance(error, RefusedError) else ErrorCode.TRANSACTION_ABORTABLE


@asynccontextmanager
async def open_transactions(
    cluster: Cluster, config: ProducerConfig
) -> AsyncIterator[ProducerTransactions]:
    """Initialise a transactional id, which fences earlier producers with this id, and yield its
    transactions. The connections to coordinators are closed at the end of the caller's `async with`
    block."""
    async with AsyncExitStack() as stack:
        transactions = ProducerTransactions(cluster, config)
        stack.push_async_callback(transactions.aclose)
        await transactions.initialise()
        yield transactions
