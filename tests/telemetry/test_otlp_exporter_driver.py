"""Real collectors on loopback, gRPC and HTTP: what arrives, what an outage costs, who is obeyed."""

import gzip
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
import trio
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]  # no stubs
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # it ships none
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.model.settings.exporters import ExporterConfig, OtlpEndpoint, parse_otlp_endpoints
from ottla.telemetry.export_queue import Outcome, Verdict
from ottla.telemetry.exporter import LabelledPush
from ottla.telemetry.otlp import decode, label, points_of
from ottla.telemetry.otlp_exporter_driver import TRACES, OtlpExporter, OtlpSender, open_sender
from ottla.telemetry.otlp_http_driver import retry_after_ms

Build = Callable[..., Any]


class Collector:
    """What a collector got, and how it answers; the two below listen."""

    scheme = ""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.refusal: Any = None
        self.rejected_points = 0

    def endpoint(self) -> OtlpEndpoint:
        (endpoint,) = parse_otlp_endpoints(f"{self.scheme}://127.0.0.1:{self.port}")
        return endpoint

    def values(self) -> list[float]:
        """Return the values of every point, in the order they came."""
        return [
            point.value  # type: ignore[misc]  # none of them is a histogram
            for request in self.requests
            for point in points_of(decode(request.SerializeToString()))
        ]

    def response(self) -> ExportMetricsServiceResponse:
        response = ExportMetricsServiceResponse()
        response.partial_success.rejected_data_points = self.rejected_points
        return response

    def up(self) -> None:
        raise NotImplementedError

    def down(self) -> None:
        raise NotImplementedError


class GrpcCollector(Collector, metrics_service_pb2_grpc.MetricsServiceServicer):
    scheme = "grpc"
    server: Any = None

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the service's name
        self.headers.append({item.key: item.value for item in context.invocation_metadata()})
        if self.refusal is not None:
            code, details = self.refusal
            if details is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(code, "told to")
        self.requests.append(request)
        return self.response()

    def up(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        register: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
        register(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()

    def down(self) -> None:
        self.server.stop(None).wait()


class HttpCollector(Collector):
    scheme = "http"
    server: Any = None

    def up(self) -> None:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.on_post(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def on_post(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.headers.append({name.lower(): text for name, text in handler.headers.items()})
        if handler.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        status, wait = self.refusal or (200, None)
        answer = b""
        if status == 200:
            assert handler.path == "/v1/metrics"
            self.requests.append(ExportMetricsServiceRequest.FromString(body))
            answer = self.response().SerializeToString()
        handler.send_response(status)
        if wait is not None:
            handler.send_header("Retry-After", wait)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def down(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(params=[GrpcCollector, HttpCollector], ids=["grpc", "http"])
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    """Return a collector that listens; a test may take it down and up."""
    made: Collector = request.param()
    made.up()
    yield made
    made.down()


class Watched:
    """A sender that also tells a test what became of each batch, in real time."""

    def __init__(self, sender: OtlpSender) -> None:
        self._sender = sender
        self._tell, self.outcomes = trio.open_memory_channel[Outcome](1_000)

    async def send(self, body: bytes) -> Outcome:
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


def open_exporter(collector: Collector, **settings: Any) -> tuple[OtlpExporter, Watched]:
    config = ExporterConfig(linger_ms=0, **settings)  # virtual time is for the back-off
    watched = Watched(open_sender(collector.endpoint(), config, "metrics"))
    rng: Any = HalfChance()
    return OtlpExporter(collector.endpoint(), config, rng, sender=watched), watched


async def until_sent(clock: MockClock, watched: Watched) -> int:
    """Let virtual time pass until a batch goes through; return the failures before."""
    failures = 0
    while True:
        await wait_all_tasks_blocked()
        clock.jump(10)
        if (await watched.outcomes.receive()).verdict is Verdict.SENT:
            return failures
        failures += 1


async def test_pushes_arrive_whole_with_their_labels(
    collector: Collector,
    labels_of: Build,
    make_push: Callable[[int], LabelledPush],
    nursery: trio.Nursery,
    mock_clock: MockClock,
) -> None:
    exporter, watched = open_exporter(collector)
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
    collector: Collector,
    make_push: Callable[[int], LabelledPush],
    nursery: trio.Nursery,
    mock_clock: MockClock,
) -> None:
    exporter, watched = open_exporter(collector, queue_pushes_max=5)
    nursery.start_soon(exporter.run)
    exporter.offer([make_push(0)])
    await until_sent(mock_clock, watched)
    collector.down()

    for number in range(1, 9):
        exporter.offer([make_push(number)])
    for _ in range(3):
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        assert (await watched.outcomes.receive()).verdict is Verdict.RETRY
    await wait_all_tasks_blocked()
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
            silent = Collector()
            silent.scheme, silent.port = scheme, listening.getsockname()[1]
            exporter, watched = open_exporter(silent, otlp_timeout_ms=200)
            nursery.start_soon(exporter.run)
            exporter.offer([make_push(1)])
            await wait_all_tasks_blocked()
            mock_clock.jump(1)
            assert (await watched.outcomes.receive()).verdict is Verdict.RETRY
    nursery.cancel_scope.cancel()


async def send_once(collector: Collector, **settings: Any) -> Outcome:
    sender = open_sender(collector.endpoint(), ExporterConfig(**settings), "metrics")
    try:
        return await sender.send(b"")
    finally:
        sender.close()


async def test_headers_are_sent_and_the_body_is_packed_when_that_is_set(
    collector: Collector, make_push: Callable[[int], LabelledPush]
) -> None:
    config = ExporterConfig(otlp_headers=(("authorization", "Bearer x"),), otlp_compression="gzip")
    sender = open_sender(collector.endpoint(), config, "metrics")
    outcome = await sender.send(make_push(7).otlp)
    sender.close()
    assert outcome.verdict is Verdict.SENT
    assert collector.values() == [7]
    (headers,) = collector.headers
    assert headers["authorization"] == "Bearer x"
    if isinstance(collector, HttpCollector):
        assert headers["content-encoding"] == "gzip"
        assert headers["content-type"] == "application/x-protobuf"


async def test_points_that_a_collector_leaves_out_are_told(collector: Collector) -> None:
    collector.rejected_points = 3
    outcome = await send_once(collector)
    assert (outcome.verdict, outcome.rejected_points) == (Verdict.SENT, 3)


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
        ((grpc.StatusCode.UNAVAILABLE, None), Verdict.RETRY, None),
        ((grpc.StatusCode.UNAVAILABLE, wanting(7)), Verdict.RETRY, 7_000),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, wanting(3)), Verdict.RETRY, 3_000),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, None), Verdict.REFUSED, None),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, b"\xff"), Verdict.REFUSED, None),
        ((grpc.StatusCode.INVALID_ARGUMENT, None), Verdict.REFUSED, None),
        ((grpc.StatusCode.UNAUTHENTICATED, None), Verdict.REFUSED, None),
    ],
)
@pytest.mark.parametrize("collector", [GrpcCollector], indirect=True)
async def test_grpc_refusals_are_tried_again_as_otlp_says(
    collector: Collector, refusal: Any, verdict: Verdict, retry_after_ms: int | None
) -> None:
    collector.refusal = refusal
    outcome = await send_once(collector)
    assert (outcome.verdict, outcome.retry_after_ms) == (verdict, retry_after_ms)
    assert outcome.why == f"{refusal[0].name}: told to"


@pytest.mark.parametrize(
    ("refusal", "verdict", "wanted_ms"),
    [
        ((503, None), Verdict.RETRY, None),
        ((503, "7"), Verdict.RETRY, 7_000),
        ((429, "3"), Verdict.RETRY, 3_000),
        ((429, "soon"), Verdict.RETRY, None),
        ((502, None), Verdict.RETRY, None),
        ((504, None), Verdict.RETRY, None),
        ((400, None), Verdict.REFUSED, None),
        ((404, None), Verdict.REFUSED, None),
        ((500, None), Verdict.REFUSED, None),
    ],
)
@pytest.mark.parametrize("collector", [HttpCollector], indirect=True)
async def test_http_refusals_are_tried_again_as_otlp_says(
    collector: Collector, refusal: Any, verdict: Verdict, wanted_ms: int | None
) -> None:
    collector.refusal = refusal
    outcome = await send_once(collector)
    assert (outcome.verdict, outcome.retry_after_ms) == (verdict, wanted_ms)


def test_a_date_to_come_again_at_is_a_wait() -> None:
    now = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after_ms("Sun, 01 Mar 2026 12:00:30 GMT", now) == 30_000
    assert retry_after_ms("Sun, 01 Mar 2026 11:00:00 GMT", now) == 0


@pytest.mark.parametrize("collector", [GrpcCollector], indirect=True)
async def test_a_call_ends_when_the_node_stops(
    collector: Collector, make_push: Callable[[int], LabelledPush], nursery: trio.Nursery
) -> None:
    is_in, may_go = threading.Event(), threading.Event()

    def hold(request: Any, context: Any) -> Any:
        is_in.set()
        may_go.wait(10)
        return ExportMetricsServiceResponse()

    collector.Export = hold  # type: ignore[attr-defined]
    collector.down()
    collector.up()
    exporter, _ = open_exporter(collector)
    exporter.offer([make_push(1)])
    nursery.start_soon(exporter.run)
    await trio.to_thread.run_sync(is_in.wait, 10)
    with trio.fail_after(5):
        nursery.cancel_scope.cancel()
    may_go.set()


def test_traces_go_to_their_own_service() -> None:
    endpoints: Sequence[OtlpEndpoint] = parse_otlp_endpoints("grpc://h,http://h/base")
    senders: list[Any] = [open_sender(each, ExporterConfig(), TRACES) for each in endpoints]
    assert [sender._path for sender in senders] == [
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
        "/base/v1/traces",
    ]
