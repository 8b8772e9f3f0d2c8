"""Topics, records, groups and users that give each screen of the console something to show."""

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import trio

from ottla.client import ConsumerConfig, ProducerConfig, open_admin, open_consumer, open_producer
from ottla.client.admin import Admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, ProducerId, TopicPartition
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

T = TypeVar("T")

TOPICS = {"orders": 3, "clicks": 2, "payments": 1}
TIERED = "archive"
"""Topic whose records only the object store has, where the cluster has tiered storage."""
HOSTILE = "<script>alert(1)</script>\x1b[31m\"'\u202e{{7*7}}"
"""Name of a group, key and value of a record."""
GROUP = "billing"
QUEUE = "pickers"
USER = "alice"
TRANSACTION = "bank"
REPORT = "run-1"
ACL = AclEntry(
    resource_type=ResourceType.TOPIC,
    resource_name="orders",
    pattern_type=PatternType.LITERAL,
    principal=f"User:{USER}",
    host="*",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)
TIMEOUT_S = 60.0


def ask(bootstrap: str, question: Callable[[Admin], Awaitable[T]]) -> T:
    """Return the answer of an admin client. It runs in a thread of its own, because the browser's
    driver has an event loop in this one."""

    async def run() -> T:
        with trio.fail_after(TIMEOUT_S):
            async with open_admin(bootstrap) as admin:
                return await question(admin)

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(trio.run, run).result()


def fill(bootstrap: str) -> None:
    """Create the data. It may exist already."""

    async def create(admin: Admin) -> None:
        known = set(await admin.list_topics())
        for name, count in TOPICS.items():
            if name not in known:
                await admin.create_topic(name, partition_count=count)
        with suppress(RefusedError):  # A cluster that was named may have no tiered storage.
            if TIERED not in known:
                configs = {"remote.storage.enable": "true", "local.retention.ms": "1"}
                await admin.create_topic(TIERED, partition_count=2, configs=configs)
            async with open_producer(bootstrap) as producer:
                await (await producer.send(TIERED, bytes(100_000)))
        async with open_producer(bootstrap) as producer:
            for number in range(120):
                value = b'{"id": %d, "total": 17.5, "lines": [1, 2]}' % number
                await producer.send("orders", value, key=b"k%d" % number)
            await (await producer.send("clicks", HOSTILE.encode(), key=HOSTILE.encode()))
            await (await producer.send("clicks", b"\xff\x00\xfe" * 40, partition=0))
        orders = TopicPartition("orders", 0)
        await admin.alter_group_offsets(HOSTILE, {orders: 0})
        await admin.alter_share_group_offsets(QUEUE, {orders: 0})
        config = ConsumerConfig(group_id=GROUP, auto_offset_reset="earliest")
        async with open_consumer(bootstrap, config) as consumer:
            consumer.subscribe(["orders"])
            while not await consumer.poll():
                pass
            await consumer.commit()
        await admin.alter_group_offsets(GROUP, {orders: 1})
        transactional = ProducerConfig(transactional_id=TRANSACTION)
        async with open_producer(bootstrap, transactional) as producer, producer.transaction():
            await (await producer.send("payments", b"1"))
        await admin.create_acls([ACL])
        await admin.set_password(USER, "SCRAM-SHA-512", "a password of alice")

    ask(bootstrap, create)


async def write_lost_transaction(admin: Admin, topic: str) -> int:
    """Write a record of a transaction that no coordinator knows to partition 0. Returns the offset
    at which readers of committed records wait."""
    await admin.create_topic(topic, partition_count=1)
    cluster = admin.cluster
    found = await cluster.request(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
        InitProducerIdResponse,
    )
    records = build_batch(
        [RecordToBuild(1, None, b"x")],
        producer_id=ProducerId(found.producer_id),
        producer_epoch=found.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = [PartitionProduceData(index=0, records=records)]
    produce = ProduceRequest(
        transactional_id="lost",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    leader = (await admin.describe_topic(topic)).partitions[0].leader
    assert leader is not None
    answer = await cluster.request(produce, ProduceResponse, node=NodeId(leader), version=11)
    (answered,) = answer.responses[0].partition_responses
    assert answered.error_code == ErrorCode.NONE
    return answered.base_offset
