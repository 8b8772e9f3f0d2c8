"""Making a workload's topics, and taking them away again."""

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
    # A segment ends with its index: after some fifty batches.
    "index.interval.bytes": "0",
    "segment.index.bytes": "400",
    "segment.ms": "2000",
}
"""Of compacted topics: what a run writes is cleaned several times while it lasts."""


def record_key(plan: LoadPlan, value: int) -> bytes | None:
    """Return the key of the record that holds a value, None where records have none."""
    if not plan.record_key_count:
        return None
    return b"%d" % record_key_of(value, plan.record_key_count)


class TopicMaker:
    """Makes topics that survive the loss of any one broker."""

    def __init__(self, plan: LoadPlan) -> None:
        self.copies = min(COPIES, plan.broker_count)
        # With one less than there are, whatever was acknowledged is on another replica too.
        self.configs = {
            "min.insync.replicas": str(max(1, self.copies - 1)),
            **(COMPACTED_CONFIGS if plan.record_key_count else {}),
        }

    async def make(self, admin: Admin, name: str, partition_count: int = PARTITION_COUNT) -> None:
        """Make a topic; RefusedError or ConnectionLostError where that fails."""
        await admin.create_topic(
            name,
            partition_count=partition_count,
            replication_factor=self.copies,
            configs=self.configs,
        )


async def create_topic(admin: Admin, maker: TopicMaker, op: Op) -> Completion:
    """Do a `create-topic` operation: it is made once, whoever tries again finds it there."""
    try:
        await maker.make(admin, op.value)
    except RefusedError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return ok()


async def make_topics(bootstrap: str, plan: LoadPlan, topics: Iterable[NewTopic]) -> None:
    """Make topics and wait until each partition has a leader; RefusedError when it takes long."""
    maker = TopicMaker(plan)
    async with open_admin(bootstrap, client_id="jepsen") as admin:
        for topic in topics:
            await maker.make(admin, topic.name, topic.partition_count)
        for topic in topics:
            await _until_led(admin, topic.name)


async def _until_led(admin: Admin, name: str) -> None:
    trouble = "nobody answered"
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
    """Wait until a group has its coordinator; the first question has their topic made."""
    addresses = addresses_of(bootstrap)
    async with (
        open_cluster(addresses, client_id="jepsen") as cluster,
        open_coordinator(cluster, f"{plan.prefix}warm-up", client_id="jepsen") as coordinator,
    ):
        await coordinator.until_it_answers(lambda: fetch_offsets(coordinator, []), READY_TIMEOUT_S)


async def count_brokers(bootstrap: str) -> int:
    """Return how many brokers there are."""
    async with open_cluster(addresses_of(bootstrap), client_id="jepsen") as cluster:
        return len((await cluster.metadata([])).brokers)


async def clear_away(bootstrap: str, prefix: str) -> int:
    """Delete all topics and groups that begin so; return how many there were.

    A group that still has members stays: it is forgotten as all empty groups are, later.
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
