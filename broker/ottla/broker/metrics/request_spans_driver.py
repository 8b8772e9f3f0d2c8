"""Traces of requests as OpenTelemetry spans, made a second after their requests were answered.

A trace is a span of the request and one of each of its parts.  It is the child of the client's span
where the request's header names one: the trace then leads from the client through this broker.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from ottla.broker.network.request_traces import TRACES_HELD_MAX, RequestTrace, RequestTraces
from ottla.model.settings.exporters import ExporterConfig
from ottla.telemetry.otel_sdk_driver import close_tracer_provider, open_tracer_provider

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

INTERVAL_S = 1.0

SLICE_NS = 2_000_000
"""How long the making of spans holds the loop."""


async def send_request_spans(
    traces: RequestTraces,
    config: ExporterConfig,
    *,
    attributes: Mapping[str, str],
    now_ns: Callable[[], int],
) -> None:
    """Give finished traces to the SDK each second, until cancelled; then send what is left.

    `attributes` say which node it is, `now_ns` is the stopwatch of the traces.
    """
    provider = open_tracer_provider(config, attributes)
    tracer = provider.get_tracer("ottla.broker", attributes["service.version"])

    def write(trace: RequestTrace) -> None:
        # To the nanosecond: these spans stand beside a client's, which has the same clock.
        write_spans(tracer, trace, time.time_ns() - now_ns())

    pending: deque[RequestTrace] = deque()
    try:
        while True:
            await trio.sleep(INTERVAL_S)
            # Those that finish from now on wait for their turn, which bounds what a second costs.
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
    """Make the spans of a trace; `offset_ns` is wall time less the stopwatch's."""
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
