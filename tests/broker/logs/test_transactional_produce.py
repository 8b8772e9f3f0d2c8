"""Transactional batches: the request to their coordinator, and the response to the producer."""

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.logs.verification_requests import TransactionOperation
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, ProducerId
from ottla.model.settings.storage.topic import TopicConfig
from ottla.wire.batch_builder import ControlType, build_end_transaction_marker
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

World = Any  # the class of the `world` fixture, in conftest.py

PRODUCER = 7
OLD, ABORTABLE, ADDING = 10, 11, 12


@pytest.fixture(params=[False, True], ids=["later", "at once"], autouse=True)
def is_answered_at_once(world: World, request: pytest.FixtureRequest) -> None:
    """Let the coordinator answer by a coroutine, as another broker's, or at once, as its own."""
    world.coordinators.is_at_once = request.param


def batch(
    world: World,
    *,
    sequence: int = 0,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    is_transactional: bool = True,
    size: int = 1,
) -> memoryview:
    found: memoryview = world.batch(
        b"v" * size,
        producer_id=ProducerId(producer_id),
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return found


def send(
    world: World,
    *batches: tuple[str, int, memoryview],
    version: int = ADDING,
    transactional_id: str | None = "pay",
) -> list[tuple[ErrorCode, int]]:
    topics: dict[str, list[PartitionProduceData]] = {}
    for topic, index, records in batches:
        data = PartitionProduceData(index=index, records=records)
        topics.setdefault(topic, []).append(data)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=700,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=world.table.image.topic_ids.get(name, UUID(int=99)),
                partition_data=data,
            )
            for name, data in topics.items()
        ],
    )
    response = world.produce(request, version=version).response(ProduceResponse)
    return [
        (ErrorCode(each.error_code), each.base_offset)
        for topic in response.responses
        for each in topic.partition_responses
    ]


def end(world: World, partition: Partition, *, epoch: int = 0) -> None:
    marker = build_end_transaction_marker(
        ControlType.ABORT,
        timestamp_ms=world.clock.wall_ms(),
        producer_id=ProducerId(PRODUCER),
        producer_epoch=epoch,
        coordinator_epoch=Epoch(0),
    )
    partition.append_of_coordinator(
        marker, now_ms=world.clock.wall_ms(), mono_ms=world.clock.now_ms
    )


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (3, TransactionOperation.VERIFY_FOR_OLD),
        (OLD, TransactionOperation.VERIFY_FOR_OLD),
        (ABORTABLE, TransactionOperation.VERIFY),
        (ADDING, TransactionOperation.ADD),
        (13, TransactionOperation.ADD),
    ],
)
async def test_the_first_batch_asks_and_later_ones_do_not(
    world: World, version: int, operation: TransactionOperation
) -> None:
    await world.add("t")
    assert send(world, ("t", 0, batch(world)), version=version) == [(ErrorCode.NONE, 0)]
    assert world.coordinators.asked == [("pay", PRODUCER, 0, operation, [("t", 0)], 700)]
    later = batch(world, sequence=1)
    assert send(world, ("t", 0, later), version=version) == [(ErrorCode.NONE, 1)]
    assert len(world.coordinators.asked) == 1


async def test_one_question_has_all_partitions_that_are_new_to_the_transaction(
    world: World,
) -> None:
    for index in range(3):
        await world.add("t", index=index)
    send(world, ("t", 1, batch(world)))
    answers = send(
        world,
        ("t", 0, batch(world)),
        ("t", 1, batch(world, sequence=1)),
        ("t", 2, batch(world)),
    )
    assert answers == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1), (ErrorCode.NONE, 0)]
    assert world.coordinators.asked[-1][4] == [("t", 0), ("t", 2)]


TOLD = [
    (ErrorCode.PRODUCER_FENCED, ADDING, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ADDING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ErrorCode.NETWORK_EXCEPTION, ADDING, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ADDING, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ErrorCode.NOT_COORDINATOR, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ErrorCode.CONCURRENT_TRANSACTIONS, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
    (ErrorCode.CONCURRENT_TRANSACTIONS, ADDING, ErrorCode.CONCURRENT_TRANSACTIONS),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ADDING, ErrorCode.INVALID_TXN_STATE),
    (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
    (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
]


@pytest.mark.parametrize(("said", "version", "expected"), TOLD)
async def test_a_coordinator_error_is_translated_for_the_request_version(
    world: World, said: ErrorCode, version: int, expected: ErrorCode
) -> None:
    partition = await world.add("t")
    await world.add("t", index=1)
    world.coordinators.codes["t", 0] = said
    answers = send(world, ("t", 0, batch(world)), ("t", 1, batch(world)), version=version)
    assert answers == [(expected, -1), (ErrorCode.NONE, 0)]
    assert partition.log.end_offset == 0


async def test_a_marker_that_overtakes_the_answer_keeps_the_batch_out(world: World) -> None:
    partition = await world.add("t")
    world.coordinators.on_asked = lambda: end(world, partition)
    assert send(world, ("t", 0, batch(world)), version=OLD) == [(ErrorCode.INVALID_TXN_STATE, -1)]
    assert partition.log.end_offset == 1


async def test_a_partition_that_is_lost_meanwhile_is_not_written(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    state = world.state(leader=2, replicas=(1, 2), leader_epoch=4, partition_epoch=1)
    world.coordinators.on_asked = lambda: partition.apply(state, TopicConfig(), 1_000)
    (answer,) = send(world, ("t", 0, batch(world)))
    assert answer == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert partition.log.end_offset == 0


async def test_an_old_epoch_is_fenced_without_a_question(world: World) -> None:
    partition = await world.add("t")
    end(world, partition, epoch=3)
    answers = send(world, ("t", 0, batch(world, epoch=2)))
    assert answers == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
    assert not world.coordinators.asked


@pytest.mark.parametrize("other", [(8, 0), (PRODUCER, 1)])
async def test_batches_of_two_producers_are_refused_as_a_whole(
    world: World, other: tuple[int, int]
) -> None:
    for index in (0, 1):
        await world.add("t", index=index)
    answers = send(
        world, ("t", 0, batch(world)), ("t", 1, batch(world, producer_id=other[0], epoch=other[1]))
    )
    assert answers == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
    assert not world.coordinators.asked


async def test_a_transactional_batch_needs_a_transactional_id(world: World) -> None:
    await world.add("t")
    answers = send(world, ("t", 0, batch(world)), transactional_id=None)
    assert answers == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]


async def test_other_batches_under_a_transactional_id_ask_nothing(world: World) -> None:
    await world.add("t")
    plain = batch(world, is_transactional=False)
    assert send(world, ("t", 0, plain)) == [(ErrorCode.NONE, 0)]
    assert send(world, ("nowhere", 0, batch(world))) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert send(world, ("t", 0, memoryview(b"short"))) == [(ErrorCode.CORRUPT_MESSAGE, -1)]
    assert not world.coordinators.asked


async def test_verification_may_be_switched_off_and_adding_may_not(world: World) -> None:
    await world.add("t")
    await world.add("t", index=1)
    world.coordinators.is_verifying = False
    assert send(world, ("t", 0, batch(world)), version=ABORTABLE) == [(ErrorCode.NONE, 0)]
    assert not world.coordinators.asked
    assert send(world, ("t", 1, batch(world)), version=ADDING) == [(ErrorCode.NONE, 0)]
    assert len(world.coordinators.asked) == 1


async def test_a_batch_that_is_looked_at_apart_shows_its_guard(world: World) -> None:
    partition = await world.add("t", config=TopicConfig(record_validation="full"))
    large = batch(world, size=200_000)
    assert send(world, ("t", 0, large)) == [(ErrorCode.NONE, 0)]
    assert partition.log.last_stable_offset == 0
