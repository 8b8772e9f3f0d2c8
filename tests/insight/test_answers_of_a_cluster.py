"""Answers about a cluster in the test's event loop, with the causes that were made there."""

import trio

from ottla.client import ProducerConfig, open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_quotas import QuotaChange
from ottla.client.testing import open_test_cluster
from ottla.insight.answers import ANSWERS
from ottla.insight.answers_driver import answer
from ottla.insight.explanation import Conclusion
from ottla.model.ids import TopicPartition
from ottla.model.quotas.quota_limits import QuotaEntity

TIMEOUT_S = 120
ORDERS = TopicPartition("orders", 0)
VALUES: dict[str, dict[str, str | None]] = {
    "denial": {"user": "alice", "operation": "read", "topic": "orders"},
    "throttle": {"ip": "10.0.0.7"},
    "lag": {"group": "billing"},
    "rebalance": {"group": "billing"},
    "transaction": {"topic": "orders"},
    "delivery": {"group": "workers"},
}
KINDS: dict[str, list[str]] = {
    "health": [],
    "denial": [],
    "throttle": ["quota-connection-creation-rate"],
    "lag": ["open-transaction"],
    "unavailable": [],
    "rebalance": [],
    "slow": [],
    "disk": [],
    "transaction": ["open-transaction"],
    "delivery": ["no-members"],
}


async def kinds_of(admin: Admin, name: str) -> list[str]:
    found = await answer(admin, name, VALUES.get(name, {}))
    assert found.unknown == (), found
    return [one.kind for one in found.causes]


async def test_each_answer_names_the_causes_in_a_cluster() -> None:
    owner = (QuotaEntity("ip", False, "10.0.0.7"),)
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(
                cluster.bootstrap, ProducerConfig(transactional_id="billing-1")
            ) as producer,
        ):
            await admin.create_topic("orders", partition_count=1)
            await admin.alter_quotas([QuotaChange(owner, {"connection_creation_rate": 5.0})])
            await admin.alter_group_offsets("billing", {ORDERS: 0})
            await admin.alter_share_group_offsets("workers", {ORDERS: 0})
            async with producer.transaction():
                await (await producer.send("orders", b"v"))
                found = {one.name: await kinds_of(admin, one.name) for one in ANSWERS}
            assert found == KINDS


async def test_a_missing_group_is_unknown_with_the_reason() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            found = await answer(admin, "rebalance", {"group": "none"})
            assert found.verdict is Conclusion.UNKNOWN
            assert "there is no group 'none'" in found.unknown[0]
