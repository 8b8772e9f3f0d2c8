"""Client telemetry of a broker: checks the metric pushes of clients, stores the latest pushes and
exports them.

`ottla.telemetry.clients.instances` decides whether to accept pushes; `telemetry_apis` handles the
requests.
"""

import logging
from collections.abc import Iterator, Mapping

import trio

from ottla.broker.metrics.telemetry_admin import TelemetryAdminApi
from ottla.broker.metrics.telemetry_apis import Done, TelemetryApis
from ottla.broker.metrics.telemetry_metrics import telemetry_families
from ottla.broker.metrics.telemetry_tail import TelemetryTail
from ottla.broker.metrics.telemetry_topic_driver import TelemetryTopic
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import CLIENT_METRICS_RESOURCE
from ottla.model.background_driver import keep_running
from ottla.model.seams import Clock, Rng
from ottla.model.security.acls import ANONYMOUS
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.alarm_driver import Alarm
from ottla.node.network.dispatch import Dispatcher
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_series import ClientSeries
from ottla.telemetry.clients.ingest_driver import Ingest
from ottla.telemetry.clients.instances import INSTANCES_MAX, ClientInstance, ClientInstances
from ottla.telemetry.clients.offering import telemetry_is_offered
from ottla.telemetry.exporters.exporters_driver import open_exporters
from ottla.telemetry.metrics.instruments import Family
from ottla.wire.apis import DESCRIBE_CLIENT_INSTANCES, TAIL_CLIENT_METRICS

FLUSH_MS_MAX = 3_000
"""Maximum milliseconds that a stopping broker waits until its exporters have sent the clients'
metric pushes. A smaller value loses pushes that a distant collector would have accepted. A larger
value delays the stop if an exporter hangs."""

logger = logging.getLogger("ottla.broker.telemetry")


class ClientTelemetry:
    """Client telemetry of one broker (metrics that clients push), and the metadata publisher that
    applies subscriptions."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        rng: Rng,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        settings = config.telemetry
        self._config = config
        self._errors = errors or UnexpectedErrors()
        self._clock = clock
        self._image = EMPTY
        self._topic = TelemetryTopic(self._own_address)
        self.exporters = open_exporters(
            config.exporters, rng=rng, texts=config.texts, send=self._topic.send
        )
        """Exporters of client metrics that the settings name."""
        self.series = ClientSeries()
        """Metric series that clients pushed, for Prometheus. Empty if the broker does not serve the
        endpoint /metrics."""
        self.tail = TelemetryTail()
        self.ingest = Ingest(
            sinks=[self.tail, *self.exporters],
            series=self.series if config.metrics.is_prometheus_served else None,
            errors=self._errors,
        )
        self.instances = ClientInstances(
            fresh_id=rng.uuid,
            payload_bytes_max=settings.payload_bytes_max,
            unsubscribed_interval_ms=settings.unsubscribed_interval_ms,
            on_stale=self.ingest.forget,
            on_crowded=_warn_of_forgotten_clients,
        )
        self._apis = TelemetryApis(
            self.instances,
            payload_bytes_max=settings.payload_bytes_max,
            take=self._take,
            is_offered=self.is_offered,
        )
        self._alarm = Alarm(clock, lambda: self.instances.next_deadline_ms, self.instances.expire)
        self.instances.on_earlier_deadline = self._alarm.rearm
        self._texts: dict[str, Mapping[str, str]] = {}

    def register_apis(self, dispatcher: Dispatcher) -> None:
        """Register the handlers of the APIs of client telemetry."""
        self._apis.register(dispatcher)
        admin = TelemetryAdminApi(
            node_id=self._config.node_id, instances=self.instances, tail=self.tail
        )
        dispatcher.register(DESCRIBE_CLIENT_INSTANCES, admin.describe_instances)
        dispatcher.register(TAIL_CLIENT_METRICS, admin.tail)

    def is_offered(self) -> bool:
        """Return whether the broker offers telemetry (KIP-714) to clients that connect now."""
        return telemetry_is_offered(
            self._config.telemetry.offered,
            has_subscription=self.instances.has_subscriptions,
            has_exporter=bool(self.exporters),
        )

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task and the metrics of client telemetry."""
        parts.task("client telemetry", self.run)
        parts.figures(self.metrics)
        parts.families(self.families)

    async def run(self) -> None:
        """Run the periodic work of client telemetry (metrics that clients push) until cancelled."""
        async with trio.open_nursery() as nursery:
            for name, work in (
                ("alarm of client telemetry", self._alarm.run),
                ("pushes of clients", self.ingest.run),
                ("topic of client metrics", self._topic.run),
                *((exporter.name, exporter.run) for exporter in self.exporters),
            ):
                nursery.start_soon(keep_running, name, work, self._errors)

    async def flush(self) -> None:
        """Wait until the exporters have sent all metric pushes of clients, for at most
        FLUSH_MS_MAX.

        The method does not wait for a failing exporter. Lost pushes are logged.
        """
        with trio.move_on_after(FLUSH_MS_MAX / 1_000):
            await self.ingest.flush()
            async with trio.open_nursery() as nursery:
                for exporter in self.exporters:
                    nursery.start_soon(exporter.flush)
        for exporter in self.exporters:
            counts = exporter.counts()
            if left := counts["queued"] + counts["sending"]:
                logger.warning("%s did not accept %d pushes before the stop", exporter.name, left)

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "telemetry subscriptions"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the subscriptions to clients' metrics that changed in a new metadata image."""
        self._image = image
        changed = [name for kind, name in delta.changed_configs if kind == CLIENT_METRICS_RESOURCE]
        if not changed:
            return
        for name in changed:
            texts = dict(image.config(CLIENT_METRICS_RESOURCE, name).items())
            if texts:
                self._texts[name] = texts
            else:
                self._texts.pop(name, None)
        for name in self.instances.on_subscriptions(self._texts):
            logger.warning("the subscription %s to client metrics cannot be read: unused", name)

    def metrics(self) -> dict[str, float]:
        """Return the counters and gauges of client telemetry, for DescribeNode."""
        counts = self.instances.counts
        return {
            "telemetry.instances": len(self.instances),
            "telemetry.instances.evicted": counts.evicted,
            "telemetry.pushes": counts.accepted,
            "telemetry.pushes.exported": counts.exported,
            "telemetry.pushes.failed": counts.failed,
            "telemetry.requests.throttled": counts.throttled,
            "telemetry.requests.unknown.subscription": counts.unknown_subscriptions,
            **_named("telemetry.ingest", self.ingest.counts()),
            **_named("telemetry.series", self.series.counts()),
            **{
                name: count
                for exporter in self.exporters
                for name, count in _named(
                    f"telemetry.exporter.{exporter.name}", exporter.counts()
                ).items()
            },
        }

    def families(self) -> Iterator[Family]:
        """Yield the metric families of client telemetry for /metrics, which include everything that
        `metrics` returns."""
        return telemetry_families(
            self.instances, self.ingest.counts(), self.series.counts(), self.exporters
        )

    def _own_address(self) -> tuple[str, int] | None:
        """Return the host and port at which other brokers reach this broker, or None while it has
        no address."""
        registration = self._image.brokers.get(self._config.node_id)
        if registration is None:
            return None
        endpoint = registration.endpoint(self._config.inter_broker_listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def _take(self, instance: ClientInstance, codec: int, payload: bytes, done: Done) -> None:
        traits = instance.traits
        labels = ClientLabels(
            client_instance_id=instance.id,
            client_id=traits.client_id or "",
            principal=ANONYMOUS,
            software_name=traits.software_name,
            software_version=traits.software_version,
            source_address=traits.source_address,
            broker_id=self._config.node_id,
        )
        self.ingest.submit(labels, codec, payload, self._clock.wall_ms(), done)


def _named(prefix: str, counts: Mapping[str, int]) -> dict[str, float]:
    return {f"{prefix}.{name.replace('_', '.')}": count for name, count in counts.items()}


def _warn_of_forgotten_clients() -> None:
    logger.warning(
        "more than %d clients report their metrics to this broker: those silent longest are "
        "forgotten to make room",
        INSTANCES_MAX,
    )
