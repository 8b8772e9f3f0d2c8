"""Load generator of client telemetry: its pushes report the load that it sends, and every response
is counted."""

import os
from functools import partial

import pytest
import trio

from ottla.bench.client_metrics import telemetry_beside
from ottla.bench.client_metrics.telemetry import run_telemetry
from ottla.bench.client_metrics.telemetry_beside import PushPhase, cost_of_push_s, run_beside
from ottla.bench.client_metrics.telemetry_payload import payload_of
from ottla.bench.requests import RequestLatency
from ottla.client import open_admin
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.telemetry.clients.otlp import decode, points_of

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


async def test_an_unrequested_load_is_refused(ottla_cluster: ClusterUnderTest) -> None:
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


async def test_a_producer_is_measured_with_pushes_and_without(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_beside, "PHASE_S", 0.5)
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.set_metrics_subscription("bench", metrics=["*"], interval_ms=INTERVAL_MS)
        await admin.create_topic("beside", partition_count=1)

        figures = await trio.to_thread.run_sync(
            partial(
                run_beside,
                parse_bootstrap(ottla_cluster.bootstrap)[0],
                clients=CLIENTS,
                seconds=2.0,
                rate=50,
                topic="beside",
                pids=[os.getpid()],
                progress=lambda _: None,
            )
        )

    assert figures["phases"] == 4
    # At their full rate from the first phase on, in two of four; timers may be late.
    assert 0.5 <= figures["pushes_per_second"] * INTERVAL_MS / 1e3 / CLIENTS <= 1.1
    assert (figures["lost"], figures["codes"]) == (0, {"NONE": figures["pushes"]})
    assert figures["produce_p99_ms_with"] >= figures["produce_p50_ms_with"] > 0
    assert figures["produce_p99_ms_without"] >= figures["produce_p50_ms_without"] > 0
    assert "push_loop_us_each" in figures


def test_a_push_costs_what_a_phase_with_pushes_takes_more_than_one_without() -> None:
    phases = [
        PushPhase(False, began_at=0, ended_at=4, pushes=0, loop_s=0.4),
        PushPhase(True, began_at=4, ended_at=8, pushes=1_000, loop_s=0.5),
        PushPhase(True, began_at=8, ended_at=16, pushes=2_000, loop_s=1.0),
        PushPhase(False, began_at=16, ended_at=20, pushes=0, loop_s=0.4),
    ]
    assert cost_of_push_s(phases) == pytest.approx(100e-6)
    assert cost_of_push_s(phases[:1]) == 0


def test_requests_count_into_the_phase_they_were_sent_in_once_it_has_settled() -> None:
    phase = PushPhase(True, began_at=10, ended_at=14, pushes=1, loop_s=0)
    waited = [RequestLatency(at, at / 1e3) for at in (9.9, 10.1, 13.9, 12, 14.1)]
    assert phase.waits_ms(waited) == pytest.approx([12, 13.9])
