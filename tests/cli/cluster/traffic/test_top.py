"""`ottla top`: rates of real brokers, and rates between two samples."""

from typing import Any

import pytest

from ottla.cli.cluster.traffic import top
from ottla.cli.main import run
from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_quotas import QuotaUsage
from ottla.client.network.connection import ConnectionLostError
from ottla.client.producer import open_producer
from ottla.insight.facts.traffic_driver import TrafficSample, sample
from ottla.insight.rules.traffic_rates import rates_between
from ottla.model.ids import NodeId, TopicPartition
from ottla.testing.in_process import open_in_process_cluster
from ottla.wire.messages.describe_node_response import NodeClientTraffic, NodeTopicTraffic


async def test_what_is_produced_is_seen_by_topic_partition_and_broker() -> None:
    async with (
        open_in_process_cluster() as cluster,
        open_admin(cluster.bootstrap) as admin,
        open_producer(cluster.bootstrap) as producer,
    ):
        await admin.create_topic("orders", partition_count=2, replication_factor=1)
        await (await producer.send("orders", b"v", partition=1))
        before = await sample(admin)
        await (await producer.send("orders", b"v" * 100_000, partition=1))
        _, rates = await top.next_rates(admin, before, 0.1)
        assert [one.topic for one in rates.topics] == ["orders"]
        assert rates.topics[0].bytes_in > 100_000
        assert [(one.topic, one.partition) for one in rates.partitions] == [("orders", 1)]
        assert rates.brokers[0].requests > 0
        assert rates.brokers[0].cpu_percent > 0
        text = top.shown(rates, 10)
        assert "orders" in text
        (producing,) = [one for one in rates.clients if one.bytes_in > 100_000]
        assert producing.client_id == "ottla"
        assert producing.requests > 0
        assert producing.cpu_percent > 0
        assert "CLIENT-ID" in text
        assert "QUOTA" not in text


class LostAdmin:
    """Requests to a broker that has just stopped."""

    async def describe_cluster(self, **options: bool) -> None:
        raise ConnectionLostError("localhost:9092 hung up")


async def test_the_end_of_the_broker_that_answers_is_one_error() -> None:
    lost: Any = LostAdmin()
    with pytest.raises(ConnectionLostError, match="hung up"):
        await sample(lost)


def traffic(topic: str, bytes_in: int, bytes_out: int = 0) -> NodeTopicTraffic:
    return NodeTopicTraffic(topic=topic, bytes_in=bytes_in, bytes_out=bytes_out)


def counts(requests: int, bytes_in: int) -> NodeClientTraffic:
    return NodeClientTraffic(
        user="al",
        client_id="app",
        requests=requests,
        bytes_in=bytes_in,
        bytes_out=0,
        used_ns=requests * 50_000_000,
    )


def test_rates_are_of_all_brokers_and_the_busiest_come_first() -> None:
    before = TrafficSample(10.0)
    after = TrafficSample(12.0)
    before.figures = {1: {"process.cpu.seconds": 5.0}, 2: {}}
    after.figures = {1: {"process.cpu.seconds": 6.0, "requests.answered": 8.0}, 2: {}}
    before.topics = {1: [traffic("a", 100)], 2: [traffic("a", 900), traffic("idle", 7)]}
    after.topics = {
        1: [traffic("a", 300), traffic("b", 0, 5_000)],
        2: [traffic("a", 100), traffic("idle", 7)],
    }
    before.sizes = {TopicPartition("a", 0): 10, TopicPartition("a", 1): 10}
    after.sizes = {TopicPartition("a", 0): 30, TopicPartition("a", 1): 90}
    before.clients = {1: [counts(1, 500)], 2: []}
    after.clients = {1: [counts(3, 1_500)], 2: [counts(2, 400)]}
    after.quotas = [
        QuotaUsage(NodeId(broker), "producer_byte_rate", "al", "", 9.0, 4.0, broker)
        for broker in (1, 2)
    ]
    rates = rates_between(before, after)
    assert [(one.topic, one.bytes_in, one.bytes_out) for one in rates.topics] == [
        ("b", 0, 2_500),
        ("a", 150, 0),
    ]
    assert rates.brokers[0][:3] == (1, 50, 4)
    assert [(one.partition, one.bytes_in) for one in rates.partitions] == [(1, 40), (0, 10)]
    assert rates.clients == [("al", "app", 700.0, 0.0, 2.0, 10.0)]
    assert [(one.user, one.rate, one.throttle_ms) for one in rates.quotas] == [("al", 8.0, 2)]
    assert list(top.rates_json(rates, 1)["topics"][0].values())[:2] == ["b", 0]


def test_bad_options_are_refused() -> None:
    for option in ("--interval=0", "--interval=nan", "--rows=0"):
        assert run(["top", option, "--bootstrap", "127.0.0.1:1"]) == 1
