"""Clients push metrics to real processes, which export them by every path (docs/telemetry.md).

The clients are confluent-kafka's, which push by themselves; where a number must be known exactly,
the test sends the pushes.
"""

import signal
import subprocess
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol
from urllib.request import urlopen

import confluent_kafka
import grpc
import pytest
import trio
import zstandard
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from prometheus_client.parser import text_string_to_metric_families

from ottla.client import ClientInstanceDescription, open_admin
from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.node.local.local_nodes_driver import free_port
from ottla.telemetry.clients.client_record import decode_record
from ottla.telemetry.clients.client_series import legal_name
from ottla.telemetry.clients.otlp import HistogramValue, Point, points_of
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse
from tests.cluster.secure_form import IS_SECURE, command_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

INTERVAL_S = 1.0
SLACK_S = 1.0
PATIENCE_S = 60.0
ROUNDS_MAX = 10
QUEUE_PUSHES_MAX = 4
MIB = 1 << 20
GIB = 1 << 30
GZIP, ZSTD = 1, 4
BOMB_RSS_BYTES_MAX = 64 * MIB

PRODUCER = "org.apache.kafka.producer."
CONSUMER = "org.apache.kafka.consumer."
CREATED = "connection.creation.total"
ASSIGNED = f"{CONSUMER}coordinator.assigned.partitions"
REBALANCED = f"{CONSUMER}coordinator.rebalance.latency.total"
SENT = f"{PRODUCER}outgoing.byte.total"

ENDLESS_PRODUCER = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "client.id": "doomed"})
while True:
    producer.poll(1)
"""


class Way(Protocol):
    """One export path of client metrics."""

    def latest(self, client: str, name: str) -> float | None:
        """Return the total or last value of a client's metric, or None without one."""


class Values:
    """Metric values from points: deltas are added up, of other points the last one counts."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._values: dict[tuple[str, str], float] = {}

    def take(self, client: str, points: Iterable[Point]) -> None:
        for point in points:
            assert not isinstance(point.value, HistogramValue)
            key = client, point.name
            before = self._values.get(key, 0) if point.is_delta else 0
            self._values[key] = before + point.value
            self.names.append(point.name)

    def latest(self, client: str, name: str) -> float | None:
        return self._values.get((client, name))


class Collector(MetricsServiceServicer):
    """An OpenTelemetry collector's own protocol, served by grpc; can be stopped and started
    again."""

    def __init__(self) -> None:
        self.port = free_port()
        self.values = Values()
        self.open()

    def open(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(1))
        # The generated code has no types.
        add_MetricsServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        assert self._server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()

    def Export(  # noqa: N802  # the service's name for it
        self, request: ExportMetricsServiceRequest, context: object
    ) -> ExportMetricsServiceResponse:
        for part in request.resource_metrics:
            attributes = {one.key: one.value.string_value for one in part.resource.attributes}
            if "client_id" in attributes:  # else it is the node's own
                assert attributes["broker_id"] == "1"
                points = points_of(MetricsData(resource_metrics=[part]))
                self.values.take(attributes["client_id"], points)
        return ExportMetricsServiceResponse()

    def latest(self, client: str, name: str) -> float | None:
        return self.values.latest(client, name)


class ScrapedMetrics:
    """The Prometheus endpoint, read by prometheus_client's parser."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def samples(self, name: str) -> Iterator[Any]:
        with urlopen(self._url, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            yield from (one for one in family.samples if one.name == name)

    def latest(self, client: str, name: str) -> float | None:
        values = self.rows(client, name)
        return sum(values) if values else None

    def rows(self, client: str, name: str) -> list[float]:
        """Return the values of every series that a client has under a name."""
        return [
            float(sample.value)
            for sample in self.samples(legal_name(name))
            if sample.labels["client_id"] == client
        ]


class InTopic:
    """The records of `__client_metrics`, read by an ordinary consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.values = Values()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "reader",
                "group.id": "absent",
                "enable.metrics.push": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._is_assigned = False

    def latest(self, client: str, name: str) -> float | None:
        self._assign()
        while self._is_assigned and (message := self._consumer.poll(0.01)) is not None:
            assert message.error() is None, message.error()
            labels, received_ms, points = decode_record(message.value())
            assert message.key() == labels.client_instance_id.bytes
            assert message.timestamp()[1] == received_ms
            self.values.take(labels.client_id, points)
        return self.values.latest(client, name)

    def _assign(self) -> None:
        """Assign the partitions once the topic exists: the first push creates it."""
        topics = self._consumer.list_topics(timeout=PATIENCE_S).topics
        if not self._is_assigned and "__client_metrics" in topics:
            self._consumer.assign(
                [
                    confluent_kafka.TopicPartition("__client_metrics", partition, 0)
                    for partition in topics["__client_metrics"].partitions
                ]
            )
            self._is_assigned = True

    def close(self) -> None:
        self._consumer.close()


class ReportingCluster:
    """A broker with reporting clients and every export path enabled."""

    def __init__(self, cluster: Any, **settings: str) -> None:
        port = free_port()
        self.cluster = cluster
        self.bootstrap: str = cluster.bootstrap
        self.collector = Collector()
        cluster.start("controller")
        cluster.start(
            "broker",
            metrics_prometheus_port=str(port),
            telemetry_topic="true",
            telemetry_otlp_endpoint=f"grpc://127.0.0.1:{self.collector.port}",
            **settings,
        )
        if IS_SECURE:
            # ClusterAction is all that its brokers have.
            words = ("--topic", "__client_metrics", "--operation", "create,write")
            cluster.ottla("acl", "create", "--allow", "broker", *words)
        self.scraped = ScrapedMetrics(port)
        self.topic = InTopic(self.bootstrap)
        self.ways: dict[str, Way] = {
            "otlp": self.collector,
            "prometheus": self.scraped,
            "topic": self.topic,
        }

    def ask_for(self, metrics: str, interval_s: float = INTERVAL_S) -> None:
        words = ("set", "all", f"--metrics={metrics}", f"--interval={round(1e3 * interval_s)}ms")
        self.cluster.ottla("metrics", "subscriptions", *words)

    def clients(self) -> list[ClientInstanceDescription]:
        async def ask() -> list[ClientInstanceDescription]:
            async with open_admin(self.bootstrap) as admin:
                return await admin.describe_client_instances(NodeId(1))

        return trio.run(ask)

    def until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until a condition is true; `what` describes it on failure."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not in {PATIENCE_S:g} s"
            time.sleep(0.02)

    def until_dropped(self, count: int) -> None:
        """Wait until the collector has refused exactly a number of pushes."""
        name = f"grpc://127.0.0.1:{self.collector.port}"

        def dropped() -> float:
            (value,) = (
                sample.value
                for sample in self.scraped.samples("ottla_telemetry_exporter_pushes_total")
                if (sample.labels["exporter"], sample.labels["outcome"]) == (name, "dropped")
            )
            return float(value)

        self.until(lambda: dropped() == count, "pushes dropped")

    def seconds_until(
        self, client: str, name: str, value: float, meanwhile: Callable[[], object]
    ) -> dict[str, float]:
        """Return the time after which each export path has a value."""
        began = time.monotonic()
        found: dict[str, float] = {}
        while len(found) < len(self.ways):
            meanwhile()
            for key, way in self.ways.items():
                if key not in found and way.latest(client, name) == value:
                    found[key] = time.monotonic() - began
            last = {key: way.latest(client, name) for key, way in self.ways.items()}
            assert time.monotonic() - began < PATIENCE_S, f"{name}: {last}, not {value}"
        return found

    def close(self) -> None:
        self.topic.close()
        self.collector.close()


@pytest.fixture
def reporting(plan_cluster: Callable[..., Any]) -> Iterator[ReportingCluster]:
    found = ReportingCluster(plan_cluster(controllers=1, brokers=1))
    yield found
    found.close()


@pytest.fixture
def reporting_in_short_queues(plan_cluster: Callable[..., Any]) -> Iterator[ReportingCluster]:
    found = ReportingCluster(
        plan_cluster(controllers=1, brokers=1),
        telemetry_queue_max_pushes=str(QUEUE_PUSHES_MAX),
        metrics_otlp_interval_ms="3600000",  # nothing of the node's own in the queue
    )
    yield found
    found.close()


def test_what_a_client_sees_leaves_by_three_ways_within_an_interval_and_a_second(
    reporting: ReportingCluster,
) -> None:
    reporting.cluster.ottla("topic", "create", "t", "--partitions=3")
    reporting.ask_for("*")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": reporting.bootstrap,
            "client.id": "till",
            "group.id": "g",
        }
    )
    reporting.seconds_until("till", ASSIGNED, 0, lambda: consumer.poll(0.01))
    took = seconds_to_tell_an_assignment(reporting, consumer)
    # What it said as a member of nothing has gone: a sum over clients counts nothing twice.
    assert reporting.scraped.rows("till", ASSIGNED) == [3]
    rebalanced_ms = reporting.collector.latest("till", REBALANCED) or 0
    assert rebalanced_ms > 0
    reporting.seconds_until("till", REBALANCED, rebalanced_ms, lambda: consumer.poll(0.01))

    # A machine with much other work delays some way in a round, but none in every one.
    rounds = [took]
    while max(best(rounds).values()) > INTERVAL_S + SLACK_S and len(rounds) < ROUNDS_MAX:
        consumer.unsubscribe()
        reporting.seconds_until("till", ASSIGNED, 0, lambda: consumer.poll(0.01))
        rounds.append(seconds_to_tell_an_assignment(reporting, consumer))
    assert max(best(rounds).values()) <= INTERVAL_S + SLACK_S, rounds
    (client,) = reporting.clients()
    assert client.software_name == "confluent-kafka-python"
    assert (client.client_id, client.last_error) == ("till", ErrorCode.NONE)
    shown = reporting.cluster.ottla("metrics", "clients").stdout
    # A long cell continues on the next line, which begins with spaces.
    header, row = [line for line in shown.splitlines() if not line.startswith(" ")]
    assert header.startswith("CLIENT-INSTANCE")
    assert row.split()[1] == "till"
    consumer.close()
    # Its last words are taken in, and then nothing is left of it but what was sent on.
    reporting.until(lambda: not reporting.clients(), "the client to be gone")
    assert reporting.scraped.latest("till", ASSIGNED) is None


def best(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the shortest time of each path over all rounds."""
    return {way: min(one[way] for one in rounds) for way in rounds[0]}


def seconds_to_tell_an_assignment(reporting: ReportingCluster, consumer: Any) -> dict[str, float]:
    """Have a consumer join its group; return the time until each path reports three partitions."""
    assigned: list[int] = []
    consumer.subscribe(["t"], on_assign=lambda _, partitions: assigned.append(len(partitions)))
    reporting.until(lambda: consumer.poll(0.01) or assigned, "an assignment")
    return reporting.seconds_until("till", ASSIGNED, 3, lambda: consumer.poll(0.01))


class ByHand:
    """A client on one connection whose every push is written in the test."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self.asked = GetTelemetrySubscriptionsResponse()

    async def ask(self) -> None:
        """Start as an unknown client."""
        self.asked = await self._connection.request(
            GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse
        )
        assert self.asked.error_code == ErrorCode.NONE

    async def push(self, metrics: bytes, **changes: Any) -> PushTelemetryResponse:
        fields = {
            "client_instance_id": self.asked.client_instance_id,
            "subscription_id": self.asked.subscription_id,
            "metrics": metrics,
        }
        request = PushTelemetryRequest(**{**fields, **changes})
        return await self._connection.request(request, PushTelemetryResponse)


def sent(value: int) -> bytes:
    """Return a push that reports a number of further sent bytes."""
    total = Sum(
        data_points=[NumberDataPoint(as_int=value)],
        is_monotonic=True,
        aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA,
    )
    scopes = [ScopeMetrics(metrics=[Metric(name=SENT, sum=total)])]
    return MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=scopes)]).SerializeToString()


async def test_every_way_has_the_same_sum_also_of_what_was_pushed_while_a_collector_was_away(
    reporting: ReportingCluster,
) -> None:
    amounts = [1_000, 20, 300, 4, 50_000]
    await trio.to_thread.run_sync(reporting.ask_for, "*")
    ((host, port),) = parse_bootstrap(reporting.bootstrap)
    async with open_connection(host, port, client_id="hand") as connection:
        client = ByHand(connection)
        await client.ask()
        for index, amount in enumerate(amounts):
            if index == 1:
                await trio.to_thread.run_sync(reporting.collector.close)
            if index == 4:
                reporting.collector.open()
            assert (await client.push(sent(amount))).error_code == ErrorCode.NONE
            await trio.sleep(INTERVAL_S)
        await trio.to_thread.run_sync(
            reporting.seconds_until, "hand", SENT, sum(amounts), lambda: None
        )


async def test_a_collector_away_for_longer_than_its_queue_holds_costs_the_oldest_which_are_counted(
    reporting_in_short_queues: ReportingCluster,
) -> None:
    reporting, pushed = reporting_in_short_queues, QUEUE_PUSHES_MAX + 5
    interval_s = INTERVAL_S / 4
    await trio.to_thread.run_sync(reporting.ask_for, "*", interval_s)
    await trio.to_thread.run_sync(reporting.collector.close)
    ((host, port),) = parse_bootstrap(reporting.bootstrap)
    async with open_connection(host, port, client_id="hand") as connection:
        client = ByHand(connection)
        await client.ask()
        for index in range(pushed):
            with trio.fail_after(PATIENCE_S):
                assert (await client.push(sent(10**index))).error_code == ErrorCode.NONE
            await trio.sleep(interval_s)
        newest = sum(10**index for index in range(pushed - QUEUE_PUSHES_MAX, pushed))
        await trio.to_thread.run_sync(reporting.until_dropped, pushed - QUEUE_PUSHES_MAX)
        reporting.collector.open()
        await trio.to_thread.run_sync(
            reporting.until, lambda: reporting.collector.latest("hand", SENT) == newest, "recovery"
        )


def test_a_change_and_a_delete_reach_a_client_with_its_next_request(
    reporting: ReportingCluster,
) -> None:
    reporting.ask_for(f"{PRODUCER}connection")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": reporting.bootstrap, "client.id": "shop"}
    )
    created = PRODUCER + CREATED
    reporting.until(lambda: reporting.collector.latest("shop", created) is not None, "a first push")

    reporting.ask_for(f"{PRODUCER}record.queue")

    def is_asked_for(*metrics: str) -> bool:
        return [one.metrics for one in reporting.clients()] == [metrics]

    reporting.until(lambda: is_asked_for(f"{PRODUCER}record.queue"), "the change")
    reporting.collector.values.names.clear()
    queued = f"{PRODUCER}record.queue.time.avg"
    reporting.until(lambda: reporting.collector.values.names, "a next push")
    names = set(reporting.collector.values.names)
    assert all(name.startswith(f"{PRODUCER}record.queue") for name in names), names
    assert reporting.scraped.latest("shop", PRODUCER + CREATED) is None

    reporting.cluster.ottla("metrics", "subscriptions", "delete", "all")

    reporting.until(lambda: is_asked_for(), "the delete")
    (client,) = reporting.clients()
    time.sleep(2 * INTERVAL_S)
    (later,) = reporting.clients()
    assert later.push_count == client.push_count
    assert reporting.scraped.latest("shop", queued) is None
    del producer


def test_the_telemetry_of_a_client_that_is_killed_goes_away(
    reporting: ReportingCluster, tmp_path: Path
) -> None:
    script = tmp_path / "doomed.py"
    script.write_text(ENDLESS_PRODUCER)
    reporting.ask_for("*")
    client = subprocess.Popen([*command_of(script), reporting.bootstrap])
    try:
        reporting.until(
            lambda: reporting.scraped.latest("doomed", PRODUCER + CREATED) is not None, "a push"
        )
        assert [one.client_id for one in reporting.clients()] == ["doomed"]
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()

    def is_gone() -> bool:
        return reporting.scraped.latest("doomed", PRODUCER + CREATED) is None

    reporting.until(is_gone, "the client to be gone")
    assert reporting.clients() == []


def bombs() -> Iterator[tuple[int, bytes]]:
    """Yield pushes that are small when compressed and a GiB uncompressed, with their codecs."""
    zeros = bytes(MIB)
    gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
    zstd = zstandard.ZstdCompressor().compressobj()
    for codec, packer in ((GZIP, gzip), (ZSTD, zstd)):
        packed = b"".join([packer.compress(zeros) for _ in range(GIB // MIB)] + [packer.flush()])
        assert len(packed) <= MIB
        yield codec, packed


def peak_rss_bytes(pid: int) -> int:
    """Return the peak memory of a process since the last call."""
    status = Path(f"/proc/{pid}/status").read_text()
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1_024


async def test_a_bad_push_gets_its_own_error_the_connection_lives_and_no_memory_is_spent(
    reporting: ReportingCluster,
) -> None:
    good = sent(1)
    rows: list[tuple[bytes, dict[str, Any], ErrorCode]] = [
        (good, {}, ErrorCode.NONE),
        (good, {"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        (good, {"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(MIB + 1), {}, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"\xff nonsense", {}, ErrorCode.INVALID_RECORD),
        (good, {"compression_type": ZSTD}, ErrorCode.INVALID_RECORD),
        *(
            (packed, {"compression_type": codec}, ErrorCode.TELEMETRY_TOO_LARGE)
            for codec, packed in bombs()
        ),
    ]
    await trio.to_thread.run_sync(reporting.ask_for, "*")
    pid = reporting.cluster.pid("broker")
    ((host, port),) = parse_bootstrap(reporting.bootstrap)
    async with open_connection(host, port, client_id="hand") as connection:
        client = ByHand(connection)
        await client.ask()
        assert (await client.push(good)).error_code == ErrorCode.NONE
        early = await client.push(good)
        assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < early.throttle_time_ms <= INTERVAL_S * 1_000
        peak_rss_bytes(pid)
        before = peak_rss_bytes(pid)
        for metrics, changes, code in rows:
            await client.ask()
            answer = await client.push(metrics, **changes)
            assert ErrorCode(answer.error_code) is code, changes
        assert peak_rss_bytes(pid) - before < BOMB_RSS_BYTES_MAX
        assert (await client.push(good, terminating=True)).error_code == ErrorCode.NONE
        assert (await client.push(good)).error_code == ErrorCode.INVALID_REQUEST


def test_brokers_count_the_bytes_that_were_sent(reporting: ReportingCluster) -> None:
    reporting.cluster.ottla("topic", "create", "t", "--partitions=2")
    producer = confluent_kafka.Producer({"bootstrap.servers": reporting.bootstrap})
    for _ in range(1_000):
        producer.produce("t", b"x" * 100)
    assert producer.flush(PATIENCE_S) == 0

    def total(name: str) -> int:
        samples = reporting.scraped.samples(name)
        return sum(int(one.value) for one in samples if one.labels.get("topic") == "t")

    logs = Path(reporting.cluster.node("broker").dir).glob("t-*/*.log")
    written = sum(path.stat().st_size for path in logs)
    assert total("kafka_server_brokertopicmetrics_bytesin_total") == written > 100_000
    assert total("kafka_server_brokertopicmetrics_messagesin_total") == 1_000
    assert total("kafka_log_log_size") == written
