"""The metrics of a real broker at /metrics, read by Prometheus's own parser for Python."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.request import urlopen

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics.transaction_metrics import transaction_families
from ottla.broker.transactions.transaction import TransactionFacts
from ottla.broker.transactions.transaction_records import state_record
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.client import open_admin, open_producer
from ottla.client.network.connection import open_connection
from ottla.client.testing import ClusterUnderTest, import_cluster, open_test_cluster
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, ProducerId, TopicPartition
from ottla.model.settings.transactions import TransactionConfig
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

import_cluster()

NODE = NodeId(1)
TOPIC = "orders"
VALUES = 100
VALUE = b"x" * 1_000


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterUnderTest]:
    async with open_test_cluster(
        broker_count=2,
        settings={"metrics.prometheus.port": "0", "metrics.prometheus.host": "127.0.0.1"},
    ) as cluster:
        yield cluster


class Scrape:
    """All numbers of one moment."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        assert text.count("# TYPE") == len(self.families)

    def rows(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == name:
                    yield sample.labels, sample.value

    def value(self, name: str, **labels: str) -> float:
        (found,) = [value for having, value in self.rows(name) if having == labels]
        return found

    def sum(self, name: str) -> float:
        return sum(value for _, value in self.rows(name))


async def scrape(broker: Any) -> Scrape:
    def ask() -> str:
        with urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as response:
            return str(response.read(), "utf-8")

    return Scrape(await trio.to_thread.run_sync(ask))


def by_request(found: Scrape, name: str) -> dict[str, float]:
    """Return a family's numbers by request, of all versions."""
    sums: dict[str, float] = {}
    for labels, value in found.rows(name):
        sums[labels["request"]] = sums.get(labels["request"], 0) + value
    return sums


async def produce(cluster: ClusterUnderTest) -> None:
    async with open_admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, partition_count=2, replication_factor=2)
    async with open_producer(cluster.bootstrap) as producer:
        for at in range(VALUES):
            await producer.send(TOPIC, VALUE, partition=at % 2)


async def test_what_was_produced_is_counted_by_topic_and_in_all(cluster: ClusterUnderTest) -> None:
    await produce(cluster)
    scrapes = [await scrape(broker) for broker in cluster.brokers.values()]

    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert sum(each.value(name, topic=TOPIC) for each in scrapes) == VALUES
    assert sum(each.value(name) for each in scrapes) == VALUES
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    sent = sum(each.value(name, topic=TOPIC) for each in scrapes)
    assert VALUES * len(VALUE) < sent < 1.2 * VALUES * len(VALUE)
    replicated_in = "kafka_server_brokertopicmetrics_replicationbytesin_total"
    replicated_out = "kafka_server_brokertopicmetrics_replicationbytesout_total"
    assert sum(each.value(replicated_in, topic=TOPIC) for each in scrapes) == sent
    assert sum(each.value(replicated_out, topic=TOPIC) for each in scrapes) == sent


async def test_every_partition_is_reported_by_each_replica(cluster: ClusterUnderTest) -> None:
    await produce(cluster)
    first, second = [await scrape(broker) for broker in cluster.brokers.values()]

    for partition in ("0", "1"):
        labels = {"topic": TOPIC, "partition": partition}
        assert first.value("kafka_log_log_logendoffset", **labels) == VALUES / 2
        assert second.value("kafka_log_log_size", **labels) > VALUES / 2 * len(VALUE)
        lag = "kafka_server_replicafetchermanager_maxlag"
        assert first.value(lag, clientId="Replica") == 0
    led = "kafka_server_replicamanager_leadercount"
    assert first.value(led) + second.value(led) == 2
    assert first.value("kafka_server_replicamanager_partitioncount") == 2
    assert (
        first.sum("kafka_cluster_partition_replicascount")
        + second.sum("kafka_cluster_partition_replicascount")
        == 4
    )


async def test_a_follower_that_is_gone_shows_in_the_sums_alerts_watch(
    cluster: ClusterUnderTest,
) -> None:
    await produce(cluster)
    broker = cluster.brokers[min(cluster.brokers)]
    well = await scrape(broker)
    led = [partition for partition in broker.table if partition.is_leader]
    for partition in led:
        partition.isr = frozenset((broker.config.node_id,))
        partition.is_reassigning = True

    ill = await scrape(broker)

    per_partition = "kafka_cluster_partition_underreplicated"
    in_all = "kafka_server_replicamanager_underreplicatedpartitions"
    assert list(well.rows(per_partition)) == [({}, 0)]
    assert well.value(in_all) == 0
    assert ill.sum(per_partition) == ill.value(in_all) == len(led) > 0
    moving = "kafka_server_replicamanager_reassigningpartitions"
    assert (well.value(moving), ill.value(moving)) == (0, len(led))


async def test_names_are_given_once_and_every_family_is_explained(
    cluster: ClusterUnderTest,
) -> None:
    for broker in cluster.brokers.values():
        names = broker.registry.names()
        assert len(set(names)) == len(names)
        found = await scrape(broker)
        assert all(family.documentation for family in found.families.values())
        assert found.value("kafka_server_kafkaserver_brokerstate") == 3
        assert found.value("kafka_server_raft_metrics_current_leader") == 101
        assert found.value("kafka_server_raft_metrics_current_state_info", state="observer") == 1
        assert found.value("kafka_server_raft_metrics_fetch_records_rate") > 0
        assert found.value("kafka_server_raft_metrics_append_records_rate") == 0


async def test_the_time_of_requests_is_split(cluster: ClusterUnderTest) -> None:
    await produce(cluster)
    leader = next(
        broker
        for broker in cluster.brokers.values()
        if any(partition.is_leader for partition in broker.table)
    )

    found = await scrape(leader)

    requests = by_request(found, "kafka_network_requestmetrics_requests_total")
    assert requests["Produce"] > 0
    assert requests["Fetch"] >= requests["FetchFollower"] > 0
    total = "kafka_network_requestmetrics_totaltimems"
    assert found.value(f"{total}_count", request="Produce") == requests["Produce"]
    for name in ("Produce", "Fetch", "FetchFollower", "ApiVersions"):
        assert found.value(f"{total}_sum", request=name) > 0
        assert found.value(total, request=name, quantile="0.99") > 0
    local = found.value("kafka_network_requestmetrics_localtimems_sum", request="Produce")
    remote = found.value("kafka_network_requestmetrics_remotetimems_sum", request="Produce")
    assert local > 0
    assert remote > 0
    assert found.value(f"{total}_sum", request="Produce") == pytest.approx(local + remote)


async def test_refusals_are_counted_by_request_and_code(cluster: ClusterUnderTest) -> None:
    await produce(cluster)
    leader, follower = cluster.brokers.values()
    (partition, *_) = [each for each in leader.table if each.is_leader]
    host, port = follower.addresses["PLAINTEXT"]
    data = PartitionProduceData(index=partition.index, records=b"nothing")
    asked = ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="no-such-topic", partition_data=[data])],
    )
    async with open_connection(host, port, client_id="test", timeout_s=30) as connection:
        answer = await connection.request(asked, ProduceResponse)

    code = ErrorCode(answer.responses[0].partition_responses[0].error_code).name
    name = "kafka_network_requestmetrics_errors_total"
    assert (await scrape(follower)).value(name, request="Produce", error=code) == 1


async def test_unexpected_errors_are_counted_by_the_kind_of_owner_they_ended(
    cluster: ClusterUnderTest,
) -> None:
    broker = next(iter(cluster.brokers.values()))
    for _ in range(2):
        broker.errors.note("request", "Metadata of one client", RuntimeError("a bug"))
    broker.errors.note("background task", "a test's", RuntimeError("another"))

    found = await scrape(broker)

    name = "ottla_unexpected_errors_total"
    assert found.value(name, owner="request") == 2
    assert found.value(name, owner="background task") == 1
    host, port = broker.addresses["PLAINTEXT"]
    async with open_connection(host, port, client_id="test", timeout_s=30) as connection:
        answer = await connection.request(DescribeNodeRequest(), DescribeNodeResponse)
    plain = {metric.name: metric.value for metric in answer.metrics}
    assert plain["errors.unexpected"] == 3
    assert plain["errors.unexpected.background.task"] == 1


async def test_flushes_that_acknowledgements_wait_for_are_timed(cluster: ClusterUnderTest) -> None:
    async with open_admin(cluster.bootstrap) as admin:
        await admin.create_topic(
            TOPIC, partition_count=1, replication_factor=1, configs={"flush.messages": "1"}
        )
    async with open_producer(cluster.bootstrap) as producer:
        await producer.send(TOPIC, VALUE)

    scrapes = [await scrape(broker) for broker in cluster.brokers.values()]

    count = "kafka_log_logflushstats_logflushrateandtimems_count"
    assert sum(each.value(count) for each in scrapes) == 1


async def compacted(cluster: ClusterUnderTest) -> int:
    """Compact a topic on broker 1, whose cleaner then fails on another; return the bytes read."""
    topic, other = TopicPartition("states", 0), TopicPartition("others", 0)
    async with open_admin(cluster.bootstrap) as admin:
        for name in ("states", "others"):
            settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
            await admin.create_topic(name, replication_factor=2, configs=settings)
    async with open_producer(cluster.bootstrap) as producer:
        for name in ("states", "others"):
            for _ in range(VALUES):
                await producer.send(name, VALUE, key=b"k")
    async with open_admin(cluster.bootstrap) as admin:
        with trio.fail_after(60):
            while (await admin.clean_logs(NODE, [topic, other]))[topic].note is not None:
                await trio.sleep(0.05)
            while True:
                found = await admin.describe_cleaner(NODE, [topic, other])
                passes = [log.last for log in found.logs.values() if log.last is not None]
                if len(passes) == 2:
                    return sum(one.read_bytes for one in passes)
                await trio.sleep(0.05)


async def test_the_log_cleaner_shows_what_it_does_and_what_it_leaves(
    cluster: ClusterUnderTest,
) -> None:
    read_bytes = await compacted(cluster)
    broker = cluster.brokers[NODE]
    cleaner = broker.logs.cleaner
    # The second log is dirty again when its cleaning is given up, and a worker has died.
    async with open_producer(cluster.bootstrap) as producer:
        await (await producer.send("others", VALUE, key=b"k"))
    log = broker.logs.get(TopicPartition("others", 0))
    await log.roll(now_ms=0)
    reason = "a batch is damaged"
    cleaner.manager.on_failed(TopicPartition("others", 0), reason, now_ms=0, is_final=True)
    cleaner.runner.dead_count += 1
    found = await scrape(broker)

    assert found.value("ottla_log_cleaner_cleanings_total") == 2
    assert found.value("ottla_log_cleaner_failures_total") == 0
    assert found.value("ottla_log_cleaner_read_bytes_total") == read_bytes
    written = found.value("ottla_log_cleaner_written_bytes_total")
    assert 0 < written < read_bytes
    recopied = found.value("kafka_log_logcleaner_cleaner_recopy_percent")
    assert recopied == int(100 * written / read_bytes)
    assert found.value("ottla_log_cleaner_keyless_records_total") == 0
    assert found.value("kafka_log_logcleaner_deadthreadcount") == 1
    assert 0 <= found.value("kafka_log_logcleaner_max_clean_time_secs") <= 60
    assert found.value("kafka_log_logcleaner_max_compaction_delay_secs") == 0
    used = found.value("kafka_log_logcleaner_max_buffer_utilization_percent")
    assert 0 <= used <= 100
    assert 0 <= found.value("kafka_log_logcleanermanager_time_since_last_run_ms") < 60_000
    assert 0 <= found.value("kafka_log_logcleanermanager_max_dirty_percent") <= 100
    (directory,) = broker.config.log_dirs
    count = found.value(
        "kafka_log_logcleanermanager_uncleanable_partitions_count", logDirectory=directory
    )
    assert count == 1
    uncleanable = found.value(
        "kafka_log_logcleanermanager_uncleanable_bytes", logDirectory=directory
    )
    assert uncleanable > len(VALUE)


async def test_transactions_are_counted_by_their_state() -> None:
    shard = TransactionShard(
        TransactionConfig(),
        index=0,
        coordinator_epoch=Epoch(0),
        take_id=lambda: ProducerId(7),
        server_version=lambda: 2,
    )
    facts = TransactionFacts(
        producer_id=ProducerId(7), producer_epoch=0, timeout_ms=1, last_update_ms=0
    )
    for transactional_id in ("a", "b"):
        shard.replay(*state_record(transactional_id, facts, 2))
    figures = {
        "transactions.load.ms.max": 9,
        "transactions.load.ms.avg": 5,
        "transactions.markers.unknown.destination": 3,
        "transactions.completions.retried": 2,
        "transactions.markers.waiting": 4,
        "transactions.markers.superseded": 1,
    }
    found = {
        (family.name, *sample[0]): sample[1]
        for family in transaction_families([shard], figures)
        for sample in family.samples
        if sample is not None
    }
    assert found["ottla_transactional_ids", "Empty"] == 2
    assert found["ottla_transactional_ids", "Ongoing"] == 0
    marker = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"
    assert found[f"{marker}unknowndestinationqueuesize",] == 3
    assert found[f"{marker}logappendretryqueuesize",] == 2
    coordinator = "kafka_server_transaction_coordinator_metrics_"
    assert found[f"{coordinator}partition_load_time_max",] == 9
    assert found[f"{coordinator}partition_load_time_avg",] == 5
    assert found["ottla_transaction_markers_waiting",] == 4
    assert found["ottla_transactions_superseded_total",] == 1
