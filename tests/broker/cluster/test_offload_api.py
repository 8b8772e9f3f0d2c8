"""OffloadLogs: local copies of segments in the object store are deleted on request."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster.cleaner_api import PARTITIONS_MAX
from ottla.broker.cluster.offload_api import OffloadLogsApi
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.node.network.dispatch import RequestContext
from ottla.storage.log.log import Log
from ottla.wire.messages.offload_logs_request import OffloadLogsRequest, TopicToOffload
from ottla.wire.messages.offload_logs_response import (
    OffloadLogsPartitionResult,
    OffloadLogsResponse,
)
from tests.broker.conftest import World
from tests.broker.tier.tiered_broker import TieredBroker, log_of, open_tiered

CONTEXT = cast("RequestContext", SimpleNamespace(api_version=0))


class Logs:
    """The logs of a broker by partition."""

    def __init__(self, *partitions: Partition) -> None:
        self._logs = {TopicPartition(one.topic, one.index): log_of(one) for one in partitions}

    def get(self, partition: TopicPartition) -> Log | None:
        if partition.topic == "offline":
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "its disk failed")
        return self._logs.get(partition)


async def copied(broker: TieredBroker) -> Partition:
    """Return a partition with some copied segments, all of which are on the disk too."""
    partition = await broker.add(local_retention_bytes=-1)
    broker.fill(partition, 11)
    async with broker.running():
        count = log_of(partition).segment_count - 1
        await broker.until(lambda: len(broker.finished(partition)) == count)
        await broker.until(lambda: log_of(partition).copied_offset >= 0)
    return partition


async def offload(
    logs: Logs, topic: str, *indexes: int, is_dry_run: bool = False
) -> list[OffloadLogsPartitionResult]:
    request = OffloadLogsRequest(
        validate_only=is_dry_run, topics=[TopicToOffload(name=topic, partitions=list(indexes))]
    )
    answer = await OffloadLogsApi(logs, lambda: 0).handle(CONTEXT, request)
    assert isinstance(answer, OffloadLogsResponse)
    assert answer.error_code == 0
    return [row for one in answer.topics for row in one.partitions]


async def test_copied_segments_are_deleted_and_counted(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await copied(broker)
        log, logs = log_of(partition), Logs(partition)
        segments = log.local_segments()
        size = sum(segment.size_bytes for segment in segments[:-1])
        end = segments[-1].base_offset
        for is_dry_run in (True, False):
            assert log.local_start_offset == 0
            (row,) = await offload(logs, "orders", 0, is_dry_run=is_dry_run)
            assert (row.error_code, row.segment_count) == (0, len(segments) - 1)
            assert (row.size_bytes, row.local_start_offset) == (size, end)
        assert (log.local_start_offset, log.log_start_offset) == (end, 0)
        (row,) = await offload(logs, "orders", 0)
        assert (row.segment_count, row.size_bytes, row.local_start_offset) == (0, 0, end)


async def test_records_that_are_not_copied_stay(world: World) -> None:
    async with open_tiered(world) as broker:
        partition = await copied(broker)
        log = log_of(partition)
        log.copied_offset = Offset(log.local_segments()[1].base_offset - 1)
        await offload(Logs(partition), "orders", 0)
        assert log.local_start_offset == log.copied_offset + 1


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("plain", ErrorCode.INVALID_REQUEST),
        ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("offline", ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_other_partitions_are_refused_one_by_one(
    world: World, topic: str, code: ErrorCode
) -> None:
    async with open_tiered(world) as broker:
        plain = await broker.add("plain", is_tiered=False)
        (row,) = await offload(Logs(plain), topic, 0, 0)
        assert row.error_code == code
        assert row.error_message


async def test_a_request_for_very_many_partitions_is_refused() -> None:
    many = [TopicToOffload(name="a", partitions=[0] * (PARTITIONS_MAX + 1))]
    answer: Any = await OffloadLogsApi(Logs(), lambda: 0).handle(
        CONTEXT, OffloadLogsRequest(topics=many)
    )
    assert answer.error_code == ErrorCode.INVALID_REQUEST
