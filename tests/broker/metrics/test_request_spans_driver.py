"""Bound on the number of spans when more traces finish than that."""

import pytest
import trio
from trio.testing import MockClock

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ottla.broker.metrics import request_spans_driver
from ottla.broker.metrics.request_spans_driver import send_request_spans, write_spans
from ottla.model.errors import ErrorCode
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.node.clock_driver import RealRng
from ottla.node.network.dispatch import Peer
from ottla.node.network.request_traces import TRACES_HELD_MAX, RequestTraces
from ottla.wire.apis import PRODUCE
from ottla.wire.headers import RequestHeader

PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="10.0.0.9",
    peer_port=40_000,
    local_host="10.0.0.1",
    local_port=9092,
)
SECONDS = 3


async def test_what_a_second_costs_is_bounded_however_many_requests_are_traced(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: 0)
    written = 0

    def finish_one() -> None:
        header = RequestHeader(PRODUCE, 9, "shop", 0)
        trace = traces.begin(header, PEER, context=None, received_ns=1, taken_ns=2)
        assert trace is not None
        traces.finish(trace)

    def write_spans(*_: object) -> None:
        nonlocal written
        written += 1
        assert written < 100 * TRACES_HELD_MAX, "it never ends"
        finish_one()

    monkeypatch.setattr(request_spans_driver, "write_spans", write_spans)
    monkeypatch.setattr(request_spans_driver, "SLICE_NS", 0)
    for _ in range(2 * TRACES_HELD_MAX):
        finish_one()
    with trio.move_on_after(SECONDS + 0.5):
        await send_request_spans(
            traces,
            ExporterConfig(),
            attributes={"service.version": "1"},
            now_ns=lambda: 0,
        )
    # Each second, and what was left at the end.
    assert written == (SECONDS + 1) * TRACES_HELD_MAX


@pytest.mark.parametrize(
    ("code", "status", "description"),
    [
        (0, StatusCode.UNSET, None),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, StatusCode.ERROR, "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_the_span_of_a_request_has_the_status_of_its_answer(
    code: int, status: StatusCode, description: str | None
) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    traces = RequestTraces(1.0, RealRng(), now_ns=lambda: 9)
    header = RequestHeader(PRODUCE, 9, "shop", 0)
    trace = traces.begin(header, PEER, context=None, received_ns=1, taken_ns=2)
    assert trace is not None
    trace.error_code = code
    traces.answered(trace, 0)
    traces.finish(trace)

    write_spans(provider.get_tracer("test"), trace, 0)

    *parts, whole = spans.get_finished_spans()
    assert (whole.name, whole.status.status_code, whole.status.description) == (
        "Produce",
        status,
        description,
    )
    assert whole.attributes is not None
    assert whole.attributes.get("error.type") == description
    assert {part.status.status_code for part in parts} == {StatusCode.UNSET}
