"""Requests of partition leaders to transaction coordinators: target, frequency, and timeouts."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.broker.cluster import peer_connection_driver
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.logs import verification_requests, verification_requests_driver
from ottla.broker.logs.verification_requests import Outcome, TransactionOperation
from ottla.broker.logs.verification_requests_driver import VerificationRequests
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.model.settings.broker import load_broker_config
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

World = Any  # the class of the `world` fixture, in conftest.py

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
LOST = ErrorCode.NETWORK_EXCEPTION


class TrioTime:
    """Trio's clock in milliseconds."""

    def monotonic_ms(self) -> int:
        return round(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class Coordinator:
    """A broker that coordinates transactions, at the other end of a connection."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.connected: list[tuple[str, int]] = []
        self.in_flight = 0
        self.version = 5
        self.delay_s = 0.0
        self.is_gone = False
        self.code_of: Callable[[int], ErrorCode] = lambda at: NONE
        """The code of everything in the request of that number."""
        self.whole_code = NONE
        self.closing_s = 0.0

    async def connect(self, host: str, port: int, **_: object) -> "Coordinator":
        if self.is_gone:
            raise ConnectionLostError("gone")
        self.connected.append((host, port))
        return self

    def version_of(self, api_key: int) -> int:
        return self.version

    async def request(
        self, message: AddPartitionsToTxnRequest, kind: Any, version: int = 5
    ) -> AddPartitionsToTxnResponse:
        self.requests.append(message)
        self.in_flight += 1
        assert self.in_flight == 1, "one request at a time"
        try:
            await trio.sleep(self.delay_s)
        finally:
            self.in_flight -= 1
        if self.is_gone:
            raise ConnectionLostError("gone")
        code = self.code_of(len(self.requests))
        if self.whole_code is not NONE:
            return AddPartitionsToTxnResponse(error_code=self.whole_code)
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index, partition_error_code=code
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in message.transactions
            ]
        )

    async def aclose(self) -> None:
        await trio.sleep(self.closing_s)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    found = Coordinator()
    monkeypatch.setattr(peer_connection_driver, "connect", found.connect)
    return found


class OwnCoordinator:
    """The coordinator of this broker, whose next answers are given by hand."""

    def __init__(self, *answers: Outcome | ErrorCode, is_alone: bool = True) -> None:
        self.answers = list(answers)
        self.is_alone = is_alone
        self.proceeds: list[Callable[[], None]] = []
        """Calls that are due when the transaction that is ending is complete."""
        self.asked: list[tuple[str, int, int, list[tuple[str, int]]]] = []

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        responder: Callable[[Outcome | ErrorCode], None],
    ) -> None:
        self.asked.append((transactional_id, producer_id, epoch, list(partitions)))
        responder(self.answers.pop(0))

    add_at_once = verify

    def writes_alone(self, transactional_id: str) -> bool:
        return self.is_alone

    def when_completed(self, transactional_id: str, proceed: Callable[[], None]) -> bool:
        self.proceeds.append(proceed)
        return True


@asynccontextmanager
async def asking(
    world: World, leader: int = 2, own: Any = None, own_coordinator: Any = None
) -> AsyncIterator[VerificationRequests]:
    config, _ = load_broker_config(
        {"node.id": "1", "controller.quorum.voters": "9@localhost:9093", "log.dirs": "/nowhere"}
    )
    world.know(TRANSACTIONS_TOPIC, world.state(replicas=(2,), leader=leader))
    verifications = VerificationRequests(
        config,
        table=world.table,
        clock=TrioTime(),
        partition_of=partition_of,
        errors=UnexpectedErrors(),
        own_coordinator=lambda: own_coordinator,
        own=own,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(verifications.run)
        await trio.testing.wait_all_tasks_blocked()
        yield verifications
        nursery.cancel_scope.cancel()


async def ask(
    verifications: VerificationRequests,
    transactional_id: str = "pay",
    *,
    epoch: int = 0,
    operation: TransactionOperation = TransactionOperation.ADD,
    timeout_ms: int = 5_000,
    partitions: Sequence[tuple[str, int]] = (("t", 0), ("u", 3)),
    into: list[Outcome] | None = None,
) -> Outcome:
    asked = verifications.ask(
        transactional_id,
        producer_id=7,
        epoch=epoch,
        operation=operation,
        partitions=partitions,
        timeout_ms=timeout_ms,
    )
    outcome = asked if isinstance(asked, dict) else await asked
    if into is not None:
        into.append(outcome)
    return outcome


def both(code: ErrorCode) -> Outcome:
    return {("t", 0): code, ("u", 3): code}


@pytest.mark.parametrize("operation", TransactionOperation)
async def test_the_leader_of_the_id_s_partition_is_asked(
    world: World,
    coordinator: Coordinator,
    operation: TransactionOperation,
    autojump_clock: MockClock,
) -> None:
    async with asking(world) as verifications:
        assert await ask(verifications, operation=operation) == both(NONE)
    assert coordinator.connected == [("host2", 9092)]
    ((one,),) = [request.transactions for request in coordinator.requests]
    assert (one.transactional_id, one.producer_id, one.producer_epoch) == ("pay", 7, 0)
    assert one.verify_only is not operation.is_add
    assert [(topic.name, topic.partitions) for topic in one.topics] == [("t", [0]), ("u", [3])]


async def test_what_comes_meanwhile_is_asked_together_and_one_at_a_time(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.delay_s = 1.0
    found: list[Outcome] = []
    async with asking(world) as verifications, trio.open_nursery() as nursery:
        nursery.start_soon(partial(ask, verifications, "first", into=found))
        await trio.sleep(0.5)
        for name in ("second", "third"):
            nursery.start_soon(partial(ask, verifications, name, into=found))
    assert found == [both(NONE)] * 3
    names = [
        sorted(each.transactional_id for each in request.transactions)
        for request in coordinator.requests
    ]
    assert names == [["first"], ["second", "third"]]
    assert len(coordinator.connected) == 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (3, 3, [NONE, NONE]),
        (3, 4, [ErrorCode.INVALID_PRODUCER_EPOCH, NONE]),
        (4, 3, [ErrorCode.INVALID_PRODUCER_EPOCH, NONE]),
    ],
)
async def test_of_one_transactional_id_the_newest_epoch_waits(
    world: World,
    coordinator: Coordinator,
    autojump_clock: MockClock,
    first: int,
    second: int,
    expected: list[ErrorCode],
) -> None:
    coordinator.delay_s = 1.0
    found: list[Outcome] = []
    async with asking(world) as verifications, trio.open_nursery() as nursery:
        nursery.start_soon(ask, verifications, "other")
        for epoch in (first, second):
            await trio.sleep(0.1)
            nursery.start_soon(partial(ask, verifications, epoch=epoch, into=found))
    assert found == [both(code) for code in expected]
    assert coordinator.requests[1].transactions[0].producer_epoch == max(first, second)


async def test_questions_of_one_epoch_are_asked_as_one(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.delay_s = 1.0
    found: list[Outcome] = []
    async with asking(world) as verifications, trio.open_nursery() as nursery:
        nursery.start_soon(ask, verifications, "other")
        await trio.sleep(0.1)
        for partitions in ([("t", 0)], [("t", 1)], [("u", 3), ("t", 0)]):
            nursery.start_soon(partial(ask, verifications, partitions=partitions, into=found))
            await trio.sleep(0.1)
    expected = [{("t", 0): NONE}, {("t", 1): NONE}, {("u", 3): NONE, ("t", 0): NONE}]
    assert sorted(found, key=list) == sorted(expected, key=list)
    ((one,),) = [request.transactions for request in coordinator.requests[1:]]
    assert [(topic.name, topic.partitions) for topic in one.topics] == [("t", [0, 1]), ("u", [3])]


async def test_an_add_and_a_verification_are_asked_one_after_the_other(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.delay_s = 1.0
    found: list[Outcome] = []
    async with asking(world) as verifications, trio.open_nursery() as nursery:
        nursery.start_soon(ask, verifications, "other")
        for operation in (TransactionOperation.ADD, TransactionOperation.VERIFY):
            await trio.sleep(0.1)
            nursery.start_soon(partial(ask, verifications, operation=operation, into=found))
    assert found == [both(NONE)] * 2
    verifying = [request.transactions[0].verify_only for request in coordinator.requests[1:]]
    assert verifying == [False, True]


async def test_a_broker_that_is_the_coordinator_adds_without_a_connection(
    world: World, autojump_clock: MockClock
) -> None:
    own = Coordinator()
    replicated = OwnCoordinator(is_alone=False)
    async with asking(world, leader=1, own=own, own_coordinator=replicated) as verifications:
        assert await ask(verifications) == both(NONE)
        own.is_gone = True
        assert await ask(verifications) == both(LOST)
    assert len(own.requests) == 2
    assert not own.connected


@pytest.mark.parametrize("operation", TransactionOperation)
async def test_a_broker_that_is_the_coordinator_answers_without_a_task(
    world: World, operation: TransactionOperation, autojump_clock: MockClock
) -> None:
    half = {("t", 0): NONE, ("u", 3): ErrorCode.TRANSACTION_ABORTABLE}
    own = OwnCoordinator(both(NONE), half, ErrorCode.PRODUCER_FENCED)
    async with asking(world, leader=1, own_coordinator=own) as verifications:
        for expected in (both(NONE), half, both(ErrorCode.PRODUCER_FENCED)):
            outcome = verifications.ask(
                "pay",
                producer_id=7,
                epoch=3,
                operation=operation,
                partitions=[("t", 0), ("u", 3)],
                timeout_ms=0,
            )
            assert outcome == expected
    assert own.asked == [("pay", 7, 3, [("t", 0), ("u", 3)])] * 3
    assert verifications.metrics() == {
        "transactions.questions": 3,
        "transactions.questions.failed": 2,
    }


async def test_an_add_of_the_coordinator_itself_waits_for_the_end_of_the_transaction_before(
    world: World, autojump_clock: MockClock
) -> None:
    own = OwnCoordinator(BUSY, BUSY, NONE)
    found: list[Outcome] = []
    async with (
        asking(world, leader=1, own_coordinator=own) as verifications,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(ask, verifications, into=found))
        for asked_count in (1, 2):
            await trio.testing.wait_all_tasks_blocked()
            assert len(own.asked) == asked_count
            assert not found
            own.proceeds.pop()()
    assert found == [both(NONE)]
    assert trio.current_time() == 0


async def test_an_add_is_asked_again_while_the_transaction_before_ends(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.code_of = lambda at: BUSY if at < 3 else NONE
    async with asking(world) as verifications:
        begun = trio.current_time()
        assert await ask(verifications) == both(NONE)
        assert trio.current_time() - begun == pytest.approx(0.04)
    assert len(coordinator.requests) == 3


async def test_an_add_is_left_to_the_client_after_a_while_and_a_verification_at_once(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.code_of = lambda at: BUSY
    async with asking(world) as verifications:
        assert await ask(verifications, operation=TransactionOperation.VERIFY) == both(BUSY)
        assert len(coordinator.requests) == 1
        begun = trio.current_time()
        assert await ask(verifications) == both(BUSY)
        assert trio.current_time() - begun == pytest.approx(0.1, abs=0.021)


async def test_a_silent_coordinator_costs_the_client_s_timeout(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.delay_s = 1_000.0
    async with asking(world) as verifications:
        begun = trio.current_time()
        assert await ask(verifications, timeout_ms=700) == both(LOST)
        assert trio.current_time() - begun == pytest.approx(0.7)
        assert verifications.failure_count == 1


async def test_a_coordinator_that_hangs_up_is_connected_to_again(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    async with asking(world) as verifications:
        assert await ask(verifications) == both(NONE)
        coordinator.is_gone = True
        assert await ask(verifications) == both(LOST)
        assert await ask(verifications) == both(LOST)
        coordinator.is_gone = False
        assert await ask(verifications) == both(NONE)
        assert len(coordinator.connected) == 2


async def test_an_idle_connection_is_closed(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    async with asking(world) as verifications:
        await ask(verifications)
        await trio.sleep(verification_requests_driver.IDLE_S + 1)
        await ask(verifications)
    assert len(coordinator.connected) == 2


async def test_a_question_that_arrives_while_an_idle_connection_closes_is_asked(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.closing_s = 0.5
    async with asking(world) as verifications:
        await ask(verifications)
        await trio.sleep(verification_requests_driver.IDLE_S + 0.1)
        for _ in range(2):
            assert await ask(verifications) == both(NONE)


async def test_a_connection_is_kept_when_all_that_came_meanwhile_is_answered(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.delay_s = 1.0
    async with asking(world) as verifications:
        async with trio.open_nursery() as nursery:
            for name in "abc":
                nursery.start_soon(ask, verifications, name)
                await trio.sleep(0.1)
        await trio.sleep(0.1)
        assert await ask(verifications) == both(NONE)
    assert len(coordinator.connected) == 1


async def test_without_a_leader_no_coordinator_is_available(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    unavailable = both(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    async with asking(world, leader=-1) as verifications:
        assert await ask(verifications) == unavailable
    async with asking(world, leader=77) as verifications:
        assert await ask(verifications) == unavailable
    assert not coordinator.connected


async def test_a_coordinator_that_cannot_verify_is_believed_and_adds_nothing(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.version = 3
    async with asking(world) as verifications:
        assert await ask(verifications, operation=TransactionOperation.VERIFY) == both(NONE)
        assert await ask(verifications, operation=TransactionOperation.ADD) == both(LOST)
    assert not coordinator.requests


async def test_an_error_of_the_whole_is_everyone_s(
    world: World, coordinator: Coordinator, autojump_clock: MockClock
) -> None:
    coordinator.whole_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    async with asking(world) as verifications:
        assert await ask(verifications) == both(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def test_the_questions_that_wait_are_bounded_by_the_room_than_there_is_room_for(
    world: World,
    coordinator: Coordinator,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verification_requests, "VERIFICATIONS_MAX", 2)
    coordinator.delay_s = 1.0
    found: list[Outcome] = []
    async with asking(world) as verifications, trio.open_nursery() as nursery:
        for name in "abcd":
            await trio.sleep(0.1)
            nursery.start_soon(partial(ask, verifications, name, into=found))
    assert found == [both(LOST), *[both(NONE)] * 3]
