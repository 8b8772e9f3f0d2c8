"""Builds OpenTelemetry spans for traced requests, within a second after their responses.

A trace has one span for the request, and one for each of its phases. If the request's header names
a span of the client, the request's span becomes its child. The trace then connects the client with
this broker.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.node.network.request_traces import TRACES_HELD_MAX, RequestTrace, RequestTraces
from ottla.telemetry.exporters.otel_sdk_driver import close_tracer_provider, open_tracer_provider

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

INTERVAL_S = 1.0

SLICE_NS = 2_000_000
"""Maximum nanoseconds spent on building OpenTelemetry spans before other tasks run."""


async def send_request_spans(
    traces: RequestTraces,
    config: ExporterConfig,
    *,
    attributes: Mapping[str, str],
    now_ns: Callable[[], int],
) -> None:
    """Pass finished traces of requests to OpenTelemetry's SDK each second until cancelled. Sends
    the remaining traces when cancelled.

    `attributes` identifies the node, and `now_ns` is the clock of the traces in nanoseconds.
    """
    provider = open_tracer_provider(config, attributes)
    tracer = provider.get_tracer("ottla.broker", attributes["service.version"])

    def write(trace: RequestTrace) -> None:
        # Exact to the nanosecond, since these spans are shown beside those of a client with the
        # same clock.
        write_spans(tracer, trace, time.time_ns() - now_ns())

    pending: deque[RequestTrace] = deque()
    try:
        while True:
            await trio.sleep(INTERVAL_S)
            # Traces that finish from now on wait for the next second, which bounds the cost of
            # each.
            pending += traces.take(TRACES_HELD_MAX)
            ends_ns = time.perf_counter_ns() + SLICE_NS
            while pending:
                write(pending.popleft())
                if time.perf_counter_ns() >= ends_ns:
                    await trio.lowlevel.checkpoint()
                    ends_ns = time.perf_counter_ns() + SLICE_NS
    finally:
        pending += traces.take(TRACES_HELD_MAX)
        for trace in pending:
            write(trace)
        await close_tracer_provider(provider)


def write_spans(tracer: "Tracer", trace: RequestTrace, offset_ns: int) -> None:
    """Build the OpenTelemetry spans of a request's trace. `offset_ns` is wall time minus monotonic
    time, in nanoseconds."""
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = Context()
    if trace.parent is not None:
        carrier = {"traceparent": trace.parent}
        context = TraceContextTextMapPropagator().extract(carrier, context)
    root = tracer.start_span(
        trace.name,
        context,
        kind=SpanKind.SERVER,
        attributes=trace.attributes,
        start_time=trace.received_ns + offset_ns,
    )
    if trace.error is not None:
        root.set_status(Status(StatusCode.ERROR, trace.error))
    within = set_span_in_context(root, context)
    for name, start_ns, end_ns in trace.parts():
        part = tracer.start_span(name, within, start_time=start_ns + offset_ns)
        part.end(end_ns + offset_ns)
    root.end(trace.sent_ns + offset_ns)
