"""Followers over real sockets: a leader's server on loopback, and the follower's logs in the
test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.logs.list_offsets import ListOffsetsApi
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas import follower_duties_driver
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_fetcher_driver import ReplicaFetchers
from ottla.metadata.image import Endpoint
from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.limits import INT64_MAX
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.admin.api_versions import ApiVersionsApi
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.clock_driver import RealClock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.storage.disk.disk_seam import DiskFile
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.apis import API_VERSIONS, FETCH, LIST_OFFSETS, PRODUCE

World = Any  # the class of the `world` fixture, in conftest.py

LEADER, LOCAL = NodeId(1), NodeId(2)
LONG_POLL_MS = 300_000
"""No test waits for the end of a long poll: the world's clock does not even move."""


class Follower:
    """A broker that follows the world's broker 1; owns its logs."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.disk = RealDisk([str(directory)])
        config = BrokerConfig(
            node_id=LOCAL,
            replica_fetch_wait_ms_max=LONG_POLL_MS,
            replica_socket_timeout_ms=LONG_POLL_MS,
            replica_lag_time_ms_max=LONG_POLL_MS,
        )
        self.table = PartitionTable(world.table.image)
        self.fetchers = ReplicaFetchers(
            config,
            table=self.table,
            clock=RealClock(),
            broker_epoch=lambda: 10,
            quota=ReplicationQuota(WindowShape(), INT64_MAX, RealClock().monotonic_ms),
        )

    def learn_the_address_of(self, server: SocketServer) -> None:
        """Learn where the leader listens."""
        host, port = server.addresses["PLAINTEXT"]
        image = self.world.table.image
        known = image.brokers[LEADER]
        broker = replace(known, endpoints=(Endpoint("PLAINTEXT", host, port, 0),))
        self.table.image = replace(image, brokers=image.brokers.set(LEADER, broker))

    async def follow(
        self, topic: str, before: Callable[[Log], None] = lambda log: None
    ) -> Partition:
        """Follow partition 0 of a topic that the leader has."""
        leading = self.world.table.find(topic, 0)
        partition = Partition(
            topic,
            leading.topic_id,
            0,
            local_id=LOCAL,
            is_eligible=lambda replica, epoch: True,
            port=self.world.port,
        )
        state = self.world.table.image.partition(TopicIdPartition(leading.topic_id, 0))
        partition.apply(state, TopicConfig(), 0)
        log = await open_log(
            self.disk,
            str(self.directory / topic),
            config=LogConfig(),
            topic_id=leading.topic_id,
            is_clean=True,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=0,
        )
        before(log)
        partition.attach(log, 0)
        self.fetchers.follow(partition)
        return partition


@asynccontextmanager
async def serving(world: World, port: int = 0) -> AsyncIterator[SocketServer]:
    dispatcher = Dispatcher(
        {
            FETCH: world.fetch_api.handle,
            LIST_OFFSETS: ListOffsetsApi(table=world.table).handle,
            API_VERSIONS: ApiVersionsApi(
                metadata=MetadataCache(),
                served=lambda: (PRODUCE, FETCH, LIST_OFFSETS, API_VERSIONS),
                cluster_id="c",
                node_id=LEADER,
                offers_telemetry=lambda: False,
            ).handle,
        }
    )
    async with open_socket_server(
        [Listener(name="PLAINTEXT", host="127.0.0.1", port=port)],
        dispatcher,
        clock=RealClock(),
        disk=world.disk,
        limits=ConnectionLimits(),
    ) as server:
        yield server


@asynccontextmanager
async def following(world: World, tmp_path: Path) -> AsyncIterator[tuple[Follower, SocketServer]]:
    """Run a leader's server and a follower's tasks."""
    follower = Follower(world, tmp_path / "follower")
    with trio.fail_after(60):
        async with serving(world) as server, trio.open_nursery() as nursery:
            follower.learn_the_address_of(server)
            nursery.start_soon(follower.fetchers.run)
            yield follower, server
            nursery.cancel_scope.cancel()


def lead(world: World, topic: str, *values: bytes) -> None:
    """Append a batch on the leader, and wake who waits for it."""
    partition = world.table.find(topic, 0)
    partition.append(world.batch(*values), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)
    world.purgatory.wake(partition.end_offset_key)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something is so; the test's time limit ends it."""
    while not condition():
        await trio.sleep(0.001)


def end_of(partition: Partition) -> int:
    assert partition.log is not None
    return partition.log.end_offset


async def test_records_come_as_they_are_appended(world: World, tmp_path: Path) -> None:
    await world.add("a", replicas=(1, 2))
    async with following(world, tmp_path) as (follower, _):
        partition = await follower.follow("a")
        for number in range(1, 4):
            lead(world, "a", b"v")
            await until(lambda number=number: end_of(partition) == number)  # type: ignore[misc]


async def test_a_new_partition_does_not_wait_behind_a_long_poll(
    world: World, tmp_path: Path
) -> None:
    await world.add("idle", replicas=(1, 2))
    await world.add("busy", replicas=(1, 2))
    lead(world, "busy", b"v")
    async with following(world, tmp_path) as (follower, _):
        await follower.follow("idle")
        await until(lambda: world.purgatory.waiting_count == 1)
        busy = await follower.follow("busy")
        await until(lambda: end_of(busy) == 1)


async def test_a_leader_that_comes_back_is_followed_on(world: World, tmp_path: Path) -> None:
    await world.add("a", replicas=(1, 2))
    follower = Follower(world, tmp_path / "follower")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with serving(world) as server:
                follower.learn_the_address_of(server)
                nursery.start_soon(follower.fetchers.run)
                partition = await follower.follow("a")
                lead(world, "a", b"v")
                await until(lambda: end_of(partition) == 1)
                port = server.addresses["PLAINTEXT"][1]
            await until(lambda: any("cannot be followed" in one for one in problems(follower)))
            async with serving(world, port):
                lead(world, "a", b"v")
                await until(lambda: end_of(partition) == 2)
                assert problems(follower) == []
            nursery.cancel_scope.cancel()


def problems(follower: Follower) -> list[str]:
    return list(follower.fetchers.problems())


async def test_a_follower_behind_the_leaders_log_start_restarts_there(
    world: World, tmp_path: Path
) -> None:
    leading = await world.add("a", replicas=(1, 2))
    for _ in range(3):
        lead(world, "a", b"v")
    leading.log.update_high_watermark(Offset(3))
    await leading.log.delete_records_before(Offset(3))
    async with following(world, tmp_path) as (follower, _):
        partition = await follower.follow("a")
        await until(lambda: end_of(partition) == 3)
        assert partition.log is not None
        assert partition.log.log_start_offset == 3


async def test_a_follower_beyond_the_leaders_end_is_cut_back(world: World, tmp_path: Path) -> None:
    """After an unclean election; no epoch tells where the logs part."""
    await world.add("a", replicas=(1, 2))

    def before(log: Log) -> None:
        log.append_as_follower(world.batch(b"x", b"y", leader_epoch=3), now_ms=0)

    lead(world, "a", b"v")
    async with following(world, tmp_path) as (follower, _):
        partition = await follower.follow("a", before)
        await until(lambda: end_of(partition) == 1)


async def test_a_follower_that_begins_beyond_the_leaders_end_gets_all_the_leader_has(
    world: World, tmp_path: Path
) -> None:
    """A log start that is not the log's own: at the leader's end all before it would be lost."""
    await world.add("a", replicas=(1, 2))
    for _ in range(3):
        lead(world, "a", b"v")

    def before(log: Log) -> None:
        log.state.log_start_offset = log.state.end_offset = Offset(50)

    async with following(world, tmp_path) as (follower, _):
        partition = await follower.follow("a", before)
        await until(lambda: end_of(partition) == 3)
        assert partition.log is not None
        assert partition.log.log_start_offset == 0


async def leave(follower: Follower, key: TopicIdPartition) -> None:
    """Stop following a partition, and wait until its log is no longer changed."""
    for wait in follower.fetchers.leave([key]).values():
        await wait()


class SlowDisk(RealDisk):
    """A disk whose truncations last until the test releases them."""

    def __init__(self, roots: list[str]) -> None:
        super().__init__(roots)
        self.is_truncating = trio.Event()
        self.may_truncate = trio.Event()

    async def truncate(self, file: DiskFile, size: int) -> None:
        self.is_truncating.set()
        await self.may_truncate.wait()
        await super().truncate(file, size)


async def test_who_leaves_a_partition_waits_for_a_truncation_under_way(
    world: World, tmp_path: Path
) -> None:
    await world.add("a", replicas=(1, 2))

    def before(log: Log) -> None:
        log.assign_epoch(Epoch(1), Offset(0))
        log.append_as_follower(world.batch(b"x", b"y", leader_epoch=1), now_ms=0)

    lead(world, "a", b"v")
    async with following(world, tmp_path) as (follower, _):
        disk = follower.disk = SlowDisk([str(tmp_path)])
        partition = await follower.follow("a", before)
        await disk.is_truncating.wait()
        done: list[str] = []
        key = partition.key

        async def note(what: str, work: Callable[[], Awaitable[None]]) -> None:
            await work()
            done.append(what)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(note, "left", lambda: leave(follower, key))
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert done == []
            disk.may_truncate.set()
        assert done == ["left"]
        assert end_of(partition) == 0


async def test_a_disk_that_hangs_holds_up_no_other_partition_of_its_leader(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_duties_driver, "PATIENCE_MS", 1)
    await world.add("hangs", replicas=(1, 2))
    await world.add("t", replicas=(1, 2))

    def before(log: Log) -> None:
        log.assign_epoch(Epoch(1), Offset(0))
        log.append_as_follower(world.batch(b"x", b"y", leader_epoch=1), now_ms=0)

    lead(world, "hangs", b"v")
    lead(world, "t", b"v")
    async with following(world, tmp_path) as (follower, _):
        healthy = follower.disk
        disk = follower.disk = SlowDisk([str(tmp_path)])
        hanging = await follower.follow("hangs", before)
        await disk.is_truncating.wait()
        follower.disk = healthy
        other = await follower.follow("t")
        await until(lambda: end_of(other) == 1)
        lead(world, "t", b"v")
        await until(lambda: end_of(other) == 2)

        disk.may_truncate.set()
        await until(lambda: end_of(hanging) == 1)
        assert follower.fetchers.leave([hanging.key]) == {}


async def test_a_broker_without_our_listener_is_a_problem_with_its_cure(
    world: World, tmp_path: Path
) -> None:
    await world.add("a", replicas=(1, 2))
    async with following(world, tmp_path) as (follower, _):
        image = follower.table.image
        hidden = replace(image.brokers[LEADER], endpoints=(Endpoint("OTHER", "h", 1, 0),))
        follower.table.image = replace(image, brokers=image.brokers.set(LEADER, hidden))
        await follower.follow("a")
        await until(lambda: bool(problems(follower)))
        assert "PLAINTEXT" in problems(follower)[0]


async def test_a_leader_with_nothing_left_to_follow_is_let_go(world: World, tmp_path: Path) -> None:
    await world.add("a", replicas=(1, 2))
    async with following(world, tmp_path) as (follower, _):
        partition = await follower.follow("a")
        await until(lambda: world.purgatory.waiting_count == 1)
        assert follower.fetchers.leave([partition.key]) == {}
        await until(lambda: world.purgatory.waiting_count == 0)
        assert len(follower.fetchers) == 0


async def test_a_partition_deleted_while_its_flush_is_due_is_harmless(
    world: World, tmp_path: Path
) -> None:
    await world.add("t", replicas=(1, 2), leader=1)
    follower = Follower(world, tmp_path)
    partition = await follower.follow("t")
    fetcher = follower.fetchers._fetchers[LEADER]
    followed = fetcher.core.find(partition.key)
    assert followed is not None

    assert follower.fetchers.leave([partition.key]) == {}
    partition.remove()

    await fetcher._flush_all([followed])


async def test_what_metadata_brings_while_the_broker_ends_starts_no_task(
    world: World, tmp_path: Path
) -> None:
    await world.add("a", replicas=(1, 2))
    follower = Follower(world, tmp_path / "follower")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.fetchers.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await follower.follow("a")
    assert len(follower.fetchers) == 1
