"""Settings of this broker's remote log manager."""

from ottla.model.settings.storage.tier import TierConfig
from ottla.model.values import frozen


@frozen(kw_only=True)
class TierSettings:
    """Settings of the remote log manager, with Kafka's names and defaults."""

    metadata_topic_partition_count: int = 50
    """Number of partitions of `__remote_log_metadata`
    (`remote.log.metadata.topic.num.partitions`)."""
    metadata_topic_replication_factor: int = 3
    """Number of replicas of each partition of `__remote_log_metadata`
    (`remote.log.metadata.topic.replication.factor`)."""
    metadata_topic_min_isr: int = 2
    """Minimum number of in-sync replicas with which `__remote_log_metadata` accepts a record
    (`remote.log.metadata.topic.min.isr`, KIP-1235)."""
    task_interval_ms: int = 30_000
    """Interval, in ms, at which segments are copied to the object store and copied segments are
    deleted (`remote.log.manager.task.interval.ms`)."""
    task_retry_backoff_max_ms: int = 30_000
    """Longest pause, in ms, before a failed copy or deletion of segments is repeated
    (`remote.log.manager.task.retry.backoff.max.ms`)."""
    copier_count: int = 10
    """Maximum number of segments that are copied to the object store at the same time
    (`remote.log.manager.copier.thread.pool.size`)."""


def tier_settings_of(config: TierConfig) -> TierSettings:
    """Return the settings of the remote log manager among those of a broker."""
    return TierSettings(
        metadata_topic_partition_count=config.metadata_partition_count,
        metadata_topic_replication_factor=config.metadata_replication_factor,
        metadata_topic_min_isr=config.metadata_min_isr,
        task_interval_ms=config.task_interval_ms,
        task_retry_backoff_max_ms=config.task_retry_backoff_ms_max,
        copier_count=config.copier_count,
    )
