"""The program of docs/telemetry.md, as pasted: one trace at a collector, through the broker.

With `OTTLA_OTELCOL=PROGRAM` it is also sent to an OpenTelemetry collector.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

pytest.importorskip("opentelemetry.sdk")
from ottla.node.local.local_nodes_driver import free_port
from tests.cluster.secure_form import command_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[3] / "docs" / "telemetry.md"
PATIENCE_S = 120
NAME = "service.name"
OTELCOL = os.environ.get("OTTLA_OTELCOL")


class TraceCollector(TraceServiceServicer):
    """OTLP's trace service; keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: list[str] = []
        """The `service.name` of each span's resource."""
        self._server = grpc.server(ThreadPoolExecutor(1))
        # The generated code has no types.
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def Export(  # noqa: N802  # the service's name for it
        self, request: ExportTraceServiceRequest, context: object
    ) -> ExportTraceServiceResponse:
        for part in request.resource_spans:
            names = [at.value.string_value for at in part.resource.attributes if at.key == NAME]
            for scope in part.scope_spans:
                self.services += names * len(scope.spans)
                self.spans += scope.spans
        return ExportTraceServiceResponse()

    def close(self) -> None:
        self._server.stop(None).wait()


@pytest.fixture
def collector() -> Iterator[TraceCollector]:
    found = TraceCollector()
    yield found
    found.close()


def program() -> str:
    """Return the traces example of the page."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if "TracerProvider" in block]
    return str(found)


def run_program(plan_cluster: Any, collector_port: int, tmp_path: Path) -> None:
    """Run the page's example against a cluster that traces little beyond the requests of its
    spans."""
    cluster = plan_cluster(
        controllers=1,
        brokers=1,
        telemetry_otlp_endpoint=f"grpc://127.0.0.1:{collector_port}",
        telemetry_traces_sample_ratio="0.000001",
    )
    cluster.start("controller")
    cluster.start("broker")
    text = program().replace("localhost:9092", cluster.bootstrap)
    text = text.replace("localhost:4317", f"127.0.0.1:{collector_port}")
    script = tmp_path / "shop.py"
    script.write_text(text)
    done = subprocess.run(
        command_of(script), capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("b'one coffee'\n", "")
    cluster.stop_all()


def test_the_program_of_the_page_is_one_trace_through_the_broker(
    plan_cluster: Any, collector: TraceCollector, tmp_path: Path
) -> None:
    run_program(plan_cluster, collector.port, tmp_path)

    spans = {
        (service, span.name): span
        for service, span in zip(collector.services, collector.spans, strict=True)
    }
    assert len(spans) == len(collector.spans)
    sent, asked = spans["shop", "send orders"], spans["shop", "Produce"]
    polled, processed = spans["shop", "poll orders"], spans["shop", "process orders"]
    served = spans["ottla", "Produce"]
    parts = [spans["ottla", name] for name in ("receive", "append", "answer")]
    assert {service for service, _ in spans} == {"shop", "ottla"}
    assert {span.trace_id for span in spans.values() if span is not polled} == {sent.trace_id}
    assert asked.parent_span_id == processed.parent_span_id == sent.span_id
    assert served.parent_span_id == asked.span_id
    assert {part.parent_span_id for part in parts} == {served.span_id}
    assert [link.span_id for link in polled.links] == [sent.span_id]


@pytest.mark.skipif(OTELCOL is None, reason="set OTTLA_OTELCOL to an OpenTelemetry collector")
def test_the_program_of_the_page_is_one_trace_at_an_opentelemetry_collector(
    plan_cluster: Any, tmp_path: Path
) -> None:
    assert OTELCOL is not None
    port = free_port()
    config, log = tmp_path / "collector.yaml", tmp_path / "collector.txt"
    config.write_text(COLLECTOR_CONFIG.format(port=port))
    with log.open("w") as output:
        running = subprocess.Popen([OTELCOL, "--config", config], stdout=output, stderr=output)
    try:
        ends_s = time.monotonic() + PATIENCE_S
        while "Everything is ready" not in log.read_text():
            assert running.poll() is None and time.monotonic() < ends_s, log.read_text()
            time.sleep(0.05)
        run_program(plan_cluster, port, tmp_path)
    finally:
        running.terminate()
        running.wait(PATIENCE_S)
    traces = re.findall(r"Trace ID +: (\w+)\n.*\n.*\n +Name +: (.+)", log.read_text())
    (sent,) = [trace for trace, name in traces if name == "send orders"]
    assert sorted(name for trace, name in traces if trace == sent) == [
        "Produce",
        "Produce",
        "answer",
        "append",
        "process orders",
        "receive",
        "send orders",
    ]


COLLECTOR_CONFIG = """
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{port}"}}}}}}
exporters:
  debug: {{verbosity: detailed}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], exporters: [debug]}}
    metrics: {{receivers: [otlp], exporters: [debug]}}
"""
