"""Interface of exporters of clients' metrics.  There may be any number of exporters, and none can
delay a client."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.telemetry.clients.client_labels import ClientLabels


class LabelledPush(NamedTuple):
    """One push of metrics, with the labels of the client among the attributes of its resources."""

    labels: ClientLabels | None
    """Labels of the client.  None for the metrics of this node."""
    received_ms: int
    """Time when the push arrived at the broker, in ms since 1970."""
    otlp: bytes
    """An OTLP MetricsData message.  The concatenation of several such messages is also a valid
    message."""


class Sink(Protocol):
    """Interface of a receiver of clients' pushes."""

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Accept pushes without blocking. Pushes that exceed the bounds of the queue are dropped
        and counted."""
        ...


class Exporter(Sink, Protocol):
    """Interface of an exporter, which queues the pushes that it receives, and sends them to its
    destination."""

    @property
    def name(self) -> str:
        """Name of the exporter, as metrics and log lines contain it."""
        ...

    async def run(self) -> None:
        """Export the queued pushes until cancelled."""
        ...

    async def flush(self) -> None:
        """Wait until `run` has sent or dropped all queued pushes, or until sending fails."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return the number of pushes by state: at least `sent`, `dropped`, `queued` and
        `sending`."""
        ...
