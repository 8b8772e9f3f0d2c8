"""Every answer about a cluster of Apache Kafka: facts that only Ottla reports are named as unknown,
and are never taken for causes.

If OTTLA_KAFKA_JARS names a directory with the jars of Kafka 4.4 or newer, a node is started.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer

from ottla.bench.kafka.kafka_server import open_kafka
from ottla.client import (
    ProducerConfig,
    ShareConsumerConfig,
    open_admin,
    open_producer,
    open_share_consumer,
)
from ottla.client.admin import Admin
from ottla.insight.answers import ANSWERS
from ottla.insight.answers_driver import answer
from ottla.insight.explanation import Conclusion
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse
from tests.client.share.test_share_beside_kafka import JARS, SETTINGS

pytestmark = pytest.mark.timeout(300)
TIMEOUT_S = 120.0
ORDERS = TopicPartition("orders", 0)
GROUPS = {"workers": "share", "readers": "consumer", "members": "classic", "audit": "simple"}
OURS_ALONE = "only brokers of Ottla report them"
PLANS = [
    {"change": "balance"},
    {"change": "remove-broker", "broker": "1"},
    {"change": "drain-broker", "broker": "1"},
]
CASES: list[tuple[str, dict[str, str], list[str]]] = [
    ("health", {}, []),
    ("denial", {"user": "alice", "operation": "read", "topic": "orders"}, []),
    ("throttle", {"ip": "10.0.0.7"}, []),
    ("lag", {"group": "audit"}, ["open-transaction"]),
    ("lag", {"group": "workers"}, []),
    ("unavailable", {"topic": "orders"}, []),
    ("slow", {}, []),
    ("disk", {}, []),
    ("transaction", {"topic": "orders"}, ["open-transaction"]),
    ("delivery", {"group": "workers"}, []),
    ("top", {}, []),
    *(("rebalance", {"group": group}, []) for group in GROUPS),
    *(("plan", values, ["refused"]) for values in PLANS),
]
"""Answers with the values of their parameters, and the kinds of the causes at Kafka."""


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jars = os.environ.get(JARS)
    if not jars:
        pytest.skip(f"LOUD: {JARS} is not set; no answer was asked of Kafka here")
    with open_kafka(Path(jars), tmp_path_factory.mktemp("kafka"), SETTINGS) as kafka:
        yield kafka.bootstrap


def join(bootstrap: str, group: str, protocol: str) -> Consumer:
    """Return a member of a group that has an assignment."""
    found = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    )
    found.subscribe(["orders"])
    while not found.assignment():
        found.poll(0.2)
    return found


def test_every_answer_has_a_case() -> None:
    assert {name for name, _, _ in CASES} == {one.name for one in ANSWERS}


async def test_each_answer_works_or_names_what_kafka_does_not_report(bootstrap: str) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_admin(bootstrap) as admin:
            await admin.create_topic("orders", partition_count=1)
            async with (
                open_producer(bootstrap, ProducerConfig(transactional_id="pay")) as producer,
                open_share_consumer(bootstrap, ShareConsumerConfig(group_id="workers")) as worker,
            ):
                await admin.alter_share_group_offsets("workers", {ORDERS: 0})
                worker.subscribe(["orders"])
                members = [
                    await trio.to_thread.run_sync(join, bootstrap, group, protocol)
                    for group, protocol in (("readers", "consumer"), ("members", "classic"))
                ]
                async with producer.transaction():
                    await (await producer.send("orders", b"v", partition=0))
                    await admin.alter_group_offsets("audit", {ORDERS: 0})
                    with trio.move_on_after(2):
                        await worker.poll()
                    await check(admin)
                for one in members:
                    await trio.to_thread.run_sync(one.close)


async def check(admin: Admin) -> None:
    for name, values, kinds in CASES:
        found = await answer(admin, name, values)
        assert [one.kind for one in found.causes] == kinds, found
        assert not any("hung up" in reason for reason in found.unknown), found
        if name in ("health", "throttle", "slow", "disk", "unavailable"):
            assert any(OURS_ALONE in reason for reason in found.unknown), found
        if name in ("delivery", "top"):
            assert found.verdict is Conclusion.UNKNOWN
        group: Any = GROUPS.get(values.get("group", ""))
        if name in ("lag", "rebalance"):
            assert found.notes[0].startswith(f"kind {group}: "), found
    with pytest.raises(RefusedError, match="no DescribeNode") as refused:
        await admin.cluster.request(DescribeNodeRequest(), DescribeNodeResponse)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
