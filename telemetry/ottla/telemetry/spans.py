"""Spans of traces, and their OTLP.

Pure.  Shapes: `trace.proto` of opentelemetry-proto, version 1, which is loaded with the first span.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """One stretch of time of one trace; instants are nanoseconds since 1970."""

    trace_id: bytes
    """16 bytes."""
    span_id: bytes
    """8 bytes."""
    parent_id: bytes
    """Empty where the trace begins."""
    name: str
    start_ns: int
    end_ns: int
    is_server: bool = False
    """Whether it is the answer to a request from outside."""
    attributes: tuple[tuple[str, str], ...] = ()


def traces_message(spans: Iterable[TraceSpan], attributes: Mapping[str, str]) -> bytes:
    """Return an ExportTraceServiceRequest; `attributes` say which node tells."""
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
    from opentelemetry.proto.trace.v1 import trace_pb2 as pb

    from ottla.telemetry.own_otlp import resource_of, text_attribute

    kinds = {True: pb.Span.SPAN_KIND_SERVER, False: pb.Span.SPAN_KIND_INTERNAL}
    written = [
        pb.Span(
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_span_id=span.parent_id,
            name=span.name,
            kind=kinds[span.is_server],
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            attributes=[text_attribute(name, text) for name, text in span.attributes],
        )
        for span in spans
    ]
    scope = pb.ScopeSpans(scope=InstrumentationScope(name="ottla"), spans=written)
    part = pb.ResourceSpans(resource=resource_of(attributes), scope_spans=[scope])
    return pb.TracesData(resource_spans=[part]).SerializeToString()
