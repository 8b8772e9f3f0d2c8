"""DescribeLogDirs and DescribeProducers: the state of this broker's replicas."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ottla.broker.logs.alter_replica_log_dirs import AlterReplicaLogDirsApi
from ottla.broker.logs.describe_log_dirs import DescribeLogDirsApi
from ottla.broker.logs.describe_producers import DescribeProducersApi
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.node.network.steps import finished
from ottla.storage.disk.disk_seam import Space
from ottla.storage.log.log import Log
from ottla.storage.producers.verification import UNGUARDED
from ottla.wire.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
)

World = Any  # the class of the `world` fixture, in conftest.py

ROOM = Space(1_000, 400)


@dataclass(eq=False)
class Directory:
    """A log directory whose free space and health are set by the test."""

    path: str
    is_live: bool = True
    is_cordoned: bool = False
    room: Space | OSError = ROOM
    logs: dict[TopicPartition, Log] = field(default_factory=dict)

    def hold(self, *partitions: Partition) -> "Directory":
        for one in partitions:
            assert one.log is not None
            self.logs[TopicPartition(one.topic, one.index)] = one.log
        return self

    async def space(self) -> Space:
        if isinstance(self.room, OSError):
            raise self.room
        return self.room


class Logs:
    """The log manager of some directories."""

    def __init__(self, *directories: Directory) -> None:
        self.directories = directories
        self.moving: dict[TopicPartition, Directory] = {}

    def moving_into(self, directory: Directory) -> Iterator[tuple[TopicPartition, int, int]]:
        for partition, target in self.moving.items():
            if target is directory:
                yield partition, 700, 3

    def start_move(self, partition: TopicPartition, directory: Directory) -> None:
        self.moving[partition] = directory

    def in_directory(self, directory: Directory) -> Iterator[tuple[TopicPartition, Log]]:
        yield from directory.logs.items()


def append(world: World, partition: Partition, **changes: Any) -> None:
    partition.append(
        world.batch(b"v", **changes),
        acks=1,
        now_ms=world.clock.wall_ms(),
        mono_ms=world.clock.monotonic_ms(),
        guard=UNGUARDED,
    )


async def log_dirs(
    world: World, *directories: Directory, topics: dict[str, list[int]] | None = None
) -> DescribeLogDirsResponse:
    request = DescribeLogDirsRequest(
        topics=None
        if topics is None
        else [DescribableLogDirTopic(topic=name, partitions=at) for name, at in topics.items()]
    )
    api = DescribeLogDirsApi(table=world.table, logs=Logs(*directories))
    answer: DescribeLogDirsResponse = await finished(api.handle(world.call(35, 4).context, request))
    return answer


async def test_each_directory_tells_its_replicas_their_sizes_and_its_room(world: World) -> None:
    b1, b0, a0 = [await world.add(name, index=at) for name, at in (("b", 1), ("b", 0), ("a", 0))]
    append(world, b0)
    answer = await log_dirs(world, Directory("/d1").hold(b1, b0), Directory("/d2").hold(a0))
    first, second = answer.results
    assert (first.log_dir, first.error_code) == ("/d1", ErrorCode.NONE)
    assert (first.total_bytes, first.usable_bytes) == (1_000, 400)
    assert [topic.name for topic in first.topics] == ["b"]
    assert [(p.partition_index, p.offset_lag) for p in first.topics[0].partitions] == [
        (0, 0),
        (1, 0),
    ]
    assert b0.log is not None
    assert b0.log.size_bytes > 0
    sizes = [p.partition_size for p in first.topics[0].partitions]
    assert sizes == [b0.log.size_bytes, 0]
    assert [topic.name for topic in second.topics] == ["a"]
    assert not first.is_cordoned


async def test_only_requested_replicas_but_all_directories_are_described(world: World) -> None:
    b0, b1 = [await world.add("b", index=at) for at in (0, 1)]
    answer = await log_dirs(
        world, Directory("/d1").hold(b0), Directory("/d2").hold(b1), topics={"b": [1], "none": [0]}
    )
    assert [
        [p.partition_index for t in r.topics for p in t.partitions] for r in answer.results
    ] == [
        [],
        [1],
    ]


async def test_an_empty_topic_list_describes_no_topics(world: World) -> None:
    b0 = await world.add("b")
    assert (await log_dirs(world, Directory("/d").hold(b0), topics={})).results[0].topics == []


async def test_an_offline_directory_is_a_storage_error(world: World) -> None:
    """Kafka: KAFKA_STORAGE_ERROR, no topics, the volume's bytes unknown (-1)."""
    b0 = await world.add("b")
    dead, failing = Directory("/dead", is_live=False).hold(b0), Directory("/bad", room=OSError(5))
    results = (await log_dirs(world, dead, failing)).results
    assert [
        (r.log_dir, r.error_code, r.topics, r.total_bytes, r.usable_bytes) for r in results
    ] == [
        ("/dead", ErrorCode.KAFKA_STORAGE_ERROR, [], -1, -1),
        ("/bad", ErrorCode.KAFKA_STORAGE_ERROR, [], -1, -1),
    ]


async def test_a_log_the_metadata_does_not_give_us_has_no_lag(world: World) -> None:
    """Kafka's INVALID_OFFSET_LAG: a replica that is being taken away."""
    b0 = await world.add("b")
    directory = Directory("/d").hold(b0)
    world.table.remove(b0)
    result = (await log_dirs(world, directory)).results[0]
    assert [p.offset_lag for p in result.topics[0].partitions] == [-1]
    world.table.add(b0)


async def describe(world: World, topic: str, *indexes: int) -> list[PartitionResponse]:
    request = DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=list(indexes))]
    )
    api = DescribeProducersApi(table=world.table)
    call = world.run(api.handle, world.call(61, 0), request)
    found: list[PartitionResponse] = call.response(DescribeProducersResponse).topics[0].partitions
    return found


async def test_producers_are_described_with_their_remembered_state(world: World) -> None:
    partition = await world.add("t")
    append(world, partition)
    append(world, partition, producer_id=9, producer_epoch=1, base_sequence=0)
    append(
        world, partition, producer_id=4, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    append(world, partition, producer_id=9, producer_epoch=1, base_sequence=1)
    (result,) = await describe(world, "t", 0)
    assert result.error_code == ErrorCode.NONE
    four, nine = result.active_producers
    assert (four.producer_id, four.producer_epoch, four.last_sequence) == (4, 0, 0)
    assert four.current_txn_start_offset == 2
    assert (nine.producer_id, nine.producer_epoch, nine.last_sequence) == (9, 1, 1)
    assert (nine.coordinator_epoch, nine.current_txn_start_offset) == (-1, -1)
    assert nine.last_timestamp > 0


async def test_a_follower_tells_its_producers_too(world: World) -> None:
    """KIP-664: `DescribeProducersOptions.brokerId` may name any replica."""
    await world.add("t", replicas=(2, 1), leader=2)
    (result,) = await describe(world, "t", 0)
    assert (result.error_code, result.active_producers) == (ErrorCode.NONE, [])


async def test_an_absent_partition_has_the_error_of_its_cause(world: World) -> None:
    await world.add("elsewhere", replicas=(2,), leader=2)
    await world.add("new", is_log_there=False)
    broken = await world.add("broken", is_log_there=False)
    broken.storage_failure = "no space left"
    codes = [
        (await describe(world, topic, 0))[0].error_code
        for topic in ("elsewhere", "new", "broken", "none", "a name", "")
    ]
    assert codes == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def move(world: World, path: str, topic: str, index: int, logs: Logs) -> ErrorCode:
    """Request the move of a replica to a directory; return the error code of the response."""
    api = AlterReplicaLogDirsApi(table=world.table, logs=logs)
    asked = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
    answer: Any = api.handle(world.call(34, 2).context, request)
    (found,) = answer.results
    (result,) = found.partitions
    assert (found.topic_name, result.partition_index) == (topic, index)
    return ErrorCode(result.error_code)


@pytest.mark.parametrize(
    ("path", "topic", "index", "code"),
    [
        ("/d1", "a", 0, ErrorCode.NONE),
        ("/d2", "a", 0, ErrorCode.NONE),
        ("/d3", "a", 0, ErrorCode.KAFKA_STORAGE_ERROR),
        ("/d1/", "a", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("d1", "none", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/d1", "a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/d1", "none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/d1", "elsewhere", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
        ("/nowhere", "x" * 214, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("/nowhere", "x" * 213, 0, ErrorCode.LOG_DIR_NOT_FOUND),
    ],
)
async def test_a_replica_is_moved_or_refused_with_kafkas_code(
    world: World, path: str, topic: str, index: int, code: ErrorCode
) -> None:
    held = await world.add("a")
    await world.add("elsewhere", leader=2, replicas=(2,))
    directories = (Directory("/d1").hold(held), Directory("/d2"), Directory("/d3", is_live=False))
    logs = Logs(*directories)
    assert move(world, path, topic, index, logs) is code
    wanted = [directory.path for directory in logs.moving.values()]
    assert wanted == ([path] if code is ErrorCode.NONE else [])


async def test_no_replica_moves_to_a_cordoned_directory_and_it_is_shown_as_one(
    world: World,
) -> None:
    held = await world.add("a")
    here, there = Directory("/d1").hold(held), Directory("/d2", is_cordoned=True)
    logs = Logs(here, there)
    assert move(world, "/d2", "a", 0, logs) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert not logs.moving
    api = DescribeLogDirsApi(table=world.table, logs=logs)
    answer = await finished(
        api.handle(world.call(35, 5).context, DescribeLogDirsRequest(topics=None))
    )
    assert [result.is_cordoned for result in answer.results] == [False, True]


async def test_a_replica_that_moves_is_shown_in_both_directories(world: World) -> None:
    held = await world.add("a")
    here, there = Directory("/d1").hold(held), Directory("/d2")
    logs = Logs(here, there)
    assert move(world, "/d2", "a", 0, logs) is ErrorCode.NONE
    api = DescribeLogDirsApi(table=world.table, logs=logs)
    request = DescribeLogDirsRequest(topics=None)
    answer = await finished(api.handle(world.call(35, 4).context, request))
    shown = [
        (result.log_dir, p.is_future_key, p.partition_size, p.offset_lag)
        for result in answer.results
        for topic in result.topics
        for p in topic.partitions
    ]
    assert shown == [("/d1", False, 0, 0), ("/d2", True, 700, 3)]


async def test_a_replica_that_is_offline_goes_nowhere(world: World) -> None:
    held = await world.add("a")
    directory = Directory("/d1").hold(held)
    held.log = None
    assert move(world, "/d1", "a", 0, Logs(directory)) is ErrorCode.KAFKA_STORAGE_ERROR
