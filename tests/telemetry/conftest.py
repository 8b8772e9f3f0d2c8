"""Pushes of a client, built with OpenTelemetry's own messages, and collectors that listen."""

import gzip
import ssl
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla.model.settings.telemetry.exporters import OtlpEndpoint, parse_otlp_endpoints
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.otlp import Point, decode, points_of

DELTA, CUMULATIVE = 1, 2


@pytest.fixture
def labels_of() -> Callable[..., ClientLabels]:
    """Return the labels of the n-th client, any of them replaced."""

    def make(number: int = 1, **replaced: Any) -> ClientLabels:
        labels = ClientLabels(
            client_instance_id=UUID(int=1_000 + number),
            client_id=f"app-{number}",
            principal="User:ANONYMOUS",
            software_name="librdkafka",
            software_version="2.16.1",
            source_address="127.0.0.1",
            broker_id=1,
        )
        return labels._replace(**replaced)

    return make


@pytest.fixture
def counter() -> Callable[..., Metric]:
    """Return a monotonic sum with one point."""

    def make(name: str, value: float, *, is_delta: bool = True, **attributes: str) -> Metric:
        metric = Metric(name=name, unit="1")
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = DELTA if is_delta else CUMULATIVE  # type: ignore[assignment]
        point = metric.sum.data_points.add(start_time_unix_nano=5, time_unix_nano=9)
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        point.attributes.extend(attribute(name, text) for name, text in attributes.items())
        return metric

    return make


@pytest.fixture
def gauge() -> Callable[..., Metric]:
    """Return a gauge with one point."""

    def make(name: str, value: float, **attributes: str) -> Metric:
        metric = Metric(name=name)
        point = metric.gauge.data_points.add(as_double=value, time_unix_nano=9)
        point.attributes.extend(attribute(name, text) for name, text in attributes.items())
        return metric

    return make


@pytest.fixture
def pushed() -> Callable[..., bytes]:
    """Return what a client sends: one resource, as librdkafka, or one a metric, as Java."""

    def make(*metrics: Metric, like_java: bool = False, **of_resource: str) -> bytes:
        data = MetricsData()
        for group in [[metric] for metric in metrics] if like_java else [metrics]:
            part = data.resource_metrics.add()
            part.resource.attributes.extend(
                attribute(name, text) for name, text in of_resource.items()
            )
            part.scope_metrics.add().metrics.extend(group)
        return data.SerializeToString()

    return make


def attribute(name: str, text: str) -> KeyValue:
    pair = KeyValue(key=name)
    pair.value.string_value = text
    return pair


class Collector(ABC):
    """Requests to a collector, and its responses; the two below listen."""

    scheme = ""

    def __init__(self) -> None:
        self.port = 0
        self.certificate: Path | None = None
        """Its key and certificate, where it is encrypted; set before it listens."""
        self.clients_ca: Path | None = None
        """Authority of the client certificates, if required."""
        self.traces: Any = None
        """The service of traces, if the collector has one."""
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.refusal: Any = None
        self.rejected_points = 0

    def endpoint(self) -> OtlpEndpoint:
        (endpoint,) = parse_otlp_endpoints(
            f"{self.scheme}{'s' * bool(self.certificate)}://127.0.0.1:{self.port}"
        )
        return endpoint

    def points(self) -> list[Point]:
        """Return every point that came, in order."""
        return [
            point
            for request in self.requests
            for point in points_of(decode(request.SerializeToString()))
        ]

    def values(self) -> list[Any]:
        """Return the value of every point that came, in order."""
        return [point.value for point in self.points()]

    def response(self) -> ExportMetricsServiceResponse:
        response = ExportMetricsServiceResponse()
        response.partial_success.rejected_data_points = self.rejected_points
        return response

    @abstractmethod
    def up(self) -> None:
        """Listen, on the port it had."""

    @abstractmethod
    def down(self) -> None:
        """Stop listening."""


class GrpcCollector(Collector, metrics_service_pb2_grpc.MetricsServiceServicer):
    scheme = "grpc"
    server: Any = None

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the service's name
        self.headers.append({item.key: item.value for item in context.invocation_metadata()})
        if self.refusal is not None:
            code, details = self.refusal
            if details is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(code, "planted")
        self.requests.append(request)
        return self.response()

    def up(self) -> None:
        self.server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        register: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
        register(self, self.server)
        if self.traces is not None:
            take: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
            take(self.traces, self.server)
        address = f"127.0.0.1:{self.port}"
        if self.certificate is None:
            self.port = self.server.add_insecure_port(address)
        else:
            pem = self.certificate.read_bytes()
            trusted = None if self.clients_ca is None else self.clients_ca.read_bytes()
            credentials = grpc.ssl_server_credentials(
                [(pem, pem[pem.index(b"-----BEGIN CERT") :])], trusted, trusted is not None
            )
            self.port = self.server.add_secure_port(address, credentials)
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
        self.server.handle_error = lambda *_: None  # a client that does not trust it
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            if self.clients_ca is not None:
                context.load_verify_locations(self.clients_ca)
                context.verify_mode = ssl.CERT_REQUIRED
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
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
        if status == 200 and handler.path == "/v1/traces":
            self.traces.Export(ExportTraceServiceRequest.FromString(body), None)
        elif status == 200:
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


MADE: dict[str, type[Collector]] = {"grpc": GrpcCollector, "http": HttpCollector}


@pytest.fixture(params=sorted(MADE))
def collector(request: pytest.FixtureRequest) -> Iterator[Collector]:
    """Return a collector that listens; a test may take it down and up."""
    made = MADE[request.param]()
    made.up()
    yield made
    made.down()


@pytest.fixture
def new_collector() -> Iterator[Callable[[str], Collector]]:
    """Return what makes a collector that is not up yet."""
    made: list[Collector] = []

    def make(scheme: str) -> Collector:
        made.append(MADE[scheme]())
        return made[-1]

    yield make
    for one in made:
        if one.port:
            one.down()


@pytest.fixture(params=sorted(MADE))
def encrypted_collector(
    request: pytest.FixtureRequest, new_collector: Callable[[str], Collector], authority: Any
) -> Collector:
    """Return a collector that will be encrypted and is not up yet."""
    made = new_collector(request.param)
    made.certificate = authority.issue()
    return made


@pytest.fixture
def collectors() -> Iterator[list[Collector]]:
    """Return one collector of each kind."""
    made = [MADE[scheme]() for scheme in sorted(MADE)]
    for one in made:
        one.up()
    yield made
    for one in made:
        one.down()
