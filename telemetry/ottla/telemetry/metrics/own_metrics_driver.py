"""Task that sends the metrics of a node to OTLP collectors at an interval."""

import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import trio

from ottla.model.ids import NodeId
from ottla.model.seams import Clock
from ottla.model.version import VERSION
from ottla.telemetry.clients.exporter import LabelledPush, Sink
from ottla.telemetry.metrics.instruments import Registry

SLICE_NS = 2_000_000
"""Maximum time in ns for which one slice of encoding the node's metrics blocks the event loop."""

NS_PER_MS = 1_000_000


def node_attributes(
    node_id: NodeId, *, role: str, cluster_id: str, rack: str | None = None
) -> dict[str, str]:
    """Return the attributes that identify a node, with OpenTelemetry's names where they exist."""
    attributes = {
        "service.name": "ottla",
        "service.instance.id": str(node_id),
        "service.version": VERSION,
        "kafka.cluster.id": cluster_id,
        "kafka.node.id": str(node_id),
        "kafka.node.role": role,
    }
    return attributes if rack is None else {**attributes, "cloud.availability_zone": rack}


async def send_own_metrics(
    registry: Registry,
    sinks: Sequence[Sink],
    *,
    attributes: Mapping[str, str],
    interval_ms: int,
    clock: Clock,
) -> None:
    """Send the registry's metrics to the exporters (`sinks`) every `interval_ms`, until cancelled.

    `attributes` identify the node, with OpenTelemetry's names.
    """
    # Imported on demand: a node without collectors need not load OTLP's messages.
    from ottla.telemetry.metrics.own_otlp import messages_of, resource_of

    resource = resource_of(attributes)
    start_ns = clock.wall_ms() * NS_PER_MS
    while True:
        await trio.sleep(interval_ms / 1000)
        now_ms = clock.wall_ms()
        messages = messages_of(
            registry.collect(), resource, start_ns=start_ns, now_ns=now_ms * NS_PER_MS
        )
        async for message in _in_slices(messages):
            push = LabelledPush(None, now_ms, message)
            for sink in sinks:
                sink.offer([push])


async def _in_slices(messages: Iterator[bytes | None]) -> AsyncIterator[bytes]:
    """Yield the encoded OTLP messages. Other tasks run between the slices of the encoding."""
    ends_ns = time.perf_counter_ns() + SLICE_NS
    for message in messages:
        if message is not None:
            yield message
        if time.perf_counter_ns() >= ends_ns:
            await trio.lowlevel.checkpoint()
            ends_ns = time.perf_counter_ns() + SLICE_NS
