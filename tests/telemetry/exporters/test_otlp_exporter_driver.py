"""Real collectors on loopback, gRPC and HTTP: delivery, the cost of an outage, and Retry-After."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
import trio
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]  # no stubs
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # it ships none
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.model.settings.telemetry.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import decode, label
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict
from ottla.telemetry.exporters.otlp_exporter_driver import OtlpExporter, OtlpSender, open_sender
from ottla.telemetry.exporters.otlp_http_driver import retry_after_ms

Build = Callable[..., Any]


class WatchedSender:
    """A sender that also passes the outcome of each batch to a test, in real time."""

    def __init__(self, sender: OtlpSender) -> None:
        self._sender = sender
        self._tell, self.outcomes = trio.open_memory_channel[ExportOutcome](1_000)

    async def send(self, body: bytes) -> ExportOutcome:
        outcome = await self._sender.send(body)
        self._tell.send_nowait(outcome)
        return outcome

    def close(self) -> None:
        self._sender.close()


class HalfChance:
    """Chance that always says a half."""

    def random(self) -> float:
        return 0.5


@pytest.fixture
def make_push(labels_of: Build, counter: Build, pushed: Build) -> Callable[[int], LabelledPush]:
    """Return a push whose only value is its number."""

    def make(number: int) -> LabelledPush:
        data = decode(pushed(counter("org.apache.kafka.producer.record.send.total", number)))
        return LabelledPush(labels_of(number), number, label(data, labels_of(number)))

    return make


def open_exporter(endpoint: OtlpEndpoint, **settings: Any) -> tuple[OtlpExporter, WatchedSender]:
    config = ExporterConfig(linger_ms=0, **settings)  # virtual time is for the back-off
    watched = WatchedSender(open_sender(endpoint, config))
    rng: Any = HalfChance()
    return OtlpExporter(endpoint, config, rng, sender=watched), watched


async def until_sent(clock: MockClock, watched: WatchedSender) -> int:
    """Let virtual time pass until a batch is delivered; return the number of failures before."""
    failures = 0
    while True:
        await wait_all_tasks_blocked()
        clock.jump(10)
        if (await watched.outcomes.receive()).verdict is ExportVerdict.SENT:
            return failures
        failures += 1


async def test_pushes_arrive_whole_with_their_labels(
    collector: Any,
    labels_of: Build,
    make_push: Callable[[int], LabelledPush],
    nursery: trio.Nursery,
    mock_clock: MockClock,
) -> None:
    exporter, watched = open_exporter(collector.endpoint())
    nursery.start_soon(exporter.run)
    exporter.offer([make_push(1), make_push(2)])

    assert await until_sent(mock_clock, watched) == 0

    (request,) = collector.requests
    assert collector.values() == [1, 2]
    for number, part in enumerate(request.resource_metrics, 1):
        attributes = {pair.key: pair.value.string_value for pair in part.resource.attributes}
        assert attributes == dict(labels_of(number).pairs())
    await wait_all_tasks_blocked()
    assert exporter.counts()["sent"] == 2
    assert exporter.name == f"{collector.scheme}://127.0.0.1:{collector.port}"


async def test_a_collector_that_is_down_and_back_costs_only_what_the_queue_cannot_hold(
    collector: Any,
    make_push: Callable[[int], LabelledPush],
    nursery: trio.Nursery,
    mock_clock: MockClock,
) -> None:
    exporter, watched = open_exporter(collector.endpoint(), queue_pushes_max=5)
    nursery.start_soon(exporter.run)
    exporter.offer([make_push(0)])
    await until_sent(mock_clock, watched)
    collector.down()

    for number in range(1, 9):
        exporter.offer([make_push(number)])
    for failures in (1, 2, 3):
        assert (await watched.outcomes.receive()).verdict is ExportVerdict.RETRY
        await wait_all_tasks_blocked()
        if failures < 3:
            mock_clock.jump(10)
    counts = exporter.counts()
    assert (counts["queued"], counts["dropped"], counts["failures"]) == (5, 3, 3)

    collector.up()
    await until_sent(mock_clock, watched)

    assert collector.values() == [0, 4, 5, 6, 7, 8]
    await wait_all_tasks_blocked()
    counts = exporter.counts()
    assert (counts["sent"], counts["queued"], counts["dropped"]) == (6, 0, 3)


async def test_offering_to_a_collector_that_hangs_costs_nothing_and_ends_with_the_timeout(
    make_push: Callable[[int], LabelledPush], nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    with trio.socket.socket() as listening:  # connects, and never says a word
        await listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        for scheme in ("grpc", "http"):
            silent = OtlpEndpoint(scheme, *listening.getsockname())
            exporter, watched = open_exporter(silent, otlp_timeout_ms=200)
            nursery.start_soon(exporter.run)
            exporter.offer([make_push(1)])
            await wait_all_tasks_blocked()
            mock_clock.jump(1)
            assert (await watched.outcomes.receive()).verdict is ExportVerdict.RETRY
    nursery.cancel_scope.cancel()


async def send_once(collector: Any, **settings: Any) -> ExportOutcome:
    sender = open_sender(collector.endpoint(), ExporterConfig(**settings))
    try:
        return await sender.send(b"")
    finally:
        sender.close()


async def test_headers_are_sent_and_the_body_is_packed_when_that_is_set(
    collector: Any, make_push: Callable[[int], LabelledPush]
) -> None:
    config = ExporterConfig(otlp_headers=(("authorization", "Bearer x"),), otlp_compression="gzip")
    sender = open_sender(collector.endpoint(), config)
    outcome = await sender.send(make_push(7).otlp)
    sender.close()
    assert outcome.verdict is ExportVerdict.SENT
    assert collector.values() == [7]
    (headers,) = collector.headers
    assert headers["authorization"] == "Bearer x"
    if collector.scheme == "http":
        assert headers["content-encoding"] == "gzip"
        assert headers["content-type"] == "application/x-protobuf"


async def test_points_rejected_by_a_collector_are_reported(collector: Any) -> None:
    collector.rejected_points = 3
    outcome = await send_once(collector)
    assert (outcome.verdict, outcome.rejected_points) == (ExportVerdict.SENT, 3)


def wanting(seconds: int) -> bytes:
    """Return what a gRPC collector adds to a refusal that may be tried again."""
    status = Status(code=8)
    info = RetryInfo()
    info.retry_delay.FromSeconds(seconds)
    status.details.add().Pack(info)
    data: bytes = status.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("refusal", "verdict", "retry_after_ms"),
    [
        ((grpc.StatusCode.UNAVAILABLE, None), ExportVerdict.RETRY, None),
        ((grpc.StatusCode.UNAVAILABLE, wanting(7)), ExportVerdict.RETRY, 7_000),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, wanting(3)), ExportVerdict.RETRY, 3_000),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, None), ExportVerdict.REFUSED, None),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, b"\xff"), ExportVerdict.REFUSED, None),
        ((grpc.StatusCode.INVALID_ARGUMENT, None), ExportVerdict.REFUSED, None),
        ((grpc.StatusCode.UNAUTHENTICATED, None), ExportVerdict.REFUSED, None),
    ],
)
@pytest.mark.parametrize("collector", ["grpc"], indirect=True)
async def test_grpc_refusals_are_tried_again_as_otlp_says(
    collector: Any, refusal: Any, verdict: ExportVerdict, retry_after_ms: int | None
) -> None:
    collector.refusal = refusal
    outcome = await send_once(collector)
    assert (outcome.verdict, outcome.retry_after_ms) == (verdict, retry_after_ms)
    assert outcome.why == f"{refusal[0].name}: planted"


@pytest.mark.parametrize(
    ("refusal", "verdict", "wanted_ms"),
    [
        ((503, None), ExportVerdict.RETRY, None),
        ((503, "7"), ExportVerdict.RETRY, 7_000),
        ((429, "3"), ExportVerdict.RETRY, 3_000),
        ((429, "soon"), ExportVerdict.RETRY, None),
        ((502, None), ExportVerdict.RETRY, None),
        ((504, None), ExportVerdict.RETRY, None),
        ((400, None), ExportVerdict.REFUSED, None),
        ((404, None), ExportVerdict.REFUSED, None),
        ((500, None), ExportVerdict.REFUSED, None),
    ],
)
@pytest.mark.parametrize("collector", ["http"], indirect=True)
async def test_http_refusals_are_tried_again_as_otlp_says(
    collector: Any, refusal: Any, verdict: ExportVerdict, wanted_ms: int | None
) -> None:
    collector.refusal = refusal
    outcome = await send_once(collector)
    assert (outcome.verdict, outcome.retry_after_ms) == (verdict, wanted_ms)


def test_a_date_to_come_again_at_is_a_wait() -> None:
    now = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after_ms("Sun, 01 Mar 2026 12:00:30 GMT", now) == 30_000
    assert retry_after_ms("Sun, 01 Mar 2026 11:00:00 GMT", now) == 0


def test_a_wait_of_thousands_of_digits_is_a_long_one() -> None:
    assert retry_after_ms("9" * 5_000, datetime(2026, 3, 1, tzinfo=UTC)) == 999_999_999_000


@pytest.mark.parametrize("collector", ["grpc"], indirect=True)
async def test_a_call_ends_when_the_node_stops(
    collector: Any, make_push: Callable[[int], LabelledPush]
) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def hold(request: Any, context: Any) -> Any:
        is_in.set()
        may_go.wait(240)
        return ExportMetricsServiceResponse()

    collector.Export = hold
    collector.down()
    collector.up()
    exporter, _ = open_exporter(collector.endpoint(), otlp_timeout_ms=240_000)
    exporter.offer([make_push(1)])
    try:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(exporter.run)
                await trio.to_thread.run_sync(is_in.wait, 60)
                nursery.cancel_scope.cancel()
    finally:
        may_go.set()
