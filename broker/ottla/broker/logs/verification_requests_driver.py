"""Sends verification requests to transaction coordinators, with one task and one connection for
each broker.

Each connection has one request in flight. Verifications that arrive meanwhile are sent together in
the next request. A request to add a partition may arrive while the coordinator is still ending the
previous transaction. This driver then retries the request a few times, because the transaction ends
soon, and a retry here saves the client a round trip.

If this broker is the coordinator, no connection is needed. A verification that adds no partition
then waits neither for other verifications nor for a task: its outcome is known at once. So is that
of an addition, if no other replica must confirm the write and the previous transaction has ended.
"""

from collections.abc import Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any, Protocol

import trio

from ottla.broker.cluster.peer_connection_driver import PeerConnection
from ottla.broker.cluster.settings.dynamic_settings import PARTITION_VERIFICATION
from ottla.broker.logs.verification_requests import (
    Outcome,
    TransactionOperation,
    TransactionVerification,
    VerificationQueue,
    answer_each,
    request_of,
)
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.client.network.login import starter_of
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.loopback_driver import Loopback
from ottla.node.network.request_times import BOUNDS_NS
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.metrics.instruments import Histogram
from ottla.wire.apis import ADD_PARTITIONS_TO_TXN
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

IDLE_S = 60.0
"""Seconds after which an unused connection to a transaction coordinator is closed. With a shorter
time, the broker reconnects for a producer that commits once a minute. A longer time keeps
connections to brokers that no longer coordinate any transaction."""

BROKERS_FROM_VERSION = 4
"""First version of AddPartitionsToTxn that is sent by brokers instead of clients."""


class OwnCoordinator(Protocol):
    """Transaction coordinator of this broker."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        responder: Callable[[Outcome | ErrorCode], None],
        /,
    ) -> None:
        """Verify that partitions belong to the open transaction of a transactional id. Calls
        `responder` before it returns, with one error code, or with one for each partition."""
        ...

    def writes_alone(self, transactional_id: str, /) -> bool:
        """Return True if no other replica must confirm a write of a transactional id's state."""
        ...

    def add_at_once(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        responder: Callable[[ErrorCode], None],
        /,
    ) -> None:
        """Add partitions to the open transaction of a transactional id, or begin a transaction.
        Calls `responder` before it returns if `writes_alone`."""
        ...

    def when_completed(self, transactional_id: str, proceed: Callable[[], None], /) -> bool:
        """Call `proceed` once the ending transaction of a transactional id is complete. Returns
        False, and does not call it, if no transaction of this id is ending."""
        ...


class VerificationRequests:
    """Implementation of `TransactionCoordinators` that sends verification requests to all
    coordinators of the cluster. It stores the verifications in progress."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        clock: Clock,
        partition_of: Callable[[str, int], int],
        errors: UnexpectedErrors,
        own_coordinator: Callable[[], OwnCoordinator],
        own: Loopback | None = None,
        now_ns: Callable[[], int] = int,
    ) -> None:
        """Create the senders of verification requests. `now_ns` is the event loop's monotonic clock
        in nanoseconds.

        `own_coordinator` returns this broker's transaction coordinator, which verifies without a
        request. `own` is the loopback for additions that this broker requests from itself because
        other replicas must confirm them. If it is None, the broker opens a connection to itself.

        `partition_of` maps a transactional id to its partition of `__transaction_state`.
        """
        self._config = config
        self._table = table
        self._clock = clock
        self._partition_of = partition_of
        self._errors = errors
        self._own_coordinator = own_coordinator
        self._own = own
        self._now_ns = now_ns
        self._senders: dict[NodeId, VerificationSender] = {}
        self._nursery: trio.Nursery | None = None
        self._start_soon: Callable[..., None]
        self.is_verifying = config.transaction_partition_verification_enable
        self.failure_count = 0
        """Number of verifications of transactions that a coordinator did not confirm."""
        self.durations = Histogram(BOUNDS_NS)
        """Histogram of the time from the request of a verification to its outcome, in
        nanoseconds."""

    def enable(self, is_enabled: bool) -> None:
        """Turn the verification of transactional batches on or off."""
        self.is_verifying = is_enabled

    def metrics(self) -> dict[str, float]:
        """Return the counters of transaction verifications by metric name."""
        return {
            "transactions.questions": self.durations.count,
            "transactions.questions.failed": self.failure_count,
        }

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that sends verification requests, and the setting that turns
        verification on or off."""
        parts.task("verifications to transaction coordinators", self.run)
        parts.setting(PARTITION_VERIFICATION, self.enable)

    async def run(self) -> None:
        """Send transaction verifications to the coordinators until cancelled."""
        async with trio.open_nursery() as nursery:
            self._start_soon = starter_of(nursery)
            self._nursery = nursery
            for sender in self._senders.values():
                nursery.start_soon(self._serve, sender)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def ask(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: Iterable[tuple[str, int]],
        timeout_ms: int,
    ) -> Outcome | Coroutine[Any, Any, Outcome]:
        """Request the verification or addition of partitions from the coordinator of a transaction.
        Returns the coordinator's error code for each partition, or a coroutine that waits for these
        codes. If the request fails, each partition gets the error code of this failure."""
        begun_ns = self._now_ns()
        named = list(partitions)
        ask_once = partial(self._ask_once, transactional_id, producer_id, epoch, operation, named)
        outcome = ask_once()
        if not isinstance(outcome, dict) or _is_early(outcome, operation):
            completed = self._completion_after(outcome, transactional_id, operation)
            return self._ask_in_time(
                transactional_id,
                outcome,
                completed,
                ask_once,
                named,
                operation,
                timeout_ms,
                begun_ns,
            )
        self._note(outcome, begun_ns)
        return outcome

    def _note(self, outcome: Outcome, begun_ns: int) -> None:
        self.durations.observe(self._now_ns() - begun_ns)
        self.failure_count += any(code is not ErrorCode.NONE for code in outcome.values())

    async def _ask_in_time(
        self,
        transactional_id: str,
        asking: Outcome | Coroutine[Any, Any, Outcome],
        completed: trio.Event | None,
        ask_again: Callable[[], Outcome | Coroutine[Any, Any, Outcome]],
        partitions: list[tuple[str, int]],
        operation: TransactionOperation,
        timeout_ms: int,
        begun_ns: int,
    ) -> Outcome:
        """Wait for the outcome of a verification, at most for `timeout_ms`. If the previous
        transaction is still ending, an addition of partitions is requested again a few times:
        at `completed`, or after a fixed time if it is None."""
        timeout_ms = max(0, min(timeout_ms, self._config.request_timeout_ms))
        patience_ms = self._config.add_partitions_to_txn_retry_backoff_ms_max
        retried_until_ms = self._clock.monotonic_ms() + min(patience_ms, timeout_ms)
        outcome: Outcome = dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        with trio.move_on_after(timeout_ms / 1000):
            if isinstance(asking, dict):
                outcome = asking
            else:
                outcome = await asking
                completed = self._completion_after(outcome, transactional_id, operation)
            while _is_early(outcome, operation):
                if self._clock.monotonic_ms() >= retried_until_ms:
                    break
                if completed is None:
                    await trio.sleep(self._config.add_partitions_to_txn_retry_backoff_ms / 1000)
                else:
                    await completed.wait()
                again = ask_again()
                outcome = again if isinstance(again, dict) else await again
                completed = self._completion_after(outcome, transactional_id, operation)
        self._note(outcome, begun_ns)
        return outcome

    def _completion_after(
        self,
        outcome: Outcome | Coroutine[Any, Any, Outcome],
        transactional_id: str,
        operation: TransactionOperation,
    ) -> trio.Event | None:
        """Return an event for the completion of the previous transaction, if `outcome` shows that
        it is still ending and this broker coordinates it. Returns None otherwise."""
        if not isinstance(outcome, dict) or not _is_early(outcome, operation):
            return None
        if self._coordinator_of(transactional_id) != self._config.node_id:
            return None
        completed = trio.Event()
        try:
            is_ending = self._own_coordinator().when_completed(transactional_id, completed.set)
        except RefusedError:  # This broker does not serve the transaction any more.
            return None
        return completed if is_ending else None

    def _ask_once(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: list[tuple[str, int]],
    ) -> Outcome | Coroutine[Any, Any, Outcome]:
        node_id = self._coordinator_of(transactional_id)
        if node_id == NO_NODE:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_own = node_id == self._config.node_id
        if is_own and (
            not operation.is_add or self._own_coordinator().writes_alone(transactional_id)
        ):
            return self._ask_own(transactional_id, producer_id, epoch, operation, partitions)
        return _send(
            self._sender(node_id, self._own if is_own else None),
            transactional_id,
            producer_id=producer_id,
            epoch=epoch,
            operation=operation,
            partitions=partitions,
        )

    def _ask_own(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: list[tuple[str, int]],
    ) -> Outcome | Coroutine[Any, Any, Outcome]:
        own = self._own_coordinator()
        ask = own.add_at_once if operation.is_add else own.verify
        answer = OwnAnswer(partitions)
        ask(transactional_id, producer_id, epoch, partitions, answer.take)
        return answer.wait() if answer.outcome is None else answer.outcome

    def _coordinator_of(self, transactional_id: str) -> NodeId:
        """Return the id of the broker that coordinates a transactional id, or NO_NODE. The
        coordinator is the leader of the id's partition of `__transaction_state`."""
        topic = self._table.image.topic(TRANSACTIONS_TOPIC)
        if topic is None or not topic.partitions:
            return NO_NODE
        index = self._partition_of(transactional_id, len(topic.partitions))
        return NodeId(topic.partitions[index].leader)

    def _sender(self, node_id: NodeId, own: Loopback | None) -> "VerificationSender":
        sender = self._senders.get(node_id)
        if sender is None:
            sender = self._senders[node_id] = VerificationSender(
                node_id, self._config, self._table, own
            )
            if self._nursery is not None:
                self._start_soon(self._serve, sender)
        return sender

    async def _serve(self, sender: "VerificationSender") -> None:
        """Send transaction verifications to one coordinator until no verification has been added
        for IDLE_S."""
        try:
            while True:
                while await sender.wait():
                    try:
                        await sender.ask()
                    except Exception as error:
                        self._errors.note("transaction coordinator", sender.node_id, error)
                await sender.close()
                # A verification may have arrived while the connection was being closed.
                if not sender.queue:
                    return
        finally:
            if self._senders.get(sender.node_id) is sender:
                del self._senders[sender.node_id]
            await sender.close()


class OwnAnswer:
    """Answer of this broker's own transaction coordinator, which is usually known at once."""

    def __init__(self, partitions: list[tuple[str, int]]) -> None:
        self._partitions = partitions
        self._is_known: trio.Event | None = None
        """Event that `wait` waits for, created at its first use. Most answers need none."""
        self.outcome: Outcome | None = None
        """Error code for each partition, or None if it is not known yet."""

    def take(self, answer: Outcome | ErrorCode) -> None:
        """Store the answer: one error code for all partitions, or one for each of them."""
        if isinstance(answer, ErrorCode):
            answer = dict.fromkeys(self._partitions, answer)
        self.outcome = answer
        if self._is_known is not None:
            self._is_known.set()

    async def wait(self) -> Outcome:
        """Wait for the answer, and return the error code for each partition."""
        if self.outcome is None:
            self._is_known = trio.Event()
            await self._is_known.wait()
        assert self.outcome is not None
        return self.outcome


class VerificationSender:
    """Transaction verifications queued for one coordinator, and the connection that sends them."""

    def __init__(
        self,
        node_id: NodeId,
        config: BrokerConfig,
        table: PartitionTable,
        own: Loopback | None,
    ) -> None:
        self.node_id = node_id
        self.queue = VerificationQueue()
        self.has_verifications = trio.Event()
        self._config = config
        self._link = PeerConnection(
            node_id, config, lambda: table.image, purpose="txn-verifier", own=own
        )

    async def wait(self) -> bool:
        """Wait until a transaction verification is added. Returns False if no verification is added
        for IDLE_S."""
        with trio.move_on_after(IDLE_S):
            # The event may belong to a verification that was sent with the previous request.
            while not self.queue:
                await self.has_verifications.wait()
                self.has_verifications = trio.Event()
        return len(self.queue) > 0

    async def ask(self) -> None:
        """Send the queued transaction verifications to the coordinator, one request after the
        other."""
        while verifications := self.queue.take():
            answered = False
            try:
                response = await self._exchange(verifications)
                answered = True
                answer_each(verifications, response)
            except RefusedError as refusal:
                answered = True
                _fail(verifications, refusal.code)
            except (OttlaError, OSError, trio.TooSlowError):
                answered = True
                await self.close()
                _fail(verifications, ErrorCode.NETWORK_EXCEPTION)
            finally:
                if not answered:  # Cancelled, or an unexpected error.
                    _fail(verifications, ErrorCode.NETWORK_EXCEPTION)

    async def _exchange(
        self, verifications: list[TransactionVerification]
    ) -> AddPartitionsToTxnResponse:
        with trio.fail_after(self._config.request_timeout_ms / 1000):
            connection = await self._link.connected()
            version = connection.version_of(ADD_PARTITIONS_TO_TXN)
            if version < BROKERS_FROM_VERSION:
                raise RefusedError(ErrorCode.UNSUPPORTED_VERSION)
            request = request_of(verifications)
            return await connection.request(request, AddPartitionsToTxnResponse, version)

    async def close(self) -> None:
        """Close the connection to the coordinator, if it is open."""
        await self._link.close()


async def _send(
    sender: VerificationSender,
    transactional_id: str,
    *,
    producer_id: int,
    epoch: int,
    operation: TransactionOperation,
    partitions: list[tuple[str, int]],
) -> Outcome:
    """Queue a verification for its coordinator, and return the outcome."""
    answered = trio.Event()
    found: list[Outcome] = []

    def take(outcome: Outcome) -> None:
        found.append(outcome)
        answered.set()

    verification = TransactionVerification(
        transactional_id,
        producer_id=producer_id,
        epoch=epoch,
        operation=operation,
        partitions=partitions,
        on_answer=take,
    )
    sender.queue.add(verification)
    sender.has_verifications.set()
    try:
        await answered.wait()
    finally:
        sender.queue.remove(verification)
    return found[0]


def _is_early(outcome: Outcome, operation: TransactionOperation) -> bool:
    """Return True if partitions were not added because the previous transaction is still ending."""
    return operation.is_add and ErrorCode.CONCURRENT_TRANSACTIONS in outcome.values()


def _fail(verifications: list[TransactionVerification], code: ErrorCode) -> None:
    for verification in verifications:
        verification.answer_failed(code)
