"""Interface of exporters of clients' metrics. The number of exporters is not limited, and no
exporter can delay a client."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.telemetry.clients.client_labels import ClientLabels


class LabelledPush(NamedTuple):
    """One push of metrics to be exported. The attributes of its resources include the labels of the
    client."""

    labels: ClientLabels | None
    """Labels that identify the client that pushed the metrics. None for the metrics of this
    node."""
    received_ms: int
    """Time when the push arrived at the broker, in ms since 1970 on the broker's clock."""
    otlp: bytes
    """Metrics of the push, as the bytes of an OTLP MetricsData message. The concatenation of
    several such messages is also a valid message."""


class Sink(Protocol):
    """Interface of a receiver of pushes: an exporter, or a consumer of all pushes."""

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Accept pushes of metrics without blocking. Pushes that exceed the bounds of the
        receiver's queue are dropped and counted."""
        ...


class Exporter(Sink, Protocol):
    """Interface of a metrics exporter. An exporter queues the pushes that it receives, and sends
    them to its destination."""

    @property
    def name(self) -> str:
        """Name of the exporter, as the node's metrics and log messages contain it."""
        ...

    async def run(self) -> None:
        """Export the queued pushes until this call is cancelled."""
        ...

    async def flush(self) -> None:
        """Wait until `run` has sent or dropped all queued pushes, or until sending them fails."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return the number of pushes by state: at least `sent`, `dropped`, `queued` and
        `sending`."""
        ...
