"""transaction.version is raised from 0 to 2 and lowered again while clients write: each error is
retriable."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.client.network.cluster import raise_for
from ottla.client.network.connection import open_connection
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse
from tests.cluster.transactional_writers import (
    PARTITION_COUNT,
    TIMEOUT_S,
    LibrdkafkaWriter,
    OwnWriter,
)

pytestmark = pytest.mark.cluster

FEATURE = "transaction.version"
TRANSACTION_COUNT = 10
"""Least number of transactions that each client commits under each version."""
UPGRADE, SAFE_DOWNGRADE = 1, 2


def asked(bootstrap: str, ask: Callable[[Admin], Any]) -> Any:
    async def body() -> Any:
        with trio.fail_after(TIMEOUT_S):
            async with open_admin(bootstrap) as admin:
                return await ask(admin)

    return trio.run(body)


def finalise(cluster: Any, level: int, how: int = UPGRADE) -> None:
    async def ask(admin: Admin) -> None:
        update = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=how)
        request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])
        answer = await admin.cluster.request(request, UpdateFeaturesResponse)
        raise_for(answer.error_code, answer.error_message)

    asked(cluster.bootstrap, ask)
    cluster.wait_for(
        lambda: trio.run(reported_levels, cluster.bootstrap) == {level},
        "brokers that know the level",
    )


async def reported_levels(bootstrap: str) -> set[int]:
    """Return the transaction.version levels that brokers announce to a new connection."""
    levels = set()
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        async with open_connection(host, int(port)) as connection:
            levels.add(connection.feature_level(FEATURE))
    return levels


def described(bootstrap: str, transactional_id: str) -> TransactionDescription:
    found: TransactionDescription = asked(
        bootstrap, lambda admin: admin.describe_transaction(transactional_id)
    )
    return found


def read_committed(bootstrap: str, topic: str) -> list[list[int]]:
    """Return the numbers of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITION_COUNT)])
    found: list[list[int]] = [[] for _ in range(PARTITION_COUNT)]
    at_end: set[int | None] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(at_end) < PARTITION_COUNT and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            at_end.add(message.partition())
        else:
            found[message.partition() or 0].append(int(message.value() or b""))
    consumer.close()
    assert len(at_end) == PARTITION_COUNT
    return found


def test_clients_write_on_while_the_protocol_changes_and_changes_back(plan_cluster: Any) -> None:
    cluster = plan_cluster(brokers=2, transaction_state_log_num_partitions="4")
    cluster.start()
    bootstrap = cluster.bootstrap
    finalise(cluster, 0, SAFE_DOWNGRADE)
    names = ("by-librdkafka", "begun-at-0", "begun-at-2")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITION_COUNT, 2) for name in names]
    for made in admin.create_topics(topics).values():
        made.result(TIMEOUT_S)
    writers = [
        LibrdkafkaWriter(cluster.client, names[0]),
        OwnWriter(cluster.client, names[1]),
        OwnWriter(cluster.client, names[2]),
    ]
    with ExitStack() as running:
        for writer in writers[:2]:
            running.enter_context(writer).wait_for_more(TRANSACTION_COUNT)
        finalise(cluster, 2)
        running.enter_context(writers[2])
        for writer in writers:
            writer.wait_for_more(TRANSACTION_COUNT)
        finalise(cluster, 0, SAFE_DOWNGRADE)
        for writer in writers:
            writer.wait_for_more(TRANSACTION_COUNT)
        epochs = [described(bootstrap, name).producer_epoch for name in names]
    for writer in writers:
        assert writer.fault is None, (writer.fault, writer.errors)
        wanted = list(range(writer.count))
        assert read_committed(bootstrap, writer.name) == [wanted] * PARTITION_COUNT, writer.errors
    # Both protocols were spoken: by that of version 2 every end gives another epoch.
    assert epochs[0] <= len(writers[0].errors)
    assert epochs[1] <= len(writers[1].errors)
    assert epochs[2] >= 2 * TRANSACTION_COUNT - 1
