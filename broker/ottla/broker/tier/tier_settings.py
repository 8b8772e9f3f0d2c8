"""Settings of this broker's remote log manager."""

from ottla.model.values import frozen


@frozen(kw_only=True)
class TierSettings:
    """Settings of the remote log manager, with Kafka's names and defaults."""

    metadata_topic_partition_count: int = 50
    """Partitions of `__remote_log_metadata`
    (`remote.log.metadata.topic.num.partitions`)."""
    metadata_topic_replication_factor: int = 3
    """Replicas of `__remote_log_metadata` (`remote.log.metadata.topic.replication.factor`)."""
    metadata_topic_min_isr: int = 2
    """In-sync replicas that a write needs (`remote.log.metadata.topic.min.isr`, KIP-1235)."""
    task_interval_ms: int = 30_000
    """Interval of copies and deletions (`remote.log.manager.task.interval.ms`)."""
    task_retry_backoff_max_ms: int = 30_000
    """Longest pause after failures (`remote.log.manager.task.retry.backoff.max.ms`)."""
    copier_count: int = 10
    """Segments that are copied at the same time
    (`remote.log.manager.copier.thread.pool.size`)."""
