"""The program of docs/telemetry.md, as pasted: its trace arrives at an OTLP collector."""

import re
import subprocess
import sys
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

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

PAGE = Path(__file__).parents[2] / "docs" / "telemetry.md"
PATIENCE_S = 120


class TraceCollector(TraceServiceServicer):
    """OTLP's trace service; keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._server = grpc.server(ThreadPoolExecutor(1))
        # The generated code has no types.
        add_TraceServiceServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def Export(  # noqa: N802  # the service's name for it
        self, request: ExportTraceServiceRequest, context: object
    ) -> ExportTraceServiceResponse:
        for part in request.resource_spans:
            for scope in part.scope_spans:
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
    """Return the page's program of traces."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if "TracerProvider" in block]
    return str(found)


def test_the_program_of_the_page_is_one_trace(
    plan_cluster: Any, collector: TraceCollector, tmp_path: Path
) -> None:
    cluster = plan_cluster(controllers=1, brokers=1)
    cluster.start("controller")
    cluster.start("broker")
    text = program().replace("localhost:9092", cluster.bootstrap)
    text = text.replace("localhost:4317", f"127.0.0.1:{collector.port}")
    script = tmp_path / "shop.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert (done.stdout, done.stderr) == ("b'one coffee'\n", "")
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"send orders", "poll orders", "process orders"}
    sent, processed = spans["send orders"], spans["process orders"]
    assert processed.trace_id == sent.trace_id
    assert processed.parent_span_id == sent.span_id
    assert [link.span_id for link in spans["poll orders"].links] == [sent.span_id]
