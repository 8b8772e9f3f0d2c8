"""A follower's throttle, and catching up under one, in virtual time against a real leader."""

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.follower_fetch import FollowerFetch
from ottla.broker.replicas.partition import Partition
from ottla.model.ids import NodeId, Offset, TopicIdPartition
from ottla.model.limits import INT64_MAX, KIB
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.throttled_replicas import throttled_replicas
from ottla.model.settings.storage.topic import TopicConfig
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

World = Any  # the class of the `world` fixture, in conftest.py

LEADER = NodeId(1)
LOCAL = NodeId(2)
BATCH_BYTES = 4 * KIB
DISK_BYTES_PER_MS = 10 * KIB
"""Copy rate of a follower without a throttle."""


class Follower:
    """Broker 2, which follows partitions of broker 1 in virtual time."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.directory = directory
        self.quota = ReplicationQuota(WindowShape(), INT64_MAX, world.clock.monotonic_ms)
        config = BrokerConfig(node_id=LOCAL, replica_fetch_bytes_max=16 * KIB)
        self.core = FollowerFetch(LEADER, config, self.quota)
        self.partitions: dict[str, Partition] = {}
        self.copied: dict[str, int] = {}
        self.asked: list[FetchRequest] = []

    async def follow(self, topic: str, throttled: str = "*", *, in_sync: bool = False) -> None:
        """Have a topic that is throttled on both sides, and follow it."""
        replicas = throttled_replicas(throttled)
        config = TopicConfig(
            leader_replication_throttled_replicas=replicas,
            follower_replication_throttled_replicas=replicas,
        )
        leading = await self.world.add(topic, replicas=(LEADER, LOCAL), config=config)
        following = Partition(
            topic,
            leading.topic_id,
            0,
            local_id=LOCAL,
            is_eligible=lambda replica, epoch: True,
            port=self.world.port,
        )
        isr = (LEADER, LOCAL) if in_sync else (LEADER,)
        state = self.world.state(replicas=(LEADER, LOCAL), isr=isr, partition_epoch=1)
        leading.apply(state, config, self.world.clock.now_ms)
        following.apply(state, config, 0)
        log = await open_log(
            self.world.disk,
            str(self.directory / topic),
            config=LogConfig.of_topic(config),
            topic_id=leading.topic_id,
            is_clean=True,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=0,
        )
        following.attach(log, 0)
        self.partitions[topic] = following
        self.copied[topic] = 0
        self.core.follow(following)

    def lead(self, topic: str, count: int = 1) -> None:
        """Append batches on the leader."""
        leading = self.world.table.find(topic, 0)
        for _ in range(count):
            leading.append(
                self.world.batch(b"v" * BATCH_BYTES),
                acks=1,
                now_ms=self.world.clock.wall_ms(),
                mono_ms=self.world.clock.now_ms,
            )

    def is_caught_up(self, topic: str) -> bool:
        ours, theirs = self.partitions[topic].log, self.world.table.find(topic, 0).log
        return ours is not None and ours.end_offset == theirs.end_offset

    def ask(self) -> FetchRequest | None:
        request = self.core.request(self.world.clock.now_ms, 10)
        if request is not None:
            self.asked.append(request)
        return request

    def step(self) -> None:
        """Fetch once and apply the response, or wait until the next fetch is due."""
        request = self.ask()
        clock, purgatory = self.world.clock, self.world.purgatory
        if request is None:
            assert self.core.next_retry_ms is not None
            self.world.pass_time(max(1, self.core.next_retry_ms - clock.now_ms))
            return
        retry_ms = self.core.next_retry_ms
        if retry_ms is not None:
            request.max_wait_ms = min(request.max_wait_ms, max(0, retry_ms - clock.now_ms))
        call = self.world.fetch(request)
        while not call.is_completed:
            self.world.pass_time(max(1, purgatory.next_deadline_ms - clock.now_ms))
        answer: FetchResponse = call.response(FetchResponse)
        self.core.session.take(answer)
        size = 0
        for topic in answer.responses:
            for data in topic.partitions:
                followed = self.core.find(TopicIdPartition(topic.topic_id, data.partition_index))
                assert followed is not None
                assert (
                    self.core.take(followed, data, now_ms=clock.now_ms, wall_ms=clock.wall_ms())
                    is None
                )
                size += len(data.records or b"")
                self.copied[followed.partition.topic] += len(data.records or b"")
        self.world.pass_time(1 + size // DISK_BYTES_PER_MS)

    def run_until(self, now_ms: int) -> None:
        while self.world.clock.now_ms < now_ms:
            self.step()


@pytest.fixture
def follower(world: World, tmp_path: Path) -> Follower:
    return Follower(world, tmp_path / "follower")


def content(log: Log) -> bytes:
    found = log.read(Offset(0), bytes_max=1 << 20, end_offset=log.end_offset, at_least_one=True)
    return b"" if found.slice is None else found.slice.read()


LIMIT = 64 * KIB


@pytest.mark.parametrize("side", ["leader", "follower", "both"])
async def test_a_replica_catches_up_at_the_rate_of_its_throttle(
    world: World, follower: Follower, side: str
) -> None:
    await follower.follow("t")
    follower.lead("t", 700)
    if side != "follower":
        world.replication_quota.set_limit(LIMIT)
    if side != "leader":
        follower.quota.set_limit(LIMIT)

    follower.run_until(6_000)
    before, from_ms = follower.copied["t"], world.clock.now_ms
    follower.run_until(36_000)

    seconds = (world.clock.now_ms - from_ms) / 1_000
    rate = (follower.copied["t"] - before) / seconds
    assert rate == pytest.approx(LIMIT, rel=0.1)
    assert len(follower.asked) < 40 * LIMIT / BATCH_BYTES  # it does not spin


async def test_a_throttled_replica_catches_up_with_all_there_is(
    world: World, follower: Follower
) -> None:
    await follower.follow("t")
    follower.lead("t", 100)
    world.replication_quota.set_limit(LIMIT)
    follower.quota.set_limit(LIMIT)

    while not follower.is_caught_up("t"):
        follower.step()

    ours, theirs = follower.partitions["t"].log, world.table.find("t", 0).log
    assert ours is not None
    assert content(ours) == content(theirs)
    assert ours.end_offset == 100


async def test_a_throttled_partition_is_left_out_and_the_others_are_not(
    world: World, follower: Follower
) -> None:
    await follower.follow("slow")
    await follower.follow("fast", "")
    follower.lead("slow", 30)
    follower.lead("fast", 30)
    follower.quota.set_limit(BATCH_BYTES)

    while not follower.is_caught_up("fast"):
        follower.step()

    assert follower.copied["slow"] <= 16 * KIB  # what one answer holds
    assert follower.core.failed_count == 0


async def test_a_replica_in_sync_is_never_left_out(world: World, follower: Follower) -> None:
    await follower.follow("t", in_sync=True)
    follower.quota.set_limit(1)
    world.replication_quota.set_limit(1)
    follower.lead("t", 50)

    started_ms = world.clock.now_ms
    while not follower.is_caught_up("t"):
        follower.step()

    assert world.clock.now_ms - started_ms < 100
    assert follower.quota.per_second() > 100_000


async def test_a_limit_that_goes_brings_what_was_left_out_back_within_half_a_second(
    world: World, follower: Follower
) -> None:
    await follower.follow("t")
    follower.quota.set_limit(1)
    follower.lead("t", 20)
    follower.step()
    follower.step()
    assert follower.ask() is None
    follower.quota.set_limit(INT64_MAX)
    since_ms = world.clock.now_ms

    while not follower.is_caught_up("t"):
        follower.step()

    assert world.clock.now_ms - since_ms <= 520


async def test_a_partition_that_is_left_out_can_be_left(world: World, follower: Follower) -> None:
    await follower.follow("t")
    follower.quota.set_limit(1)
    follower.lead("t", 20)
    follower.step()
    follower.step()
    assert follower.core.next_retry_ms is not None

    follower.core.leave(follower.partitions["t"].key)

    assert follower.core.next_retry_ms is None
    assert follower.ask() is None
