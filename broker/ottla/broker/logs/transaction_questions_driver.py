"""Asks transaction coordinators: one task and one connection for each broker that is one.

A request is out at a time for each; what comes meanwhile is asked together with the next.  An add
that meets the end of the transaction before is asked again here, some times: it is over soon, and
the client is spared the way.  Where this broker is the coordinator itself no connection is needed,
and a verification, which changes nothing, waits for no other question.
"""

from collections.abc import Callable, Iterable

import trio

from ottla.broker.logs.transaction_questions import (
    Outcome,
    QuestionQueue,
    TransactionOperation,
    TransactionQuestion,
    answer_each,
    request_of,
)
from ottla.broker.network.loopback_driver import Loopback
from ottla.broker.network.request_times import BOUNDS_NS
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.client.network.connection import BrokerConnection, ConnectionLostError, connect
from ottla.client.network.login import starter_of
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.instruments import Histogram
from ottla.wire.apis import ADD_PARTITIONS_TO_TXN
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

CONNECT_TIMEOUT_S = 5.0
IDLE_S = 60.0
"""How long a connection without questions is kept: shorter connects again for a producer that
commits once a minute, longer keeps connections to brokers that coordinate nothing any more."""

BROKERS_FROM_VERSION = 4
"""The first version of AddPartitionsToTxn that brokers ask by."""


class CoordinatorQuestions:
    """All questions under way; satisfies `TransactionCoordinators`."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        clock: Clock,
        partition_of: Callable[[str, int], int],
        errors: UnexpectedErrors,
        own: Loopback | None = None,
        now_ns: Callable[[], int] = int,
    ) -> None:
        """`now_ns` is the loop's stopwatch.

        `own` serves what this broker asks itself; without it that takes a connection too.

        `partition_of` places a transactional id in the transaction state.
        """
        self._config = config
        self._table = table
        self._clock = clock
        self._partition_of = partition_of
        self._errors = errors
        self._own = own
        self._now_ns = now_ns
        self._lanes: dict[NodeId, QuestionLane] = {}
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]
        self.is_verifying = config.transaction_partition_verification_enable
        self.failure_count = 0
        """Number of transactions that a coordinator did not confirm."""
        self.durations = Histogram(BOUNDS_NS)
        """How long it took until each was answered, in nanoseconds."""

    def enable(self, is_enabled: bool) -> None:
        """Verify, or no longer, what clients say that they have added."""
        self.is_verifying = is_enabled

    def metrics(self) -> dict[str, float]:
        """Return how many questions there were."""
        return {
            "transactions.questions": self.durations.count,
            "transactions.questions.failed": self.failure_count,
        }

    async def run(self) -> None:
        """Ask until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            for lane in self._lanes.values():
                nursery.start_soon(self._serve, lane)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def ask(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: Iterable[tuple[str, int]],
        timeout_ms: int,
    ) -> Outcome:
        """Return what the coordinator says of each partition; its errors are codes, too."""
        begun_ns, begun_ms = self._now_ns(), self._clock.monotonic_ms()
        timeout_ms = max(0, min(timeout_ms, self._config.request_timeout_ms))
        patience_ms = self._config.add_partitions_to_txn_retry_backoff_ms_max
        retried_until_ms = begun_ms + min(patience_ms, timeout_ms)
        named = list(partitions)
        outcome: Outcome = dict.fromkeys(named, ErrorCode.NETWORK_EXCEPTION)
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                outcome = await self._ask_once(
                    transactional_id, producer_id, epoch, operation, named
                )
                is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in outcome.values()
                if not (is_busy and operation.is_add):
                    break
                if self._clock.monotonic_ms() >= retried_until_ms:
                    break
                await trio.sleep(self._config.add_partitions_to_txn_retry_backoff_ms / 1000)
        self.durations.observe(self._now_ns() - begun_ns)
        self.failure_count += any(code is not ErrorCode.NONE for code in outcome.values())
        return outcome

    async def _ask_once(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: list[tuple[str, int]],
    ) -> Outcome:
        answered = trio.Event()
        found: list[Outcome] = []

        def take(outcome: Outcome) -> None:
            found.append(outcome)
            answered.set()

        question = TransactionQuestion(
            transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            operation=operation,
            partitions=partitions,
            on_answer=take,
        )
        node_id = self._coordinator_of(transactional_id)
        if node_id == NO_NODE:
            question.answer_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return found[0]
        own = self._own if node_id == self._config.node_id else None
        if own is not None and not operation.is_add:
            await _ask_self(own, question)
            return found[0]
        lane = self._lane(node_id, own)
        lane.queue.add(question)
        lane.has_questions.set()
        try:
            await answered.wait()
        finally:
            lane.queue.remove(question)
        return found[0]

    def _coordinator_of(self, transactional_id: str) -> NodeId:
        """Return the leader of the id's partition of the transaction state, NO_NODE for none."""
        topic = self._table.image.topic(TRANSACTIONS_TOPIC)
        if topic is None or not topic.partitions:
            return NO_NODE
        index = self._partition_of(transactional_id, len(topic.partitions))
        return NodeId(topic.partitions[index].leader)

    def _lane(self, node_id: NodeId, own: Loopback | None) -> "QuestionLane":
        lane = self._lanes.get(node_id)
        if lane is None:
            lane = self._lanes[node_id] = QuestionLane(node_id, self._config, self._table, own)
            if self._nursery is not None:
                self._start_soon(self._serve, lane)
        return lane

    async def _serve(self, lane: "QuestionLane") -> None:
        """Ask one coordinator until it has not been asked for a while."""
        try:
            while True:
                while await lane.wait():
                    try:
                        await lane.ask()
                    except Exception as error:
                        self._errors.note("transaction coordinator", lane.node_id, error)
                await lane.close()
                # A question may have arrived while the connection was closed.
                if not lane.queue:
                    return
        finally:
            if self._lanes.get(lane.node_id) is lane:
                del self._lanes[lane.node_id]
            await lane.close()


class QuestionLane:
    """One coordinator: its questions, and the connection they leave by."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        table: PartitionTable,
        own: Loopback | None,
    ) -> None:
        self.node_id = node_id
        self._own = own
        self.queue = QuestionQueue()
        self.has_questions = trio.Event()
        self._config = config
        self._table = table
        self._connection: BrokerConnection | Loopback | None = None

    async def wait(self) -> bool:
        """Return when there is a question, False if there has been none for a while."""
        with trio.move_on_after(IDLE_S):
            # The event may be of a question that was taken with the ones before.
            while not self.queue:
                await self.has_questions.wait()
                self.has_questions = trio.Event()
        return len(self.queue) > 0

    async def ask(self) -> None:
        """Ask what waits, request by request."""
        while questions := self.queue.take():
            answered = False
            try:
                response = await self._exchange(questions)
                answered = True
                answer_each(questions, response)
            except RefusedError as refusal:
                answered = True
                _fail(questions, refusal.code)
            except (OttlaError, OSError, trio.TooSlowError):
                answered = True
                await self.close()
                _fail(questions, ErrorCode.NETWORK_EXCEPTION)
            finally:
                if not answered:  # cancelled, or an error that nothing foresaw
                    _fail(questions, ErrorCode.NETWORK_EXCEPTION)

    async def _exchange(self, questions: list[TransactionQuestion]) -> AddPartitionsToTxnResponse:
        with trio.fail_after(self._config.request_timeout_ms / 1000):
            connection = self._connection
            if connection is None:
                connection = self._connection = await self._connect()
            version = connection.version_of(ADD_PARTITIONS_TO_TXN)
            if version < BROKERS_FROM_VERSION:
                raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
            request = request_of(questions)
            return await connection.request(request, AddPartitionsToTxnResponse, version)

    async def _connect(self) -> BrokerConnection | Loopback:
        if self._own is not None:
            return self._own
        broker = self._table.image.brokers.get(self.node_id)
        name = self._config.inter_broker_listener
        endpoint = None if broker is None else broker.endpoint(name)
        if endpoint is None:
            raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        client_id = f"broker-{self._config.node_id}-txn-verifier"
        try:
            return await connect(
                endpoint.host, endpoint.port, client_id=client_id, timeout_s=CONNECT_TIMEOUT_S
            )
        except RefusedError as refusal:
            # Why a broker may not log in at another is no answer for a client.
            raise ConnectionLostError(str(refusal)) from refusal

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with trio.move_on_after(1) as patience:
                patience.shield = True
                await connection.aclose()


async def _ask_self(own: Loopback, question: TransactionQuestion) -> None:
    try:
        response = await own.request(request_of([question]), AddPartitionsToTxnResponse)
    except OttlaError:
        question.answer_failed(ErrorCode.NETWORK_EXCEPTION)
    else:
        answer_each([question], response)


def _fail(questions: list[TransactionQuestion], code: ErrorCode) -> None:
    for question in questions:
        question.answer_failed(code)
