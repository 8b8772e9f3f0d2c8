"""Timeouts of the controller quorum, and the intervals of its snapshots (KIP-595, KIP-630)."""

from ottla.model.limits import GIB, MIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class QuorumConfig:
    """Settings of the controller quorum. All its members should have the same values."""

    election_timeout_ms: int = setting(
        1_000,
        key="controller.quorum.election.timeout.ms",
        at_least=1,
        doc="Time for which a candidate waits for votes. Shorter repeats elections before votes "
        "can arrive; longer extends the time without a leader.",
    )
    fetch_timeout_ms: int = setting(
        2_000,
        key="controller.quorum.fetch.timeout.ms",
        at_least=1,
        doc="Time without a response of the leader after which a follower stands for election, and "
        "without fetches of a majority after which a leader resigns.",
    )
    election_backoff_ms_max: int = setting(
        1_000,
        key="controller.quorum.election.backoff.max.ms",
        at_least=1,
        doc="Maximum random delay after a lost election.",
    )
    append_linger_ms: int = setting(
        0,
        key="controller.quorum.append.linger.ms",
        at_least=0,
        doc="Time for which the leader collects writes before it flushes them. 0 is sufficient, "
        "because one flush covers all writes that arrived during the previous one.",
    )
    request_timeout_ms: int = setting(
        2_000,
        key="controller.quorum.request.timeout.ms",
        at_least=1,
        doc="Time after which a request to another member is retried.",
    )
    retry_backoff_ms: int = setting(
        20,
        key="controller.quorum.retry.backoff.ms",
        at_least=0,
        doc="Delay before a failed request is retried.",
    )
    fetch_wait_ms_max: int = setting(
        500,
        key="controller.quorum.fetch.max.wait.ms",
        at_least=0,
        doc="Maximum time that the leader delays the response to a fetch if there are no new "
        "records.",
    )
    fetch_bytes_max: int = setting(
        MIB,
        key="controller.quorum.fetch.max.bytes",
        at_least=1,
        doc="Maximum number of record bytes in one fetch response; a single larger batch is sent "
        "alone.",
    )
    fetch_snapshot_bytes_max: int = setting(
        MIB,
        key="controller.quorum.fetch.snapshot.max.bytes",
        at_least=1,
        doc="Maximum number of snapshot bytes in one response.",
    )
    snapshot_bytes_between: int = setting(
        20 * MIB,
        key="metadata.log.max.record.bytes.between.snapshots",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Number of record bytes after which the next snapshot is written.",
    )
    snapshot_interval_ms_max: int = setting(
        3_600_000,
        key="metadata.log.max.snapshot.interval.ms",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Time after which the next snapshot is written if there are changes; 0 disables it.",
    )
    segment_bytes: int = setting(
        GIB,
        key="metadata.log.segment.bytes",
        at_least=12,
        doc="Size at which the metadata log rolls to a new segment.",
    )
    segment_ms: int = setting(
        604_800_000,
        key="metadata.log.segment.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Age at which the metadata log rolls to a new segment.",
    )
    retention_bytes_max: int = setting(
        100 * MIB,
        key="metadata.max.retention.bytes",
        kind=SettingKind.LONG,
        doc="Total size of log and snapshots above which old ones are deleted; the newest snapshot "
        "is never deleted.",
    )
    retention_ms_max: int = setting(
        604_800_000,
        key="metadata.max.retention.ms",
        kind=SettingKind.LONG,
        doc="Age above which old snapshots and the log below them are deleted.",
    )
    idle_interval_ms_max: int = setting(
        500,
        key="metadata.max.idle.interval.ms",
        at_least=0,
        doc="Interval at which an idle leader writes a no-op record; 0 disables it.",
    )
