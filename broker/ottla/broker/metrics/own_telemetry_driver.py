"""Exports a broker's metrics and traces. Prometheus reads the metrics from an HTTP endpoint. The
broker pushes metrics to collectors.

Traces are sent only to collectors, by OpenTelemetry's SDK, and only if
`telemetry.traces.sample.ratio` is above 0.
"""

from collections.abc import Sequence
from functools import partial

import trio

from ottla.broker.metrics.request_spans_driver import send_request_spans
from ottla.broker.metrics.telemetry_driver import ClientTelemetry
from ottla.model.background_driver import keep_running
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.request_traces import RequestTraces
from ottla.node.part_registry import PartRegistry
from ottla.node.process_metrics_driver import cpu_seconds, process_families
from ottla.telemetry.clients.exporter import Exporter
from ottla.telemetry.exporters.otel_sdk_driver import check_otel_sdk
from ottla.telemetry.metrics.instruments import MetricKind
from ottla.telemetry.metrics.loop_pause_driver import LoopPauseMeter
from ottla.telemetry.metrics.metrics_http_driver import Unready, serve_metrics
from ottla.telemetry.metrics.own_metrics_driver import node_attributes, send_own_metrics
from ottla.telemetry.metrics.prometheus_text import render_all

RUNNING = "RUNNING"
"""Name of the broker state in which the broker serves requests."""


def unready_reason(
    state: str, *, is_fenced: bool, is_serving: bool, is_caught_up: bool
) -> str | None:
    """Return the reason why a broker is not ready, or None if it is ready.

    A broker that cannot reach the controllers stays ready, since it still serves the partitions
    that it leads. Otherwise a load balancer would remove all brokers during an outage of the
    controllers.
    """
    if state != RUNNING:
        return f"The broker is {state}."
    if is_fenced:
        return "The controller has fenced the broker."
    if not is_serving:
        return "The broker has not applied the metadata in which it is active."
    return None if is_caught_up else "The broker's metadata is behind the controllers'."


class BrokerTelemetry:
    """Metrics and traces of one broker, and their exports to Prometheus and to collectors."""

    def __init__(
        self,
        config: BrokerConfig,
        parts: PartRegistry,
        *,
        cluster_id: str,
        clients: ClientTelemetry,
        dispatcher: Dispatcher,
        unready: Unready,
        clock: Clock,
        rng: Rng,
    ) -> None:
        """Register the metrics of the broker's process.

        `clients` contains the metrics that clients push. They are served and exported together with
        the broker's own metrics. Raises ConfigError if the settings enable traces of requests, but
        OpenTelemetry's SDK is not installed.
        """
        if config.traces_requests:
            check_otel_sdk("telemetry.traces.sample.ratio")
        self.pauses = LoopPauseMeter()
        self.registry = parts.metrics
        self.pauses.register(self.registry)
        parts.figures(
            lambda: {
                "loop.pause.longest.ms": self.pauses.longest_ever_ms,
                "process.cpu.seconds": cpu_seconds(),
            }
        )
        self.registry.register(process_families)
        self.registry.read(
            "ottla_request_traces_dropped_total",
            MetricKind.COUNTER,
            "Traced requests dropped because more finished in a second than are exported.",
            lambda: 0 if dispatcher.traces is None else dispatcher.traces.dropped_count,
        )
        self.metrics_port: int | None = None
        """Port of the HTTP endpoint /metrics, or None if the broker does not serve it."""
        self._config = config
        self._clients = clients
        self._unready = unready
        self._dispatcher = dispatcher
        self._errors = dispatcher.errors
        self._clock = clock
        self._rng = rng
        self._attributes = node_attributes(
            config.node_id, role="broker", cluster_id=cluster_id, rack=config.rack
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Measure, serve and export metrics until cancelled. Raises ConfigError if the port cannot
        be opened."""
        settings = self._config.metrics
        trio.lowlevel.add_instrument(self.pauses)
        try:
            async with trio.open_nursery() as nursery:
                if settings.is_prometheus_served:
                    self.metrics_port = await nursery.start(self._serve)
                exporters = self._clients.exporters
                if exporters and settings.otlp_interval_ms:
                    send = partial(self._send_metrics, exporters)
                    nursery.start_soon(keep_running, "own metrics", send, self._errors)
                if self._config.traces_requests:
                    self._begin_traces(nursery)
                task_status.started()
                await trio.sleep_forever()
        finally:
            trio.lowlevel.remove_instrument(self.pauses)

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        settings = self._config.metrics
        await serve_metrics(
            lambda: render_all(self.registry.collect(), self._clients.series.rows()),
            host=settings.prometheus_host,
            port=settings.prometheus_port,
            access=settings.prometheus_access,
            errors=self._errors,
            unready=self._unready,
            task_status=task_status,
        )

    async def _send_metrics(self, exporters: Sequence[Exporter]) -> None:
        await send_own_metrics(
            self.registry,
            exporters,
            attributes=self._attributes,
            interval_ms=self._config.metrics.otlp_interval_ms,
            clock=self._clock,
        )

    def _begin_traces(self, nursery: trio.Nursery) -> None:
        now_ns = self._dispatcher.clock.now_ns
        traces = RequestTraces(self._config.metrics.traces_sample_ratio, self._rng, now_ns=now_ns)
        self._dispatcher.traces = traces
        send = partial(
            send_request_spans,
            traces,
            self._config.exporters,
            attributes=self._attributes,
            now_ns=now_ns,
        )
        nursery.start_soon(keep_running, "own traces", send, self._errors)
