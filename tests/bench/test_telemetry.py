"""The load of clients that report: what it sends is what it says, and every answer is counted."""

from functools import partial

import pytest
import trio

from ottla.bench.telemetry import run_telemetry
from ottla.bench.telemetry_payload import payload_of
from ottla.client import open_admin
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.telemetry.otlp import decode, points_of

__all__ = ["ottla_cluster"]

CLIENTS = 20
INTERVAL_MS = 200
SECONDS = 1.0


def test_what_is_pushed_is_what_librdkafka_pushes() -> None:
    producer = list(points_of(decode(payload_of(0))))
    consumer = list(points_of(decode(payload_of(1))))

    assert {point.name for point in producer} & {point.name for point in consumer} == set()
    for points, role in ((producer, "producer"), (consumer, "consumer")):
        assert all(point.name.startswith(f"org.apache.kafka.{role}.") for point in points)
        latencies = [point for point in points if "node.request.latency.avg" in point.name]
        assert len({dict(point.attributes)["node.id"] for point in latencies}) == 4
        totals = [point for point in points if point.name.endswith(".total")]
        assert totals
        assert all(point.is_delta and point.is_monotonic for point in totals)


async def test_every_push_is_answered_and_counted(ottla_cluster: ClusterUnderTest) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.set_metrics_subscription("bench", metrics=["*"], interval_ms=INTERVAL_MS)

        result = await trio.to_thread.run_sync(
            partial(
                run_telemetry,
                parse_bootstrap(ottla_cluster.bootstrap)[0],
                clients=CLIENTS,
                seconds=SECONDS,
                pids=[],
                progress=lambda _: None,
            )
        )

    notes = result.notes
    assert (notes["clients"], notes["interval_ms"]) == (CLIENTS, INTERVAL_MS)
    # Each comes first after half to one and a half intervals.
    assert CLIENTS <= notes["sent"] <= CLIENTS * (SECONDS * 1e3 / INTERVAL_MS)
    assert (notes["lost"], notes["hung_up"]) == (0, 0)
    assert result.count == len(result.latencies_ms) == sum(notes["codes"].values())
    assert set(notes["codes"]) == {"NONE"}


async def test_a_load_that_nobody_asks_for_is_refused(ottla_cluster: ClusterUnderTest) -> None:
    with pytest.raises(ConfigError, match="ottla metrics subscriptions set"):
        await trio.to_thread.run_sync(
            partial(
                run_telemetry,
                parse_bootstrap(ottla_cluster.bootstrap)[0],
                clients=1,
                seconds=SECONDS,
                pids=[],
                progress=lambda _: None,
            )
        )
