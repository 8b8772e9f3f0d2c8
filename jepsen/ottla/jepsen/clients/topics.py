"""Creates and deletes a workload's topics, and waits until the cluster can serve them and its
groups."""

from collections.abc import Iterable

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.groups.coordinator import open_coordinator
from ottla.client.groups.group_offsets import fetch_offsets
from ottla.client.network.bootstrap import addresses_of
from ottla.client.network.cluster import open_cluster
from ottla.jepsen.checkers.compacted import record_key_of
from ottla.jepsen.clients.completions import TROUBLE, ok
from ottla.jepsen.workloads.keys import PARTITION_COUNT
from ottla.jepsen.workloads.load import Completion, LoadPlan, NewTopic, Op
from ottla.model.errors import ErrorCode, RefusedError

COPIES = 3
READY_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.1


COMPACTED_CONFIGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    # A segment ends when its index is full: after about 50 batches.
    "index.interval.bytes": "0",
    "segment.index.bytes": "400",
    "segment.ms": "2000",
}
"""Topic settings of compacted topics. With them, a topic is compacted several times within a
run."""


TIERED_CONFIGS = {
    "remote.storage.enable": "true",
    "segment.ms": "2000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "0",
}
"""Topic settings of tiered topics. With them, closed segments are copied at once, and most records
are read from the object store."""


def record_key(plan: LoadPlan, value: int) -> bytes | None:
    """Return the record key under which a value is sent, or None if the plan has no record keys."""
    if not plan.record_key_count:
        return None
    return b"%d" % record_key_of(value, plan.record_key_count)


class TopicMaker:
    """Creator of topics whose acknowledged records survive the loss of any one broker."""

    def __init__(self, plan: LoadPlan) -> None:
        self.copies = min(COPIES, plan.broker_count)
        # With one in-sync replica less than there are replicas, every acknowledged record is on
        # another replica too.
        self.configs = {"min.insync.replicas": str(max(1, self.copies - 1))}
        if plan.record_key_count:
            self.configs |= COMPACTED_CONFIGS
        elif plan.is_tiered:
            self.configs |= TIERED_CONFIGS

    async def make(self, admin: Admin, name: str, partition_count: int = PARTITION_COUNT) -> None:
        """Create a topic with `partition_count` partitions. Raises RefusedError or
        ConnectionLostError if that fails."""
        await admin.create_topic(
            name,
            partition_count=partition_count,
            replication_factor=self.copies,
            configs=self.configs,
        )


async def create_topic(admin: Admin, maker: TopicMaker, op: Op) -> Completion:
    """Perform a `create-topic` operation, and return its completion (outcome event). A topic that
    exists already counts as created."""
    try:
        await maker.make(admin, op.value)
    except RefusedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return ok()


async def make_topics(bootstrap: str, plan: LoadPlan, topics: Iterable[NewTopic]) -> None:
    """Create the topics of a plan and wait until each partition has a leader. Raises RefusedError
    if that takes too long."""
    maker = TopicMaker(plan)
    async with open_admin(bootstrap, client_id="jepsen") as admin:
        for topic in topics:
            await maker.make(admin, topic.name, topic.partition_count)
        for topic in topics:
            await _until_led(admin, topic.name)


async def _until_led(admin: Admin, name: str) -> None:
    trouble = "no broker answered"
    with trio.move_on_after(READY_TIMEOUT_S):
        while True:
            try:
                found = await admin.describe_topic(name)
                if all(one.leader is not None for one in found.partitions):
                    return
                trouble = "a partition has no leader"
            except TROUBLE as error:
                trouble = str(error)
            await trio.sleep(LOOK_AGAIN_S)
    raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name} is not ready: {trouble}")


async def warm_up(bootstrap: str, plan: LoadPlan) -> None:
    """Wait until a group of the plan has a coordinator. The first FindCoordinator request makes the
    cluster create its internal topic `__consumer_offsets`."""
    addresses = addresses_of(bootstrap)
    async with (
        open_cluster(addresses, client_id="jepsen") as cluster,
        open_coordinator(cluster, f"{plan.prefix}warm-up", client_id="jepsen") as coordinator,
    ):
        await coordinator.until_it_answers(lambda: fetch_offsets(coordinator, []), READY_TIMEOUT_S)


async def count_brokers(bootstrap: str) -> int:
    """Return the number of brokers in the cluster."""
    async with open_cluster(addresses_of(bootstrap), client_id="jepsen") as cluster:
        return len((await cluster.metadata([])).brokers)


async def clear_away(bootstrap: str, prefix: str) -> int:
    """Delete all topics and groups whose names begin with a prefix, and return the number of
    deleted ones.

    A group that still has members is not deleted. It expires later, like every empty group.
    """
    assert prefix, "everybody's names begin with nothing"
    count = 0
    async with open_admin(bootstrap, client_id="jepsen") as admin:
        for name in await admin.list_topics():
            if name.startswith(prefix):
                await admin.delete_topic(name)
                count += 1
        for group in await admin.list_groups():
            if group.group_id.startswith(prefix):
                try:
                    await admin.delete_group(group.group_id)
                    count += 1
                except RefusedError as error:
                    if error.code is not ErrorCode.NON_EMPTY_GROUP:
                        raise
    return count
