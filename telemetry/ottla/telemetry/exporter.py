"""The seam that metrics leave by: any number of exporters, none of which can slow a client."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.telemetry.client_labels import ClientLabels


class LabelledPush(NamedTuple):
    """What one client pushed at once, with who it was among the attributes of its resources."""

    labels: ClientLabels | None
    """Who pushed; None for what a node of ours says of itself."""
    received_ms: int
    """When the broker got it, in milliseconds since the Unix epoch."""
    otlp: bytes
    """An OTLP MetricsData; several joined are one."""


class Sink(Protocol):
    """Takes what was pushed."""

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Take the pushes; never blocks, and drops and counts what there is no room for."""
        ...


class Exporter(Sink, Protocol):
    """Sends on what was pushed."""

    @property
    def name(self) -> str:
        """What its counts and its troubles are told under."""
        ...

    async def run(self) -> None:
        """Send for as long as the broker runs; ends by being cancelled."""
        ...

    async def flush(self) -> None:
        """Wait until `run` has sent what waits now, or nobody takes it."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return what became of pushes: at least `sent`, `dropped`, `queued` and `sending`."""
        ...
