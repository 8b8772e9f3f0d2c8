"""Settings of the share coordinator, and of the topic in which it stores the state of share
groups."""

from ottla.model.limits import MIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class ShareStateConfig:
    """Settings of the share coordinator (KIP-932). All brokers should have the same values."""

    topic_num_partitions: int = setting(
        50,
        key="share.coordinator.state.topic.num.partitions",
        at_least=1,
        doc="Number of partitions of the topic with the state of share groups.",
    )
    topic_replication_factor: int = setting(
        3,
        key="share.coordinator.state.topic.replication.factor",
        kind=SettingKind.SHORT,
        at_least=1,
        doc="Replication factor of the topic with the state of share groups.",
    )
    topic_min_isr: int = setting(
        2,
        key="share.coordinator.state.topic.min.isr",
        kind=SettingKind.SHORT,
        at_least=1,
        doc="Number of replicas of the state of share groups that must be in sync.",
    )
    topic_segment_bytes: int = setting(
        100 * MIB,
        key="share.coordinator.state.topic.segment.bytes",
        at_least=1,
        doc="Segment size of the topic with the state of share groups.",
    )
    updates_per_snapshot: int = setting(
        500,
        key="share.coordinator.snapshot.update.records.per.snapshot",
        at_least=0,
        at_most=500,
        doc="Number of updates of a share partition's state between two snapshots of it. Fewer "
        "make a failover faster and writes larger.",
    )
    write_timeout_ms: int = setting(
        5_000,
        key="share.coordinator.write.timeout.ms",
        at_least=1,
        doc="Time for which the share coordinator waits until a write is replicated.",
    )
    prune_interval_ms: int = setting(
        300_000,
        key="share.coordinator.state.topic.prune.interval.ms",
        at_least=1,
        is_internal=True,
        doc="Interval between deletions of records that later snapshots supersede.",
    )
    idle_snapshot_interval_ms: int = setting(
        300_000,
        key="share.coordinator.cold.partition.snapshot.interval.ms",
        at_least=1,
        is_internal=True,
        doc="Age at which the last snapshot of an idle share partition is repeated, so that the "
        "records before it can be deleted.",
    )
