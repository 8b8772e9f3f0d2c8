"""Answers about a cluster in the test's event loop, with the causes that were made there."""

from dataclasses import replace

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
from tests.cli.transactions.test_txn import write_unknown_to_the_coordinator
from tests.insight.interfaces import by_page, check_interfaces

TIMEOUT_S = 120
ORDERS = TopicPartition("orders", 0)
VALUES: dict[str, dict[str, str | None]] = {
    "denial": {"user": "alice", "operation": "read", "topic": "orders"},
    "throttle": {"ip": "10.0.0.7"},
    "lag": {"group": "billing"},
    "rebalance": {"group": "billing"},
    "transaction": {"topic": "orders"},
    "delivery": {"group": "workers"},
    "plan": {"change": "balance"},
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
    "top": [],
    "plan": [],
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
            page = await by_page(admin, ["top", "--by", "requests"])
            assert "Cpu percent Requests per second" in page, page
            assert "cause" not in page


async def test_a_missing_group_is_unknown_with_the_reason() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            found = await answer(admin, "rebalance", {"group": "none"})
            assert found.verdict is Conclusion.UNKNOWN
            assert "there is no group 'none'" in found.unknown[0]


async def test_a_hanging_transaction_has_a_cause_of_its_own() -> None:
    settings = {"transaction.partition.verification.enable": "false"}
    config = ProducerConfig(transactional_id="payments")
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap, config) as producer,
        ):
            await admin.create_topic("t", partition_count=1)
            async with producer.transaction():  # which creates the topic of the coordinators
                await (await producer.send("t", b"v"))
            await write_unknown_to_the_coordinator(cluster.bootstrap, "lost")
            await admin.alter_group_offsets("audit", {TopicPartition("t", 0): 2})
            (found,) = (await answer(admin, "transaction", {"topic": "t"})).causes
            assert found.kind == "hanging-transaction"
            assert found.fix == "ottla txn abort t:0 --start-offset 2"
            await check_interfaces(admin, ["transaction", "t"], found.kind, found.fix)
            (lag,) = (await answer(admin, "lag", {"group": "audit"})).causes
            assert lag == replace(found, evidence=lag.evidence)
