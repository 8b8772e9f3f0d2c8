"""Our clients' metrics at Kafka's own broker, beside those that Java's clients push (KIP-714).

If OTTLA_KAFKA_JARS names a directory with the jars of a Kafka release, a plug-in is compiled for
its broker, which writes down every accepted push.
"""

import os
import subprocess
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.bench.kafka.kafka_server import java_program, open_kafka
from ottla.client import (
    Admin,
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ProducerConfig,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.model.ids import uuid_text
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from tests.client.telemetry.test_metric_points import STANDARD_OF_CONSUMERS, STANDARD_OF_PRODUCERS

JARS = "OTTLA_KAFKA_JARS"
PLUG_IN = Path(__file__).with_name("CollectedTelemetry.java")
TIMEOUT_S = 120
RECORDS = 100

NOT_OF_JAVA = {"request.latency.avg", "request.latency.max", "fetch.manager.records.lag"}
"""Names that not each kind of Java's clients has: its producer has the first two, as librdkafka's,
and a consumer has the last one only after it fetched."""

pytestmark = pytest.mark.timeout(300)


class PushedPoints(NamedTuple):
    """One push that Kafka's broker accepted."""

    client_id: str
    instance_id: str
    is_last: bool
    data: MetricsData

    @property
    def sums(self) -> dict[str, float]:
        return {
            metric.name: metric.sum.data_points[0].as_int
            for part in self.data.resource_metrics
            for metric in part.scope_metrics[0].metrics
            if metric.HasField("sum") and metric.sum.data_points
        }

    @property
    def names(self) -> set[str]:
        return {
            metric.name
            for part in self.data.resource_metrics
            for metric in part.scope_metrics[0].metrics
        }


class Broker(NamedTuple):
    """Kafka's broker, and where its plug-in writes."""

    bootstrap: str
    file: Path
    jars: Path

    def pushed(self, client_id: str) -> list[PushedPoints]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        found = [line.split(" ") for line in lines]
        return [
            PushedPoints(one, instance, last == "true", MetricsData.FromString(b64decode(data[1:])))
            for one, instance, last, data in found
            if one == client_id
        ]

    async def until_pushed(self, client_id: str, count: int) -> list[PushedPoints]:
        with trio.fail_after(TIMEOUT_S):
            while len(found := self.pushed(client_id)) < count:
                await trio.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    given = os.environ.get(JARS)
    if not given:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's broker was NOT reported to here")
    directory = tmp_path_factory.mktemp("kafka")
    jars, classes, file = directory / "jars", directory / "classes", directory / "pushed"
    jars.mkdir()
    for jar in Path(given).glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    subprocess.run(
        ["javac", "-Xlint:-removal", "-d", str(classes), "-cp", f"{given}/*", str(PLUG_IN)],
        check=True,
        timeout=300,
    )
    with zipfile.ZipFile(jars / "collected.jar", "w") as made:
        for one in classes.glob("*.class"):
            made.write(one, one.name)
    settings = {
        "metric.reporters": "CollectedTelemetry",
        "collected.telemetry": str(file),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    with open_kafka(jars, directory, settings) as server:
        yield Broker(server.bootstrap, file, jars)


async def subscribe(broker: Broker) -> None:
    async with open_admin(broker.bootstrap) as admin:
        await admin.alter_configs(
            ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
            {"metrics": "*", "interval.ms": "500"},
        )
        # A client that asks before the broker has it asks again after five minutes.
        with trio.fail_after(TIMEOUT_S):
            while not await wanted(admin):
                await trio.sleep(0.1)


async def wanted(admin: Admin) -> list[str]:
    request = GetTelemetrySubscriptionsRequest()
    answer = await admin.cluster.request(request, GetTelemetrySubscriptionsResponse)
    return answer.requested_metrics


def standard(prefix: str, names: set[str]) -> set[str]:
    return {f"org.apache.kafka.{prefix}.{name}" for name in names}


async def test_kafkas_broker_accepts_what_our_clients_push(broker: Broker) -> None:
    await subscribe(broker)
    config = ProducerConfig(client_id="our-producer")
    async with open_producer(broker.bootstrap, config) as producer:
        for _ in range(RECORDS):
            await producer.send("t", b"x")
        await producer.flush()
        instance_id = uuid_text(await producer.client_instance_id(TIMEOUT_S))
        await broker.until_pushed("our-producer", 2)
    found = broker.pushed("our-producer")
    assert {one.instance_id for one in found} == {instance_id}
    assert standard("producer", STANDARD_OF_PRODUCERS) <= found[0].names
    sent = [one.sums["org.apache.kafka.producer.record.send.total"] for one in found]
    assert sum(sent) == RECORDS, "deltas add up"
    assert [one.is_last for one in found] == [False] * (len(found) - 1) + [True]

    member = ConsumerConfig(client_id="our-consumer", group_id="g", auto_offset_reset="earliest")
    async with open_consumer(broker.bootstrap, member) as consumer:
        consumer.subscribe(["t"])
        assert await consumer.poll(TIMEOUT_S)
        await broker.until_pushed("our-consumer", 2)
    found = broker.pushed("our-consumer")
    assert standard("consumer", STANDARD_OF_CONSUMERS) <= found[-1].names
    attributes = found[-2].data.resource_metrics[0].resource.attributes
    assert {"group_id", "group_member_id"} <= {one.key for one in attributes}
    assert found[-1].is_last


async def test_our_metrics_have_the_names_of_javas(broker: Broker) -> None:
    await subscribe(broker)
    java = [java_program(os.environ), "-Xmx256m", "-cp", f"{broker.jars}/*"]
    names: dict[str, set[str]] = {}
    for kind, program, more in (
        ("producer", "ConsoleProducer", ["--command-property", "client.id=java-producer"]),
        (
            "consumer",
            "consumer.ConsoleConsumer",
            ["--command-property", "client.id=java-consumer", "--group", "java"],
        ),
    ):
        arguments = ["--bootstrap-server", broker.bootstrap, "--topic", "t", *more]
        with subprocess.Popen(
            [*java, f"org.apache.kafka.tools.{program}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            assert child.stdin is not None
            try:
                child.stdin.write(b"x\n" * RECORDS)
                child.stdin.flush()
                found = await broker.until_pushed(f"java-{kind}", 3)
            finally:
                child.terminate()
        names[kind] = set().union(*(one.names for one in found))
    for kind, found_names in names.items():
        ours = set().union(*(one.names for one in broker.pushed(f"our-{kind}")))
        prefix = f"org.apache.kafka.{kind}."
        assert ours, "the test before this one pushed them"
        strange = {name.removeprefix(prefix) for name in ours - found_names}
        assert strange <= NOT_OF_JAVA
