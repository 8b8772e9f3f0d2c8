"""The metrics that a whole broker and its controller export to a collector."""

import sys
from importlib.metadata import version
from typing import Any

import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ottla.client import open_admin, open_producer
from ottla.client.network.connection import open_connection
from ottla.client.testing import import_cluster, open_test_cluster
from ottla.model.errors import ConfigError, only_error

import_cluster()

Collector = Any  # the class of the fixture, in conftest.py

TIMEOUT_S = 60
TOPIC = "orders"


def numbers(collector: Collector, role: str) -> dict[tuple[str, str], float]:
    """Return the newest numbers of nodes of a role, by name and topic."""
    found = {}
    for request in collector.metrics:
        for part in request.resource_metrics:
            if text(part.resource, "kafka.node.role") != role:
                continue
            for metric in part.scope_metrics[0].metrics:
                for point in (*metric.sum.data_points, *metric.gauge.data_points):
                    topic = [p.value.string_value for p in point.attributes if p.key == "topic"]
                    value = point.as_int if point.WhichOneof("value") == "as_int" else -1.0
                    found[metric.name, "".join(topic)] = value
    return found


def text(resource: Resource, key: str) -> str:
    return next(pair.value.string_value for pair in resource.attributes if pair.key == key)


async def test_brokers_and_controllers_send_their_numbers(collector: Collector) -> None:
    settings = {"telemetry.otlp.endpoint": collector.endpoint, "metrics.otlp.interval.ms": "200"}
    messages = ("kafka_server_brokertopicmetrics_messagesin_total", TOPIC)
    active = ("kafka_controller_kafkacontroller_activecontrollercount", "")
    async with open_test_cluster(settings=settings) as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partition_count=1)
        async with open_producer(cluster.bootstrap) as producer:
            for _ in range(7):
                await producer.send(TOPIC, b"value")

        with trio.fail_after(TIMEOUT_S):
            while numbers(collector, "broker").get(messages) != 7:
                await trio.sleep(0.05)
            while numbers(collector, "controller").get(active) != 1:
                await trio.sleep(0.05)


async def test_every_request_is_traced_where_all_shall_be(collector: Collector) -> None:
    settings = {
        "telemetry.otlp.endpoint": collector.endpoint,
        "metrics.otlp.interval.ms": "0",
        "telemetry.traces.sample.ratio": "1",
    }
    traces = collector.bodies["/v1/traces"]
    async with open_test_cluster(broker_count=2, settings=settings) as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partition_count=1, replication_factor=2)
        async with open_producer(cluster.bootstrap) as producer:
            await producer.send(TOPIC, b"value")

        with trio.fail_after(TIMEOUT_S):
            while not (waited := [spans for spans in of_traces(traces) if "replicate" in spans]):
                await trio.sleep(0.05)

    assert [*waited[0]] == ["receive", "append", "replicate", "answer", "Produce"]
    *parts, whole = waited[0].values()
    assert whole == sum(parts)
    assert collector.bodies["/v1/metrics"] == []
    resources = [
        part.resource
        for body in traces
        for part in ExportTraceServiceRequest.FromString(body).resource_spans
    ]
    assert {text(resource, "service.name") for resource in resources} == {"ottla"}
    # The other broker may have been asked nothing.
    assert {text(resource, "service.instance.id") for resource in resources} <= {"1", "2"}
    assert {text(resource, "service.version") for resource in resources} == {version("ottla")}


@pytest.mark.parametrize(("ratio", "reads"), [("0", False), ("0.1", True)])
async def test_only_a_broker_that_traces_has_a_use_for_the_contexts_of_clients(
    collector: Collector, ratio: str, reads: bool
) -> None:
    settings = {
        "telemetry.otlp.endpoint": collector.endpoint,
        "telemetry.traces.sample.ratio": ratio,
    }
    async with open_test_cluster(settings=settings) as cluster:
        host, port = cluster.bootstrap.split(":")
        async with open_connection(host, int(port)) as connection:
            assert connection.reads_trace_contexts is reads


async def test_what_waits_is_sent_at_the_stop(collector: Collector) -> None:
    settings = {"telemetry.otlp.endpoint": collector.endpoint, "telemetry.traces.sample.ratio": "1"}
    async with (
        open_test_cluster(settings=settings) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic(TOPIC, partition_count=1)
    assert any("CreateTopics" in spans for spans in of_traces(collector.bodies["/v1/traces"]))


async def test_a_broker_that_is_to_trace_does_not_start_without_the_sdk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    settings = {"telemetry.otlp.endpoint": "grpc://h", "telemetry.traces.sample.ratio": "0.1"}
    with pytest.raises((ConfigError, ExceptionGroup)) as raised:
        async with open_test_cluster(settings=settings):
            pass
    error = only_error(raised.value)
    assert isinstance(error, ConfigError)
    assert error.setting == "telemetry.traces.sample.ratio"
    assert "needs opentelemetry.sdk.trace.export, which is not installed" in error.problem


def of_traces(bodies: list[bytes]) -> list[dict[str, int]]:
    """Return each trace's spans in order, with their durations."""
    found: dict[bytes, dict[str, int]] = {}
    for body in list(bodies):
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in part.scope_spans[0].spans:
                of_trace = found.setdefault(span.trace_id, {})
                of_trace[span.name] = span.end_time_unix_nano - span.start_time_unix_nano
    return list(found.values())
