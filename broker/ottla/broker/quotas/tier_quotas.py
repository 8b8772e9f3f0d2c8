"""Limits of the bandwidth of tiered storage: copies to the object store, and reads from it
(KIP-956)."""

from collections.abc import Awaitable, Callable, Iterator

from ottla.broker.quotas.move_throttle_driver import MoveThrottle
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.quotas import QuotaConfig
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.metrics.instruments import Family
from ottla.telemetry.metrics.kafka_families import gauge

COPY_RATE = "remote.log.manager.copy.max.bytes.per.second"
FETCH_RATE = "remote.log.manager.fetch.max.bytes.per.second"


class TierQuotas:
    """Quotas of a broker's copies to the object store, and of its reads from the store.

    A read waits until the rate of earlier reads has fallen to the limit, and only then sends its
    request to the store. Meanwhile its consumer gets no records, as in Kafka.
    """

    def __init__(self, config: QuotaConfig, now_ms: Callable[[], int]) -> None:
        copies = WindowShape(config.remote_copy_window_count, config.remote_copy_window_s * 1_000)
        reads = WindowShape(config.remote_fetch_window_count, config.remote_fetch_window_s * 1_000)
        self.copy = ReplicationQuota(copies, config.remote_copy_rate_max, now_ms)
        self.fetch = ReplicationQuota(reads, config.remote_fetch_rate_max, now_ms)
        self.throttle_copy: Callable[[int], Awaitable[None]] = MoveThrottle(self.copy).take
        """Function that waits until a number of bytes may be copied to the object store, and counts
        them."""

    def register_with(self, parts: PartRegistry) -> None:
        """Register the settings that change the quotas of tiered storage, and the metrics of the
        measured rates."""
        parts.setting(COPY_RATE, self.copy.set_limit)
        parts.setting(FETCH_RATE, self.fetch.set_limit)
        parts.families(self.families)
        parts.figures(self.metrics)

    def metrics(self) -> dict[str, float]:
        """Return the limits that are set, and the rates measured beside them, in bytes per second
        by metric name, for DescribeNode."""
        found: dict[str, float] = {}
        for name, quota in (("copy", self.copy), ("fetch", self.fetch)):
            if quota.is_limited:
                found[f"tier.{name}.limit"] = quota.limit
                found[f"tier.{name}.rate"] = quota.per_second()
        return found

    def families(self) -> Iterator[Family]:
        """Yield the measured rates of copies to the object store and of reads from it, as metric
        families."""
        for name, text, quota in (
            ("RLMCopy", "copied to the object store", self.copy),
            ("RLMFetch", "read from the object store", self.fetch),
        ):
            yield gauge(
                f"kafka.server:type={name},attribute=byte-rate",
                f"Bytes a second {text}, where a limit is set.",
                quota.per_second(),
            )
