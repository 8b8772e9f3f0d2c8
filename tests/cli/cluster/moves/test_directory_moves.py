"""`ottla topic reassign --log-dir`: replicas to move, their progress, and their final
directories."""

from argparse import Namespace

import pytest

from ottla.cli.cluster.moves.directory_moves import (
    DirectoryMove,
    _target,
    move_directories,
    part_of,
    plan,
)
from ottla.cli.confirmation import UnconfirmedError
from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_brokers import LogDirDescription, ReplicaOnDisk
from ottla.client.producer import open_producer
from ottla.insight.facts.log_dirs_driver import BrokerDirectories
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.testing.in_process import open_in_process_cluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def replica(size_bytes: int, *, is_future: bool = False) -> ReplicaOnDisk:
    return ReplicaOnDisk(size_bytes, Offset(0), is_future)


def holding(broker: int, **replicas: dict[TopicPartition, ReplicaOnDisk]) -> BrokerDirectories:
    """Return a broker whose directories are named /one, /two and so on."""
    return BrokerDirectories(
        NodeId(broker),
        directories=[
            LogDirDescription(
                path=f"/{name}",
                error=ErrorCode.NONE,
                total_bytes=None,
                usable_bytes=None,
                replicas=held,
            )
            for name, held in replicas.items()
        ],
    )


def moved(*moves: DirectoryMove) -> list[tuple[int, TopicPartition, str, str, int]]:
    return [(one.broker, one.at, one.was, one.target, one.size_bytes) for one in moves]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("/disk", (None, "/disk")),
        ("/disk/", (None, "/disk")),
        ("2:/disk", (2, "/disk")),
        ("a:/disk", (None, "a:/disk")),
    ],
)
def test_a_directory_is_named_with_or_without_its_broker(
    text: str, target: tuple[int | None, str]
) -> None:
    assert _target(text) == target


def test_what_lies_elsewhere_moves_and_what_lies_there_stays() -> None:
    found = [
        holding(1, one={A0: replica(5)}, two={A1: replica(7)}),
        holding(2, one={A0: replica(5), A1: replica(7)}, two={}),
    ]
    assert moved(*plan(found, [(None, "/two")])) == [
        (1, A0, "/one", "/two", 5),
        (2, A0, "/one", "/two", 5),
        (2, A1, "/one", "/two", 7),
    ]
    assert moved(*plan(found, [(NodeId(1), "/two")])) == [(1, A0, "/one", "/two", 5)]
    assert moved(*plan(found, [(None, "/two"), (NodeId(2), "/one")])) == [
        (1, A0, "/one", "/two", 5)
    ]


def test_a_replica_on_its_way_elsewhere_is_called_back() -> None:
    found = [holding(1, one={A0: replica(5)}, two={A0: replica(3, is_future=True)})]
    assert moved(*plan(found, [(None, "/one")])) == [(1, A0, "/one", "/one", 0)]
    assert moved(*plan(found, [(None, "/two")])) == [(1, A0, "/one", "/two", 5)]


@pytest.mark.parametrize(
    ("broker", "whose"), [(None, "no broker has"), (NodeId(1), "broker 1 does not have")]
)
def test_a_directory_that_is_not_there_is_named(broker: NodeId | None, whose: str) -> None:
    with pytest.raises(ConfigError, match=f"names /three, which {whose}"):
        plan([holding(1, one={}, two={})], [(broker, "/three")])


def test_a_broker_that_does_not_answer_is_not_blamed_for_its_directories() -> None:
    assert plan([BrokerDirectories(NodeId(1), failure="no answer")], [(NodeId(1), "/two")]) == []


@pytest.mark.parametrize(
    ("directories", "part"),
    [
        ({"one": {A0: replica(8)}, "two": {A0: replica(2, is_future=True)}}, 0.25),
        ({"one": {A0: replica(8)}, "two": {A0: replica(9, is_future=True)}}, 0.999),
        ({"one": {A0: replica(0)}, "two": {A0: replica(0, is_future=True)}}, 0.0),
        ({"one": {}, "two": {A0: replica(8)}}, 1.0),
        ({"one": {A0: replica(8)}, "two": {}}, None),
        ({"one": {}, "two": {}}, None),
    ],
)
def test_a_move_is_as_far_as_the_bytes_in_its_new_directory(
    directories: dict[str, dict[TopicPartition, ReplicaOnDisk]], part: float | None
) -> None:
    move = DirectoryMove(broker=NodeId(1), at=A0, was="/one", target="/two", size_bytes=8)
    assert part_of(move, holding(1, **directories)) == part


async def test_replicas_are_moved_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    async with (
        open_in_process_cluster(log_dir_count=2) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic("orders", partition_count=4)
        first, second = [one.path for one in await admin.describe_log_dirs(NodeId(1))]
        async with open_producer(cluster.bootstrap) as producer:
            for index in range(4):
                await (await producer.send("orders", b"v" * 1_000, partition=index))
        asked = Namespace(
            names=["orders"],
            log_dir=[second],
            log_dir_throttle=None,
            dry_run=False,
            yes=False,
            no_wait=False,
            format="table",
        )
        capsys.readouterr()
        with pytest.raises(UnconfirmedError):
            await move_directories(admin, asked)
        shown = capsys.readouterr()
        assert len(shown.out.splitlines()) == 3
        asked.yes = True
        assert await move_directories(admin, asked) == 0
        assert "2 replicas moved in" in capsys.readouterr().err
        assert await move_directories(admin, asked) == 0
        assert "nothing needs to move" in capsys.readouterr().err
        partitions = [TopicPartition("orders", index) for index in range(4)]
        found = await admin.describe_log_dirs(NodeId(1), partitions)
        assert {one.path: len(one.replicas) for one in found} == {first: 0, second: 4}
        assert cluster.brokers[NodeId(1)].logs.directories[0].is_live
