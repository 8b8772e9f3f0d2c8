"""Fetch requests for tests, and accessors of their responses."""

from typing import Any
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.wire.batch import batches
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

World = Any  # the class of the `world` fixture, in conftest.py


def ask(
    world: World,
    *asked: tuple[str, int, int],
    bytes_max: int = 1 << 20,
    partition_bytes_max: int = 1 << 20,
    bytes_min: int = 1,
    wait_ms: int = 0,
    replica: int = -1,
    session: tuple[int, int] = (0, -1),
    **changes: Any,
) -> FetchRequest:
    """Ask for (topic, index, offset)s."""
    topics = [
        FetchTopic(
            topic=topic,
            topic_id=world.table.image.topic_ids.get(topic, UUID(int=99)),
            partitions=[
                FetchPartition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=partition_bytes_max,
                    **changes,
                )
            ],
        )
        for topic, index, offset in asked
    ]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=10 if replica >= 0 else -1),
        replica_id=replica,
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
    )


def append(world: World, partition: Partition, *values: bytes) -> None:
    partition.append(world.batch(*values), acks=1, now_ms=world.clock.wall_ms(), mono_ms=1_000)


def parts(call: Any) -> list[PartitionData]:
    response: FetchResponse = call.response(FetchResponse)
    return [part for topic in response.responses for part in topic.partitions]


def offsets(part: PartitionData) -> list[int]:
    """Return the base offsets of the batches a partition was answered with."""
    assert isinstance(part.records, memoryview | bytes)
    found = batches(part.records, is_partial_end_allowed=True)
    return [header.base_offset for _, header in found]


async def session_over(world: World, *names: tuple[str, int]) -> int:
    call = world.fetch(ask(world, *((*name, 0) for name in names), session=(0, 0)))
    session_id: int = call.response(FetchResponse).session_id
    return session_id


def unknown(count: int) -> list[tuple[str, int, int]]:
    return [("absent", index, 0) for index in range(count)]
