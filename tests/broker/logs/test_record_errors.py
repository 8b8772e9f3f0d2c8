"""A batch that is refused for some of its records names them (KIP-467)."""

from typing import Any

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.settings.topic import TopicConfig
from ottla.storage.validate import NEEDS_KEY
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

World = Any  # the class of the `world` fixture, in conftest.py


@pytest.mark.parametrize(("version", "is_named"), [(7, False), (8, True), (12, True)])
async def test_a_compacted_topic_names_the_records_without_key(
    world: World, version: int, is_named: bool
) -> None:
    partition = await world.add("t", config=TopicConfig(cleanup_policy=("compact",)))
    now_ms = world.clock.wall_ms()
    batch = build_batch([(now_ms, b"k", b"v"), (now_ms, None, b"v")])
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
                ],
            )
        ],
    )
    response: ProduceResponse = world.produce(request, version=version).response(ProduceResponse)
    answer = response.responses[0].partition_responses[0]
    named = [(one.batch_index, one.batch_index_error_message) for one in answer.record_errors]
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert named == [(1, NEEDS_KEY)] * is_named
    if is_named:
        assert answer.error_message == f"{NEEDS_KEY}; 1 of the batch's 2 records have none"
    assert partition.log.end_offset == 0
