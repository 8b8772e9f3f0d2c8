"""Produce: appends, refusals and their errors, and the time of the response."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.logs.produce import INSPECTION_COST, PARTITIONS_PER_STEP
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset, ProducerId
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.limits import KIB, MIB
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.network.steps import ThreadWork, is_steps
from ottla.storage.log.validate import INSPECTED_RECORDS_MAX
from ottla.wire.batch import patch_max_timestamp
from ottla.wire.batch_builder import (
    ControlType,
    RecordToBuild,
    build_batch,
    build_control_batch,
)
from ottla.wire.compression import Codec
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import PartitionProduceResponse, ProduceResponse

World = Any  # the class of the `world` fixture, in conftest.py

VERSIONS = range(3, 14)


def request(
    world: World,
    topic: str,
    records: Any,
    *,
    acks: int = -1,
    index: int = 0,
    timeout_ms: int = 1_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=world.table.image.topic_ids.get(topic, UUID(int=99)),
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
    )


def answer_of(call: Any) -> PartitionProduceResponse:
    response: ProduceResponse = call.response(ProduceResponse)
    return response.responses[0].partition_responses[0]


def code_of(call: Any) -> ErrorCode:
    return ErrorCode(answer_of(call).error_code)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_every_version_appends_and_tells_the_offset(
    world: World, version: int, acks: int
) -> None:
    await world.add("t")
    world.produce(request(world, "t", world.batch(b"a", b"b"), acks=acks), version=version)
    call = world.produce(request(world, "t", world.batch(b"c"), acks=acks), version=version)
    assert code_of(call) is ErrorCode.NONE
    assert answer_of(call).base_offset == 2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_clients_write_nothing_to_internal_topics(
    world: World, topic: str, version: int
) -> None:
    partition = await world.add(topic)
    call = world.produce(request(world, topic, world.batch(b"a")), version=version)
    assert code_of(call) is ErrorCode.INVALID_TOPIC_EXCEPTION
    if version >= 8:
        assert answer_of(call).error_message == f"Cannot append to internal topic {topic}"
    assert partition.log is not None
    assert partition.log.end_offset == 0
    end_offset = partition.append_of_coordinator(
        bytes(world.batch(b"a")), now_ms=world.clock.wall_ms(), mono_ms=0
    )
    assert end_offset == 1, "coordinators do"


async def test_a_batch_of_the_brokers_own_request_can_be_sent_again_as_it_is(world: World) -> None:
    await world.add("t")
    batch = bytearray(world.batch(b"a"))
    sent = bytes(batch)
    for base_offset in range(3):
        call = world.produce(request(world, "t", batch))
        assert answer_of(call).base_offset == base_offset
        assert batch == sent


async def test_acks_0_is_not_answered(world: World) -> None:
    partition = await world.add("t")
    call = world.produce(request(world, "t", world.batch(b"a"), acks=0))
    assert call.is_completed
    assert not call.slot.closes_connection
    assert call.slot.chunks == []
    assert partition.high_watermark == 1


async def test_an_error_under_acks_0_closes_the_connection(world: World) -> None:
    call = world.produce(request(world, "absent", world.batch(b"a"), acks=0))
    assert call.slot.closes_connection


async def test_acks_all_waits_for_the_followers(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    call = world.produce(request(world, "t", world.batch(b"a")))
    assert not call.is_completed
    partition.on_follower_fetch(
        NodeId(2),
        end_offset=Offset(1),
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )
    assert code_of(call) is ErrorCode.NONE
    assert answer_of(call).base_offset == 0


async def test_acks_all_times_out_and_says_so(world: World) -> None:
    await world.add("t", replicas=(1, 2))
    call = world.produce(request(world, "t", world.batch(b"a"), timeout_ms=500))
    world.pass_time(499)
    assert not call.is_completed
    world.pass_time(2)
    assert code_of(call) is ErrorCode.REQUEST_TIMED_OUT


async def test_a_leader_deposed_while_acks_all_waits_says_so(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    call = world.produce(request(world, "t", world.batch(b"a")))
    partition.apply(
        world.state(replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1),
        partition.config,
        world.clock.now_ms,
    )
    assert code_of(call) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_an_isr_that_shrank_after_the_append_says_so(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2), config=TopicConfig(min_insync_replicas=2))
    call = world.produce(request(world, "t", world.batch(b"a")))
    assert partition.log is not None
    partition.log.update_high_watermark(Offset(1))
    partition.apply(
        world.state(replicas=(1, 2), isr=(1,), partition_epoch=1), partition.config, 1_000
    )
    assert code_of(call) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_a_closed_connection_leaves_nothing_waiting(world: World) -> None:
    await world.add("t", replicas=(1, 2))
    call = world.produce(request(world, "t", world.batch(b"a")))
    assert world.purgatory.waiting_count == 1
    call.slot.abandon()
    assert world.purgatory.waiting_count == 0


def corrupt(world: World) -> memoryview:
    data: memoryview = world.batch(b"abcdef")
    data[-1] ^= 0xFF
    return data


def old_magic(world: World) -> memoryview:
    data: memoryview = world.batch(b"a")
    data[16] = 1
    return data


def two_batches(world: World) -> bytes:
    return bytes(world.batch(b"a")) + bytes(world.batch(b"b"))


BAD: dict[str, tuple[Callable[[World], Any], int, ErrorCode]] = {
    "no records": (lambda world: None, 9, ErrorCode.INVALID_RECORD),
    "empty records": (lambda world: b"", 9, ErrorCode.INVALID_RECORD),
    "half a header": (lambda world: world.batch(b"a")[:40], 9, ErrorCode.CORRUPT_MESSAGE),
    "a cut batch": (lambda world: world.batch(b"a")[:-1], 9, ErrorCode.CORRUPT_MESSAGE),
    "a wrong crc": (corrupt, 9, ErrorCode.CORRUPT_MESSAGE),
    "an old magic": (old_magic, 9, ErrorCode.INVALID_RECORD),
    "two batches": (two_batches, 9, ErrorCode.INVALID_RECORD),
    "zstd too early": (
        lambda world: world.batch(b"a" * 100, codec=Codec.ZSTD),
        6,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    "a control batch": (
        lambda world: build_control_batch(
            [(ControlType.COMMIT, b"\0" * 6)], timestamp_ms=world.clock.wall_ms()
        ),
        9,
        ErrorCode.INVALID_RECORD,
    ),
    "a transactional batch": (
        lambda world: world.batch(
            b"a",
            producer_id=ProducerId(1),
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
        9,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "a batch too large": (
        lambda world: world.batch(b"a" * 2_000),
        9,
        ErrorCode.MESSAGE_TOO_LARGE,
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_batches_get_kafkas_code_and_leave_the_log_alone(world: World, case: str) -> None:
    partition = await world.add("t", config=TopicConfig(max_message_bytes=1_000))
    make, version, expected = BAD[case]
    call = world.produce(request(world, "t", make(world)), version=version)
    assert code_of(call) is expected
    assert answer_of(call).base_offset == -1
    assert partition.log is not None
    assert partition.log.end_offset == 0


@pytest.mark.parametrize("acks", [-2, 2, 100])
async def test_acks_that_do_not_exist_are_refused(world: World, acks: int) -> None:
    partition = await world.add("t")
    call = world.produce(request(world, "t", world.batch(b"a"), acks=acks))
    assert code_of(call) is ErrorCode.INVALID_REQUIRED_ACKS
    assert partition.high_watermark == 0


@pytest.mark.parametrize(
    ("version", "topic", "index", "expected"),
    [
        (12, "absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, "absent", 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (12, "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (13, "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (12, "elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (13, "elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_absent_partitions_have_distinct_errors(
    world: World, version: int, topic: str, index: int, expected: ErrorCode
) -> None:
    await world.add("t")
    await world.add("elsewhere", replicas=(2,), leader=2)
    call = world.produce(request(world, topic, world.batch(b"a"), index=index), version=version)
    assert code_of(call) is expected


async def test_from_version_10_the_answer_names_the_leader_and_its_address(world: World) -> None:
    await world.add("t", replicas=(2,), leader=2)
    call = world.produce(request(world, "t", world.batch(b"a")), version=10)
    assert answer_of(call).current_leader.leader_id == 2
    assert answer_of(call).current_leader.leader_epoch == 3
    (endpoint,) = call.response(ProduceResponse).node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "host2", 9092)
    old = world.produce(request(world, "t", world.batch(b"a")), version=9)
    assert answer_of(old).current_leader.leader_id == -1


async def test_a_leader_deposed_while_acks_all_waits_names_the_next_one(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2, 3))
    call = world.produce(request(world, "t", world.batch(b"a")))
    state = world.state(replicas=(1, 2, 3), leader=3, leader_epoch=4, partition_epoch=1)
    world.know("t", state)
    partition.apply(state, partition.config, world.clock.now_ms)
    answer = answer_of(call)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (3, 4)
    (endpoint,) = call.response(ProduceResponse).node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (3, "host3", 9093)


async def test_each_leader_is_named_once_and_only_on_the_listener_of_the_client(
    world: World,
) -> None:
    for topic, leader in (("t", 2), ("u", 2), ("v", 3), ("w", 4)):
        await world.add(topic, replicas=(leader,), leader=leader)
    ours = await world.add("x")
    asked = request(world, "t", world.batch(b"a"))
    for topic in ("u", "v", "w", "x"):
        asked.topic_data += request(world, topic, world.batch(b"a")).topic_data
    response = world.produce(asked).response(ProduceResponse)
    leaders = [one.partition_responses[0].current_leader.leader_id for one in response.responses]
    assert leaders == [2, 2, 3, 4, -1]
    # Broker 4 is not known here: no address of it is made up.
    assert [one.node_id for one in response.node_endpoints] == [2, 3]
    assert ours.high_watermark == 1


async def test_a_fetch_that_waits_gets_all_partitions_of_one_produce_at_once(
    world: World,
) -> None:
    await world.add("t")
    await world.add("u")
    topics = [
        FetchTopic(
            topic_id=world.table.image.topic_ids[topic],
            partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)],
        )
        for topic in ("t", "u")
    ]
    waiting = world.fetch(
        FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
    )
    asked = request(world, "t", world.batch(b"a"))
    asked.topic_data += request(world, "u", world.batch(b"b")).topic_data
    world.produce(asked)
    response = waiting.response(FetchResponse)
    assert [bool(topic.partitions[0].records) for topic in response.responses] == [True, True]


async def test_a_partition_named_twice_in_a_request_is_waited_for_once(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    asked = request(world, "t", world.batch(b"a"))
    asked.topic_data += request(world, "t", world.batch(b"b")).topic_data
    call = world.produce(asked)
    partition.on_follower_fetch(
        NodeId(2), end_offset=Offset(2), log_start_offset=Offset(0), broker_epoch=10, now_ms=1_000
    )
    assert call.is_completed
    assert world.purgatory.waiting_count == 0


@pytest.mark.interpreted_only("counts calls of a method")
async def test_what_a_follower_acknowledges_is_looked_at_once_for_each_partition(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all that is open for each of them: a produce may wait for thousands."""
    count = 20
    partitions = [await world.add("t", index=index, replicas=(1, 2)) for index in range(count)]
    asked = request(world, "t", world.batch(b"a"))
    for index in range(1, count):
        more = request(world, "t", world.batch(b"a"), index=index).topic_data[0]
        asked.topic_data[0].partition_data += more.partition_data
    call = world.produce(asked)
    looked_at: list[int] = []
    acknowledgement = Partition.acknowledgement

    def counted(self: Partition, end_offset: Offset, acks: int) -> ErrorCode | None:
        looked_at.append(self.index)
        return acknowledgement(self, end_offset, acks)

    monkeypatch.setattr(Partition, "acknowledgement", counted)
    for partition in partitions:
        assert not call.is_completed
        partition.on_follower_fetch(
            NodeId(2),
            end_offset=Offset(1),
            log_start_offset=Offset(0),
            broker_epoch=10,
            now_ms=1_000,
        )
    assert looked_at == list(range(count))
    codes = {
        each.error_code for each in call.response(ProduceResponse).responses[0].partition_responses
    }
    assert codes == {ErrorCode.NONE}


async def test_a_repeated_batch_gets_the_offset_of_the_first_and_is_not_written_again(
    world: World,
) -> None:
    partition = await world.add("t")
    sent = {"producer_id": ProducerId(5), "producer_epoch": 0}
    for sequence in range(3):
        world.produce(request(world, "t", world.batch(b"a", base_sequence=sequence, **sent)))
    again = world.produce(request(world, "t", world.batch(b"a", base_sequence=1, **sent)))
    assert code_of(again) is ErrorCode.NONE
    assert answer_of(again).base_offset == 1
    assert partition.high_watermark == 3


async def test_a_gap_in_the_sequence_is_refused(world: World) -> None:
    await world.add("t")
    sent = {"producer_id": ProducerId(5), "producer_epoch": 0}
    world.produce(request(world, "t", world.batch(b"a", base_sequence=0, **sent)))
    call = world.produce(request(world, "t", world.batch(b"a", base_sequence=2, **sent)))
    assert code_of(call) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_one_bad_partition_does_not_harm_the_others(world: World) -> None:
    await world.add("t")
    await world.add("t", index=1)
    asked = request(world, "t", world.batch(b"a"))
    asked.topic_data[0].partition_data += [
        PartitionProduceData(index=9, records=world.batch(b"b")),
        PartitionProduceData(index=1, records=world.batch(b"c")),
    ]
    response = world.produce(asked).response(ProduceResponse)
    answers = response.responses[0].partition_responses
    assert [(answer.index, ErrorCode(answer.error_code).name) for answer in answers] == [
        (0, "NONE"),
        (9, "UNKNOWN_TOPIC_OR_PARTITION"),
        (1, "NONE"),
    ]


async def test_flush_messages_makes_the_answer_wait_for_the_flush(world: World) -> None:
    partition = await world.add("t", config=TopicConfig(flush_messages=1))
    call = world.produce(request(world, "t", world.batch(b"a"), acks=1))
    assert not call.is_completed
    assert world.flushes_due == [partition]
    assert partition.log is not None
    await partition.log.flush()
    partition.on_flushed(partition.log, world.clock.now_ms)
    assert code_of(call) is ErrorCode.NONE


# Batches whose records are looked at one by one.


COMPACTED = TopicConfig(cleanup_policy=("compact",))
KEYED = (1_700_000_000_000, b"k", b"v")
UNKEYED = (1_700_000_000_000, None, b"v")


def packed(*records: tuple[int, bytes | None, bytes], codec: Codec = Codec.ZSTD) -> memoryview:
    return memoryview(bytearray(build_batch([RecordToBuild(*one) for one in records], codec=codec)))


async def test_a_large_batch_is_looked_at_apart_from_the_loop(world: World) -> None:
    partition = await world.add("t", config=COMPACTED)
    asked = request(world, "t", packed(*[KEYED] * 1_000))
    call = world.call(0, 13)
    pending = world.produce_api.handle(call.context, asked)
    assert isinstance(pending, ThreadWork)
    assert partition.log is not None
    assert partition.log.end_offset == 0
    results = pending.work()
    assert partition.log.end_offset == 0, "the work touches no log"
    response = pending.then(results)
    assert response.responses[0].partition_responses[0].base_offset == 0
    assert partition.log.end_offset == 1_000


@pytest.mark.parametrize(
    ("count", "record_bytes", "is_at_once"),
    [(10, 1, True), (120, 1_000, True), (501, 1, False), (11, 100_000, False)],
)
async def test_an_unpacked_batch_is_looked_at_at_once_up_to_500_records_and_1_mib(
    world: World, count: int, record_bytes: int, is_at_once: bool
) -> None:
    await world.add("t", config=replace(COMPACTED, max_message_bytes=2 << 20))
    call = world.call(0, 13)
    record = (*KEYED[:2], b"v" * record_bytes)
    asked = request(world, "t", packed(*[record] * count, codec=Codec.NONE))
    expected = ProduceResponse if is_at_once else ThreadWork
    assert isinstance(world.produce_api.handle(call.context, asked), expected)


async def test_a_batch_that_needs_no_inspection_is_appended_at_once(world: World) -> None:
    await world.add("t")
    call = world.call(0, 13)
    asked = request(world, "t", packed(*[UNKEYED] * 10_000))
    assert isinstance(world.produce_api.handle(call.context, asked), ProduceResponse)


async def test_a_large_batch_that_contradicts_itself_is_looked_at_apart(world: World) -> None:
    partition = await world.add("t")
    batch = bytearray(packed(*[KEYED] * 1_000))
    patch_max_timestamp(batch, 0, max_timestamp=KEYED[0] - 5_000_000)
    pending = world.produce_api.handle(
        world.call(0, 13).context, request(world, "t", memoryview(batch))
    )
    assert isinstance(pending, ThreadWork)
    response = pending.then(pending.work())
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert partition.log is not None
    assert await partition.log.offset_for_timestamp(KEYED[0], Offset(1_000)) == (0, KEYED[0], 3)


async def test_what_is_found_apart_is_refused_as_ever(world: World) -> None:
    await world.add("t", config=COMPACTED)
    call = world.produce(request(world, "t", packed(*[KEYED] * 1_000, UNKEYED)))
    assert code_of(call) is ErrorCode.INVALID_RECORD
    assert answer_of(call).base_offset == -1


async def test_more_records_than_can_be_looked_at_are_too_large(world: World) -> None:
    await world.add("t", config=COMPACTED)
    batch = packed(*[KEYED] * (INSPECTED_RECORDS_MAX + 1))
    assert code_of(world.produce(request(world, "t", batch))) is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_batch_that_unpacks_to_too_much_is_too_large(world: World) -> None:
    await world.add("t", config=COMPACTED)
    batch = packed((1_700_000_000_000, b"k", bytes(17 * MIB)))
    assert len(batch) < 10 * KIB
    assert code_of(world.produce(request(world, "t", batch))) is ErrorCode.MESSAGE_TOO_LARGE


async def test_batches_of_one_partition_keep_their_order_behind_one_looked_at(
    world: World,
) -> None:
    partition = await world.add("t", config=COMPACTED)
    asked = request(world, "t", packed(*[KEYED] * 1_000))
    asked.topic_data[0].partition_data.append(
        PartitionProduceData(index=0, records=packed(KEYED, codec=Codec.NONE))
    )
    call = world.produce(asked)
    (topic,) = call.response(ProduceResponse).responses
    assert [one.base_offset for one in topic.partition_responses] == [0, 1_000]
    assert partition.high_watermark == 1_001


async def test_a_leader_that_resigns_meanwhile_appends_nothing(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2), config=COMPACTED)
    call = world.call(0, 13)
    pending = world.produce_api.handle(
        call.context, request(world, "t", packed(*[KEYED] * 1_000), acks=1)
    )
    results = pending.work()
    state = world.state(replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1)
    partition.apply(state, COMPACTED, 1_000)
    response = pending.then(results)
    code = response.responses[0].partition_responses[0].error_code
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_very_many_partitions_are_appended_to_in_steps(world: World) -> None:
    await world.add("t")
    count = 5 * PARTITIONS_PER_STEP + 1
    asked = request(world, "t", world.batch(b"a"))
    (topic,) = asked.topic_data
    topic.partition_data = [
        PartitionProduceData(index=index, records=bytes(world.batch(b"a")))
        for index in range(count)
    ]
    call = world.call(0, 13)
    steps = world.produce_api.handle(call.context, asked)
    assert is_steps(steps)
    assert sum(1 for _ in steps) == 4, "the first of six has been done, and the last returns"
    call = world.produce(asked)
    (answered,) = call.response(ProduceResponse).responses
    assert [one.index for one in answered.partition_responses] == list(range(count))
    codes = [one.error_code for one in answered.partition_responses]
    assert codes == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (count - 1)


async def produce_many(world: World, count: int, batch: memoryview) -> tuple[Partition, Any]:
    """Produce `count` batches in one request to a partition of a compacted topic. Returns the
    partition, and the result of the handler."""
    partition = await world.add("t", config=COMPACTED)
    asked = request(world, "t", batch)
    asked.topic_data[0].partition_data = [
        PartitionProduceData(index=0, records=bytearray(batch)) for _ in range(count)
    ]
    call = world.call(0, 13)
    return partition, world.produce_api.handle(call.context, asked)


async def test_many_batches_are_inspected_on_the_loop_in_steps(world: World) -> None:
    batch = packed(*[KEYED] * 3, codec=Codec.NONE)
    _, steps = await produce_many(world, 3 * PARTITIONS_PER_STEP // INSPECTION_COST, batch)
    assert is_steps(steps)
    assert sum(1 for _ in steps) == 2, "the first of three has been done"


async def test_batches_that_a_thread_has_inspected_are_appended_in_steps(world: World) -> None:
    batch = packed(*[KEYED] * 501, codec=Codec.NONE)
    count = 2 * PARTITIONS_PER_STEP + 1
    partition, steps = await produce_many(world, count, batch)
    assert is_steps(steps)
    with pytest.raises(StopIteration) as finished:
        while True:
            next(steps)
    work = finished.value.value
    assert isinstance(work, ThreadWork)
    steps = work.then(work.work())
    assert is_steps(steps)
    assert sum(1 for _ in steps) == 1, "the first of three has been done, and the last returns"
    assert partition.log is not None
    assert partition.log.end_offset == 501 * count


@pytest.mark.parametrize("is_large", [True, False])
async def test_only_a_large_answer_that_was_waited_for_is_encoded_apart(
    world: World, is_large: bool
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    asked = request(world, "t", world.batch(b"a"), acks=-1)
    if is_large:
        asked.topic_data += [TopicProduceData(topic_id=UUID(int=99))] * PARTITIONS_PER_STEP
    call = world.produce(asked)
    assert not call.is_completed
    partition.on_follower_fetch(
        NodeId(2),
        end_offset=Offset(1),
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )
    assert call.is_completed
    assert call.is_in_steps is is_large
