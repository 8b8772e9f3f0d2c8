"""The broker holds and leads what the metadata says, and lets go of what it no longer says."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
import trio

from ottla.broker.network.purgatory import Purgatory, WaitingEntry
from ottla.broker.replicas.log_work_driver import LogWork
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_port import PartitionPort
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_manager import OPEN_RETRY_MS, ReplicaManager
from ottla.broker.replicas.replica_seams import Left
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import EMPTY, MetadataImage, Provenance, Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, Epoch, NodeId, Offset, TopicIdPartition, TopicPartition
from ottla.model.log_events import event_of
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk import RealDisk
from ottla.storage.log import Log, open_log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_losses import LogLoss, LossKind
from ottla.storage.log_manager_driver import LogManager, open_log_manager

World = Any  # the class of the `world` fixture, in conftest.py

FIRST = UUID(int=901)
SECOND = UUID(int=902)


class HandFetchers:
    """Notes who is followed, and what was true of a partition when it was left."""

    def __init__(self) -> None:
        self.followed: dict[TopicIdPartition, tuple[NodeId, Epoch]] = {}
        self.left: list[TopicIdPartition] = []
        self.busy: dict[TopicIdPartition, trio.Event] = {}
        """Partitions whose logs a duty changes, until the event."""

    def follow(self, partition: Partition) -> None:
        assert partition.log is not None
        assert not partition.is_leader
        key = partition.key
        self.followed[key] = (partition.leader_id, partition.leader_epoch)

    def leave(self, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, Left]:
        busy: dict[TopicIdPartition, Left] = {}
        for key in partitions:
            self.left.append(key)
            self.followed.pop(key, None)
            if key in self.busy:
                busy[key] = self.busy.pop(key).wait
        return busy


class Managed(NamedTuple):
    manager: ReplicaManager
    table: PartitionTable
    logs: LogManager
    purgatory: Purgatory
    placed: dict[TopicIdPartition, UUID]
    fetchers: HandFetchers
    flush_due: list[Partition]
    work: LogWork
    led: list[Partition]


@pytest.fixture
async def managed(tmp_path: Path, world: World) -> AsyncIterator[Managed]:
    config = BrokerConfig(
        node_id=NodeId(1),
        log_dirs=(str(tmp_path / "logs"),),
        controller_quorum_voters=(ConfiguredVoter(NodeId(101), "localhost", 9),),
    )
    disk = RealDisk(config.log_dirs)
    rng = world.sessions.rng
    async with open_log_manager(disk, config, world.clock, rng, cluster_id="c" * 22) as logs:
        await logs.recover(lambda partition: LogConfig())
        table = PartitionTable(EMPTY)
        purgatory = Purgatory()
        placed: dict[TopicIdPartition, UUID] = {}
        fetchers = HandFetchers()
        flush_due: list[Partition] = []
        errors = UnexpectedErrors()
        work = LogWork(errors)
        led: list[Partition] = []
        manager = ReplicaManager(
            config,
            table=table,
            logs=logs,
            purgatory=purgatory,
            clock=world.clock,
            fetchers=fetchers,
            work=work,
            on_led=led.append,
            port=PartitionPort(purgatory.wake, flush_due.append, lambda partition: None),
            on_placed=lambda partition, directory_id: placed.update({partition: directory_id}),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.run)
            yield Managed(manager, table, logs, purgatory, placed, fetchers, flush_due, work, led)
            nursery.cancel_scope.cancel()
        assert not errors.counts


def image_with(world: World, *topics: tuple[str, UUID], **changes: Any) -> MetadataImage:
    state = world.state(**changes)
    return MetadataImage(
        provenance=Provenance(Offset(1), Epoch(1), 0),
        topics=PersistentMap(
            {id_: Topic(name, id_, PersistentMap({0: state})) for name, id_ in topics}
        ),
        topic_ids=PersistentMap(dict(topics)),
    )


def with_setting(image: MetadataImage, key: str, value: str) -> MetadataImage:
    """Return an image in which topic t has a setting of its own."""
    configs = image.configs.set((TOPIC_RESOURCE, "t"), PersistentMap({key: value}))
    return replace(image, configs=configs)


async def publish(managed: Managed, image: MetadataImage) -> None:
    """Publish an image, and let the disk do what comes of it."""
    await begin_publish(managed, image)
    await managed.work.wait_done()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what a worker thread of the disk brings about."""
    with trio.fail_after(60):
        while not is_so():
            await trio.sleep(0.001)


async def begin_publish(managed: Managed, image: MetadataImage) -> None:
    await managed.manager.publish(MetadataDelta.between(managed.table.image, image), image)


async def test_a_new_topic_gets_its_log_and_is_led(world: World, managed: Managed) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    partition = managed.table.find("t", 0)
    assert partition.is_leader
    assert partition is managed.table.find_by_id(FIRST, 0)
    assert managed.logs.get(TopicPartition("t", 0)) is partition.log


async def test_the_chosen_directory_is_reported(world: World, managed: Managed) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    (directory,) = managed.logs.directories
    assert managed.placed == {TopicIdPartition(FIRST, 0): directory.directory_id}


async def test_a_log_that_could_not_be_made_is_tried_again(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_full(*arguments: Any, **named: Any) -> Log:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    image = image_with(world, ("t", FIRST))
    with monkeypatch.context() as patch:
        patch.setattr(managed.logs, "create", is_full)
        await publish(managed, image)
        partition = managed.table.find("t", 0)
        with pytest.raises(RefusedError) as refused:
            partition.leader_log()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.now_ms += OPEN_RETRY_MS
    await publish(managed, image)
    assert partition.leader_log() is managed.logs.get(TopicPartition("t", 0))


@pytest.mark.parametrize("leader", [1, 2])
async def test_what_counts_only_when_flushed_is_flushed_though_nobody_appends(
    world: World, managed: Managed, leader: int
) -> None:
    """A new leader may have been a follower whose flush was not done yet."""
    before = image_with(world, ("t", FIRST), replicas=(1, 2))
    image = image_with(world, ("t", FIRST), replicas=(1, 2), leader=leader, leader_epoch=9)
    flushed = PersistentMap({"flush.messages": "1"})
    configs: PersistentMap[tuple[int, str], PersistentMap[str, str]] = PersistentMap(
        {(TOPIC_RESOURCE, "t"): flushed}
    )
    await publish(managed, replace(before, configs=configs))
    partition = managed.table.find("t", 0)
    partition.append(world.batch(b"v"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)
    managed.flush_due.clear()

    await publish(managed, replace(image, configs=configs))

    assert managed.flush_due == [partition]


async def test_a_tail_is_flushed_once_a_topic_demands_it(world: World, managed: Managed) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    partition = managed.table.find("t", 0)
    partition.append(world.batch(b"v"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)

    flushed = PersistentMap({"flush.messages": "1"})
    await publish(managed, replace(image, configs=PersistentMap({(TOPIC_RESOURCE, "t"): flushed})))

    assert managed.flush_due == [partition]


GONE = UUID(int=5_000)


@pytest.mark.parametrize("holding", ["isr", "elr", "last_known_elr", "leader", "none of them"])
async def test_a_replica_that_lies_in_a_missing_directory_stays_offline(
    world: World, managed: Managed, holding: str
) -> None:
    """An empty log in another directory could be elected for what it held in its own."""
    state = replace(
        world.state(replicas=(1, 2), isr=(2,), leader=2, partition_epoch=7),
        directories=(GONE, UUID(int=6_000)),
    )
    if holding != "none of them":  # which an unclean election takes as well
        held = NodeId(1) if holding == "leader" else (NodeId(1),)
        state = replace(state, **{holding: held})
    image = image_with(world, ("t", FIRST))
    topic = Topic("t", FIRST, PersistentMap({0: state}))
    await publish(managed, replace(image, topics=PersistentMap({FIRST: topic})))
    partition = managed.table.by_id[FIRST][0]
    assert partition.log is None
    assert partition.storage_failure == f"its log directory {GONE} is not here"
    assert managed.placed == {}


@pytest.mark.parametrize("change", ["new", "unassigned"])
async def test_a_new_replica_is_made_in_another_directory(
    world: World, managed: Managed, change: str
) -> None:
    state = replace(
        world.state(replicas=(1, 2), isr=(2,), leader=2, partition_epoch=7),
        directories=(GONE, UUID(int=6_000)),
    )
    if change == "new":
        state = replace(state, isr=state.replicas, leader_epoch=Epoch(0), partition_epoch=0)
    else:
        state = replace(state, isr=state.replicas, directories=(UNASSIGNED, UNASSIGNED))
    image = image_with(world, ("t", FIRST))
    topic = Topic("t", FIRST, PersistentMap({0: state}))
    await publish(managed, replace(image, topics=PersistentMap({FIRST: topic})))
    assert managed.table.by_id[FIRST][0].log is not None
    (directory,) = managed.logs.directories
    assert managed.placed == {TopicIdPartition(FIRST, 0): directory.directory_id}


async def test_partitions_of_others_are_not_made(world: World, managed: Managed) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(2,), leader=2))
    assert list(managed.table) == []
    assert len(managed.logs) == 0


class Waiter(WaitingEntry):
    """Completes when its partition no longer leads."""

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition

    def try_complete(self) -> bool:
        return not self.partition.is_leader

    def on_expire(self) -> None:
        raise AssertionError("nobody should wait that long")

    def on_fault(self, fault: Exception) -> None:
        raise fault


async def test_a_deleted_topic_is_unknown_and_who_waited_is_told(
    world: World, managed: Managed
) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    partition = managed.table.find("t", 0)
    managed.purgatory.watch([partition.high_watermark_key], Waiter(partition), 10_000)
    await publish(managed, image_with(world))
    assert managed.purgatory.waiting_count == 0
    assert not managed.purgatory.errors.counts
    with pytest.raises(RefusedError) as refused:
        managed.table.find("t", 0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(managed.logs) == 0


async def test_a_topic_deleted_and_made_anew_at_once_begins_empty(
    world: World, managed: Managed
) -> None:
    await publish(managed, image_with(world, ("t", FIRST)))
    old = managed.table.find("t", 0)
    old.append(world.batch(b"a"), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)
    await publish(managed, image_with(world, ("t", SECOND)))
    new = managed.table.find("t", 0)
    assert new.topic_id == SECOND
    assert new.log is not None
    assert (new.is_leader, new.log.end_offset, old.is_removed) == (True, 0, True)


async def test_losing_leadership_keeps_the_log(world: World, managed: Managed) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2)))
    await publish(
        managed,
        image_with(
            world, ("t", FIRST), replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1
        ),
    )
    partition = managed.table.find("t", 0)
    assert not partition.is_leader
    assert partition.log is not None


async def test_a_leader_that_is_deposed_commits_nothing_by_settings_that_came_after(
    world: World, managed: Managed
) -> None:
    """Metadata that brings both at once is one step: no leader has the new settings alone."""
    led = image_with(world, ("t", FIRST), replicas=(1, 2), isr=(1,))
    await publish(managed, with_setting(led, "min.insync.replicas", "2"))
    partition = managed.table.find("t", 0)
    clock = world.clock
    partition.append(
        world.batch(b"v"), acks=1, now_ms=clock.wall_ms(), mono_ms=clock.monotonic_ms()
    )
    assert partition.high_watermark == 0

    elected = image_with(
        world, ("t", FIRST), replicas=(1, 2), isr=(2,), leader=2, leader_epoch=4, partition_epoch=1
    )
    await publish(managed, with_setting(elected, "min.insync.replicas", "1"))

    assert not partition.is_leader
    assert partition.min_isr_count == 1
    assert partition.high_watermark == 0


async def test_topic_settings_reach_the_log_at_once(world: World, managed: Managed) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    partition = managed.table.find("t", 0)
    assert partition.log is not None
    for resource, key, value in (
        ((BROKER_RESOURCE, ""), "message.max.bytes", 7_777),
        ((BROKER_RESOURCE, "1"), "message.max.bytes", 8_888),
        ((TOPIC_RESOURCE, "t"), "max.message.bytes", 9_999),
    ):
        changed = MetadataImage(
            provenance=image.provenance,
            topics=image.topics,
            topic_ids=image.topic_ids,
            configs=managed.table.image.configs.set(resource, PersistentMap({key: str(value)})),
        )
        await publish(managed, changed)
        assert partition.config.max_message_bytes == value
        assert partition.log.config.max_message_bytes == value


async def test_a_brokers_own_settings_reach_the_logs_at_once_too(
    world: World, managed: Managed
) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    log = managed.table.find("t", 0).log
    assert log is not None
    settings = PersistentMap(
        {"producer.id.expiration.ms": "5000", "log.segment.delete.delay.ms": "7"}
    )
    changed = replace(image, configs=PersistentMap({(BROKER_RESOURCE, ""): settings}))
    await publish(managed, changed)
    assert (log.config.producer_id_expiration_ms, log.config.file_delete_delay_ms) == (5_000, 7)
    await publish(managed, image)
    assert log.config.producer_id_expiration_ms == 86_400_000


async def test_how_long_records_are_kept_is_looked_at_when_it_changes(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[None] = []
    monkeypatch.setattr(managed.logs, "apply_retention_soon", lambda: looks.append(None))
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    seen = []
    for texts in (
        {"retention.ms": "5"},
        {"retention.ms": "5", "segment.ms": "7"},
        {"segment.ms": "7"},
        {"retention.bytes": "9"},
    ):
        configs = {(TOPIC_RESOURCE, "t"): PersistentMap(texts)}
        await publish(managed, replace(image, configs=PersistentMap(configs)))
        seen.append(len(looks))
    assert seen == [1, 1, 2, 3]


async def test_a_log_that_the_metadata_does_not_place_here_is_stray(
    world: World, managed: Managed
) -> None:
    image = image_with(world, ("t", FIRST))
    found = TopicPartition("t", 0)
    assert not managed.manager.is_stray(image, found, FIRST)
    assert managed.manager.is_stray(image, found, SECOND)
    assert managed.manager.is_stray(image, TopicPartition("t", 1), FIRST)
    assert managed.manager.is_stray(image_with(world), found, FIRST)


async def test_a_partition_led_elsewhere_is_followed(world: World, managed: Managed) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    assert managed.fetchers.followed == {TopicIdPartition(FIRST, 0): (2, 3)}


async def test_a_partition_is_left_before_it_leads_and_before_it_follows_somebody_else(
    world: World, managed: Managed
) -> None:
    key = TopicIdPartition(FIRST, 0)
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    await publish(
        managed,
        image_with(
            world, ("t", FIRST), replicas=replicas, leader=3, leader_epoch=6, partition_epoch=3
        ),
    )
    assert (managed.fetchers.left, managed.fetchers.followed) == ([key], {key: (3, 6)})
    await publish(
        managed,
        image_with(
            world, ("t", FIRST), replicas=replicas, leader=1, leader_epoch=7, partition_epoch=4
        ),
    )
    assert (managed.fetchers.left, managed.fetchers.followed) == ([key, key], {})
    assert managed.table.find("t", 0).is_leader


async def test_a_change_of_the_in_sync_set_alone_disturbs_no_follower(
    world: World, managed: Managed
) -> None:
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    await publish(
        managed,
        image_with(world, ("t", FIRST), replicas=replicas, leader=2, isr=(2, 3), partition_epoch=3),
    )
    assert managed.fetchers.left == []


async def test_a_deleted_topic_is_left_before_its_log_goes(world: World, managed: Managed) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    await publish(managed, image_with(world))
    assert managed.fetchers.left == [TopicIdPartition(FIRST, 0)]
    assert len(managed.logs) == 0


async def test_a_follower_whose_log_is_still_cut_back_leads_when_that_is_done(
    world: World, managed: Managed
) -> None:
    """Nobody appends to a log that a duty still changes; and no metadata waits for the disk."""
    key = TopicIdPartition(FIRST, 0)
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    partition = managed.table.find("t", 0)
    log = partition.log
    is_cut = managed.fetchers.busy[key] = trio.Event()

    leading = image_with(
        world, ("t", FIRST), replicas=replicas, leader=1, leader_epoch=7, partition_epoch=4
    )
    await begin_publish(managed, leading)
    await begin_publish(managed, replace(leading, provenance=Provenance(Offset(2), Epoch(1), 0)))
    assert (partition.leader_id, partition.is_leader, partition.log) == (1, False, None)
    with pytest.raises(RefusedError) as refused:
        partition.leader_log()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    is_cut.set()
    await managed.work.wait_done()
    assert partition.leader_log() is log
    assert managed.led == [partition]


async def test_a_deleted_topics_log_goes_when_its_follower_is_done_with_it(
    world: World, managed: Managed
) -> None:
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    is_cut = managed.fetchers.busy[TopicIdPartition(FIRST, 0)] = trio.Event()
    await begin_publish(managed, image_with(world, ("t", SECOND)))
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(managed.logs) == 1
    assert managed.table.find("t", 0).log is None

    is_cut.set()
    await managed.work.wait_done()
    log = managed.table.find("t", 0).log
    assert log is not None
    assert log.topic_id == SECOND


class HangingLogs:
    """Creations of topic "hangs" wait for an event; the number of all of them."""

    def __init__(self, logs: LogManager, patch: pytest.MonkeyPatch) -> None:
        self.go_on = trio.Event()
        self.creations: list[str] = []
        create = logs.create

        async def create_or_hang(at: TopicPartition, *arguments: Any, **named: Any) -> Log:
            self.creations.append(at.topic)
            if at.topic == "hangs":
                await self.go_on.wait()
            return await create(at, *arguments, **named)

        patch.setattr(logs, "create", create_or_hang)


async def test_a_disk_that_hangs_holds_up_no_metadata_and_no_other_log(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = HangingLogs(managed.logs, monkeypatch)
    hanging = image_with(world, ("hangs", FIRST))
    await begin_publish(managed, hanging)
    await begin_publish(managed, image_with(world, ("hangs", FIRST), ("t", SECOND)))

    await until(lambda: managed.table.find("t", 0).is_leader)
    with pytest.raises(RefusedError) as refused:
        managed.table.find("hangs", 0).leader_log()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (managed.manager.is_opening("hangs"), managed.manager.is_opening("t")) == (True, False)

    logs.go_on.set()
    await managed.work.wait_done()
    assert managed.table.find("hangs", 0).is_leader
    assert not managed.manager.is_opening("hangs")
    assert sorted(logs.creations) == ["hangs", "t"]


async def test_settings_that_change_while_a_log_is_made_are_in_force(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = HangingLogs(managed.logs, monkeypatch)
    image = image_with(world, ("hangs", FIRST))
    await begin_publish(managed, image)
    await trio.testing.wait_all_tasks_blocked(0.01)
    configs = image.configs.set((TOPIC_RESOURCE, "hangs"), PersistentMap({"retention.ms": "-1"}))
    await begin_publish(managed, replace(image, configs=configs))
    logs.go_on.set()
    await managed.work.wait_done()
    assert managed.table.find("hangs", 0).leader_log().config.retention_ms == -1


async def test_a_topic_that_goes_while_its_log_is_made_leaves_none(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = HangingLogs(managed.logs, monkeypatch)
    await begin_publish(managed, image_with(world, ("hangs", FIRST)))
    await trio.testing.wait_all_tasks_blocked(0.01)
    await begin_publish(managed, image_with(world))
    logs.go_on.set()
    await managed.work.wait_done()
    assert len(managed.logs) == 0
    assert list(managed.table) == []


async def test_a_replica_that_goes_and_comes_back_does_not_keep_the_log_that_is_deleted(
    world: World, managed: Managed
) -> None:
    image = image_with(world, ("t", FIRST))
    await publish(managed, image)
    old = managed.table.find("t", 0).log
    is_cut = managed.fetchers.busy[TopicIdPartition(FIRST, 0)] = trio.Event()
    await begin_publish(managed, image_with(world))
    await begin_publish(managed, image)
    assert managed.table.find("t", 0).log is None
    is_cut.set()
    await managed.work.wait_done()
    new = managed.table.find("t", 0).leader_log()
    assert (new is not old, new.failure) == (True, None)


async def test_a_log_that_cannot_be_made_is_tried_once_a_round_whatever_the_metadata_does(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    creations: list[TopicPartition] = []

    async def is_full(at: TopicPartition, *arguments: Any, **named: Any) -> Log:
        creations.append(at)
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    monkeypatch.setattr(managed.logs, "create", is_full)
    for epoch in range(10):
        await publish(managed, image_with(world, ("t", FIRST), partition_epoch=epoch))
    assert len(creations) == 1
    for _ in range(2):
        world.clock.now_ms += OPEN_RETRY_MS
        managed.manager.retry()
        await managed.work.wait_done()
    assert len(creations) == 3


# ---- what changed between the image of the recovery and the first one that is published


async def recovered_by(managed: Managed, image: MetadataImage, *names: str) -> None:
    """Have logs as a recovery by that image leaves them."""
    for name in names:
        topic = image.topic(name)
        assert topic is not None
        at = TopicPartition(name, 0)
        config = managed.manager.log_config_of(image, at)
        await managed.logs.create(at, topic.id, config)


async def test_a_topic_that_goes_while_the_broker_starts_is_deleted(
    world: World, managed: Managed
) -> None:
    await recovered_by(managed, image_with(world, ("t", FIRST)), "t")
    await publish(managed, image_with(world))
    assert len(managed.logs) == 0


async def test_a_topic_that_is_made_again_while_the_broker_starts_serves(
    world: World, managed: Managed
) -> None:
    await recovered_by(managed, image_with(world, ("t", FIRST)), "t")
    await publish(managed, image_with(world, ("t", SECOND)))
    assert managed.table.find("t", 0).leader_log().topic_id == SECOND


@pytest.mark.parametrize("is_set_before", [False, True])
async def test_settings_that_change_while_the_broker_starts_are_in_force(
    world: World, managed: Managed, is_set_before: bool
) -> None:
    plain = image_with(world, ("t", FIRST))
    kept = with_setting(plain, "retention.ms", "-1")
    await recovered_by(managed, kept if is_set_before else plain, "t")
    await publish(managed, plain if is_set_before else kept)
    log = managed.table.find("t", 0).leader_log()
    assert log.config.retention_ms == (604_800_000 if is_set_before else -1)


async def test_a_name_that_another_topics_log_still_has_is_freed_for_its_new_topic(
    world: World, managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deletion failed, as a full disk makes it."""
    await publish(managed, image_with(world, ("t", FIRST)))

    async def fails(at: TopicPartition) -> None:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(managed.logs, "delete", fails)
        await publish(managed, image_with(world, ("t", SECOND)))
        assert managed.table.find("t", 0).log is None
    world.clock.now_ms += OPEN_RETRY_MS
    managed.manager.retry()
    await managed.work.wait_done()
    assert managed.table.find("t", 0).leader_log().topic_id == SECOND


# ---- a directory that fails


@pytest.mark.parametrize("leader", [1, 2])
async def test_partitions_of_a_failed_directory_lead_and_follow_nothing(
    world: World, managed: Managed, leader: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One that went on asking would count as caught up, and join the in-sync replicas again."""
    image = image_with(world, ("t", FIRST), replicas=(1, 2), leader=leader)
    await publish(managed, image)
    partition = managed.table.find("t", 0)
    (directory,) = managed.logs.directories
    managed.manager.on_directory_failed(directory.path, "the disk failed")

    assert [event_of(line) for line in caplog.records] == ["directory.failed"]
    assert managed.fetchers.followed == {}
    assert (partition.is_leader, partition.log) == (False, None)
    assert partition.wanted_isr(0, may_shrink=True) is None
    expected = ErrorCode.KAFKA_STORAGE_ERROR if leader == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(RefusedError) as refused:
        partition.leader_log()
    assert refused.value.code is expected

    moved = image_with(
        world, ("t", FIRST), replicas=(1, 2), leader=2, leader_epoch=9, partition_epoch=9
    )
    await publish(managed, moved)
    world.clock.now_ms += OPEN_RETRY_MS
    managed.manager.retry()
    await managed.work.wait_done()
    assert managed.fetchers.followed == {}
    assert partition.log is None


async def test_a_log_that_failed_while_it_was_set_aside_is_not_taken_back(
    world: World, managed: Managed
) -> None:
    key = TopicIdPartition(FIRST, 0)
    replicas = (1, 2, 3)
    await publish(managed, image_with(world, ("t", FIRST), replicas=replicas, leader=2))
    partition = managed.table.find("t", 0)
    log = partition.log
    assert log is not None
    is_cut = managed.fetchers.busy[key] = trio.Event()
    await begin_publish(
        managed,
        image_with(world, ("t", FIRST), replicas=replicas, leader=1, leader_epoch=7),
    )
    log.abandon()
    is_cut.set()
    await managed.work.wait_done()
    assert (partition.is_leader, partition.log) == (False, None)
    assert partition.storage_failure is not None


async def change_over(managed: Managed, tmp_path: Path) -> Log:
    """Have t-0 use another log from now on, as at the end of its move; return that."""
    at = TopicPartition("t", 0)
    log = await open_log(
        RealDisk((str(tmp_path),)),
        str(tmp_path / "moved"),
        config=LogConfig(),
        topic_id=FIRST,
        is_clean=True,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=0,
    )
    directory = managed.logs.directory_of(at)
    assert directory is not None
    managed.logs.on_moved = managed.manager.on_moved
    managed.logs.change_over(at, log, directory)
    return log


@pytest.mark.parametrize("leader", [1, 2])
async def test_a_replica_that_moved_between_directories_goes_on_with_its_new_log(
    leader: int, world: World, managed: Managed, tmp_path: Path
) -> None:
    image = image_with(world, ("t", FIRST), replicas=(1, 2), leader=leader)
    await publish(managed, with_setting(image, "retention.ms", "77"))
    partition = managed.table.find("t", 0)

    log = await change_over(managed, tmp_path)

    assert partition.log is log
    assert log.config.retention_ms == 77
    assert partition.is_leader == (leader == 1)


async def test_a_replica_that_moved_while_its_log_was_set_aside_takes_the_new_one(
    world: World, managed: Managed, tmp_path: Path
) -> None:
    key = TopicIdPartition(FIRST, 0)
    await publish(managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=2))
    is_cut = managed.fetchers.busy[key] = trio.Event()
    await begin_publish(
        managed, image_with(world, ("t", FIRST), replicas=(1, 2), leader=1, leader_epoch=7)
    )
    log = await change_over(managed, tmp_path)
    is_cut.set()
    await managed.work.wait_done()

    partition = managed.table.find("t", 0)
    assert (partition.is_leader, partition.log) == (True, log)


async def test_the_controller_is_told_where_a_replica_lies_until_the_metadata_says_so(
    world: World, managed: Managed
) -> None:
    at, elsewhere = TopicPartition("t", 0), UUID(int=7)
    await publish(managed, image_with(world, ("t", FIRST), leader=1))
    managed.placed.clear()

    assert not managed.manager.is_placed(at, elsewhere)
    assert managed.placed == {TopicIdPartition(FIRST, 0): elsewhere}
    assert managed.manager.is_placed(at, UUID(int=1))
    managed.manager.report_place(at, UUID(int=1))
    assert managed.placed == {TopicIdPartition(FIRST, 0): UUID(int=1)}
    with pytest.raises(RefusedError):
        managed.manager.is_placed(TopicPartition("none", 0), elsewhere)


# ---- replicas that lost records


def lost_log(managed: Managed) -> LogLoss:
    loss = LogLoss(
        topic_id=FIRST,
        partition=TopicPartition("t", 0),
        directory=managed.logs.directories[0].path,
        kind=LossKind.MISSING,
        promised_end_offset=Offset(3),
        found_end_offset=Offset(0),
        reason="its log is gone",
    )
    managed.logs.known_losses.by_partition = {loss.key: loss}
    return loss


@pytest.mark.parametrize(
    ("changes", "is_forgotten"),
    [
        ({"isr": (NodeId(2),)}, False),
        ({"leader": NO_NODE}, False),
        ({}, True),
        ({"replicas": (NodeId(2), NodeId(3)), "isr": (NodeId(2),)}, True),
    ],
    ids=["out of sync", "without a leader", "in sync again", "not here"],
)
async def test_a_loss_is_known_until_the_replica_is_in_sync_again_or_not_here(
    world: World, managed: Managed, changes: dict[str, Any], is_forgotten: bool
) -> None:
    lost_log(managed)
    changes = {"leader": NodeId(2), **changes}
    await publish(managed, image_with(world, ("t", FIRST), **changes))
    assert (not managed.logs.losses) is is_forgotten


async def test_a_hole_is_known_until_its_replica_in_sync_dropped_what_is_behind_it(
    world: World, managed: Managed
) -> None:
    lost_log(managed)
    changes: dict[str, Any] = {"leader": NodeId(2)}
    await publish(managed, image_with(world, ("t", FIRST), isr=(NodeId(2),), **changes))
    log = managed.manager.table.by_id[FIRST][0].log
    assert log is not None
    log.hole_offset = Offset(0)
    await publish(managed, image_with(world, ("t", FIRST), **changes))
    assert managed.logs.losses
    log.hole_offset = None
    await publish(managed, image_with(world, ("t", FIRST), **changes))
    assert not managed.logs.losses


async def test_a_loss_is_forgotten_with_its_topic(world: World, managed: Managed) -> None:
    lost_log(managed)
    await publish(managed, image_with(world))
    assert not managed.logs.losses


async def test_a_placement_counts_only_in_sync_or_eligible_and_not_as_created(
    world: World, managed: Managed
) -> None:
    key = TopicIdPartition(FIRST, 0)
    here: PersistentMap[TopicIdPartition, None] = PersistentMap({key: None})
    for elr, changes, is_counted_on in (
        ((), {"partition_epoch": 3}, True),
        ((), {"partition_epoch": 0, "leader_epoch": Epoch(0)}, False),
        ((), {"partition_epoch": 3, "isr": (NodeId(2),)}, False),
        ((NodeId(1),), {"partition_epoch": 3, "isr": (NodeId(2),)}, True),
    ):
        state = replace(world.state(**changes), elr=elr)
        image = replace(
            image_with(world),
            topics=PersistentMap({FIRST: Topic("t", FIRST, PersistentMap({0: state}))}),
            partitions_by_broker=PersistentMap({NodeId(1): here}),
        )
        (placement,) = await managed.manager.placements_of(image)
        assert placement.partition == TopicPartition("t", 0)
        assert placement.is_counted_on is is_counted_on
