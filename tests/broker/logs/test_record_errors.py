"""A batch that is refused for some of its records names them (KIP-467)."""

from typing import Any

import pytest
import trio.testing

from ottla.model.errors import ErrorCode
from ottla.model.settings.storage.topic import TopicConfig
from ottla.storage.log.validate import NEEDS_KEY, RECORDS_INLINE
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

World = Any  # the class of the `world` fixture, in conftest.py


HOUR_MS = 3_600_000


def produce_one(world: World, batch: bytes, version: int = 12) -> Any:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name="t",
                topic_id=world.table.find("t", 0).topic_id,
                partition_data=[
                    PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
                ],
            )
        ],
    )
    return world.produce(request, version=version)


def partition_answer(call: Any) -> Any:
    response: ProduceResponse = call.response(ProduceResponse)
    return response.responses[0].partition_responses[0]


def named_of(answer: Any) -> list[tuple[int, str | None]]:
    return [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors]


@pytest.mark.parametrize(("version", "is_named"), [(7, False), (8, True), (13, True)])
async def test_a_compacted_topic_names_the_records_without_key(
    world: World, version: int, is_named: bool
) -> None:
    partition = await world.add("t", config=TopicConfig(cleanup_policy=("compact",)))
    now_ms = world.clock.wall_ms()
    batch = build_batch([(now_ms, b"k", b"v"), (now_ms, None, b"v")])
    answer = partition_answer(produce_one(world, batch, version))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    keyless = f"{NEEDS_KEY} in topic partition t-0"
    assert named_of(answer) == [(1, keyless)] * is_named
    if is_named:
        assert answer.error_message == (
            "One or more records have been rejected due to 1 record errors in total, and only "
            "showing the first three errors at most: "
            f"[RecordError(batchIndex=1, message='{keyless}')]"
        )
    assert partition.log.end_offset == 0


async def test_a_batch_looked_at_apart_from_the_loop_names_its_records_too(world: World) -> None:
    await world.add("t", config=TopicConfig(cleanup_policy=("compact",)))
    now_ms = world.clock.wall_ms()
    count = RECORDS_INLINE + 300
    batch = build_batch([(now_ms, b"k" if at != 700 else None, b"v") for at in range(count)])
    call = produce_one(world, batch)
    await trio.testing.wait_all_tasks_blocked(0.01)
    answer = partition_answer(call)
    assert named_of(answer) == [(700, f"{NEEDS_KEY} in topic partition t-0")]


async def test_timestamps_out_of_range_are_named(world: World) -> None:
    config = TopicConfig(message_timestamp_before_max_ms=HOUR_MS)
    await world.add("t", config=config)
    now_ms = world.clock.wall_ms()
    late_ms = now_ms + 2 * HOUR_MS
    batch = build_batch([(now_ms, None, b"v"), (late_ms, None, b"v"), (now_ms, None, b"v")])
    answer = partition_answer(produce_one(world, batch))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    ((index, text),) = named_of(answer)
    assert index == 1
    assert text == (
        f"Timestamp {late_ms} of message with offset 1 is out of range. The timestamp should be "
        f"within [{now_ms - HOUR_MS}, {now_ms + config.message_timestamp_after_max_ms}]"
    )


async def test_what_is_wrong_with_a_whole_batch_names_no_record(world: World) -> None:
    await world.add("t", config=TopicConfig(cleanup_policy=("compact",)))
    answer = partition_answer(produce_one(world, b""))
    assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_RECORD, [])
