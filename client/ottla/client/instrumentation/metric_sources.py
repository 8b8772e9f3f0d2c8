"""Selection of the producer and consumer metrics that `metrics_push` reports to the cluster."""

import trio

from ottla.client.fetch.positions import Positions
from ottla.client.groups.group import Group
from ottla.client.instrumentation.metrics_push import MetricsPush
from ottla.client.produce.accumulator import Accumulator
from ottla.client.telemetry.consumer_metrics import ConsumerMetrics
from ottla.client.telemetry.measures import PollIdleTime
from ottla.client.telemetry.producer_metrics import ProducerMetrics
from ottla.model.settings.client import ProducerConfig


def report_producer(
    push: MetricsPush | None, gathered: Accumulator, config: ProducerConfig
) -> None:
    """Add a producer's metrics to the reports that its client pushes to the cluster. Does nothing
    if `push` is None, because reports are disabled."""
    if push is None:
        return
    own_id = config.transactional_id
    source = ProducerMetrics(
        gathered.measures,
        buffer_bytes_max=config.buffer_bytes_max,
        buffered_bytes=lambda: gathered.buffered_bytes,
    )
    push.report(source, lambda: {} if own_id is None else {"transactional_id": own_id})


def report_consumer(
    push: MetricsPush, positions: Positions, group: Group | None, idle: PollIdleTime
) -> None:
    """Add a consumer's metrics to the reports that its client pushes to the cluster: metrics of
    fetches and, if the consumer has a group, of commits and rebalances."""
    source = ConsumerMetrics(
        fetches=positions.measures,
        idle=idle,
        coordinator=None if group is None else group.measures,
        lags=positions.lags,
        assigned_count=lambda: sum(1 for _ in positions),
        now_s=trio.current_time,
    )
    push.report(source, dict if group is None else group.identity)
