"""How fast a quorum notices a lost leader, and when it writes a snapshot (KIP-595, KIP-630)."""

from ottla.model.limits import GIB, MIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen


@frozen(kw_only=True)
class QuorumConfig:
    """Settings that every member of one quorum should share."""

    election_timeout_ms: int = setting(
        1_000,
        key="controller.quorum.election.timeout.ms",
        at_least=1,
        doc="How long a candidate waits for votes. Too low and elections outrun the network; "
        "too high and a cluster without leader stays so.",
    )
    fetch_timeout_ms: int = setting(
        2_000,
        key="controller.quorum.fetch.timeout.ms",
        at_least=1,
        doc="How long a follower goes without an answer of the leader before it stands for "
        "election, and a leader without a majority's fetches before it steps down.",
    )
    election_backoff_ms_max: int = setting(
        1_000,
        key="controller.quorum.election.backoff.max.ms",
        at_least=1,
        doc="The longest random wait after a lost election.",
    )
    append_linger_ms: int = setting(
        0,
        key="controller.quorum.append.linger.ms",
        at_least=0,
        doc="How long the leader gathers writes before it flushes them. 0 because one flush "
        "covers whatever came in during the flush before it.",
    )
    request_timeout_ms: int = setting(
        2_000,
        key="controller.quorum.request.timeout.ms",
        at_least=1,
        doc="How long a request to another member may take before it is tried again.",
    )
    retry_backoff_ms: int = setting(
        20,
        key="controller.quorum.retry.backoff.ms",
        at_least=0,
        doc="The wait before a failed request is tried again.",
    )
    fetch_wait_ms_max: int = setting(
        500,
        key="controller.quorum.fetch.max.wait.ms",
        at_least=0,
        doc="How long the leader parks a fetch that has nothing to answer with.",
    )
    fetch_bytes_max: int = setting(
        MIB,
        key="controller.quorum.fetch.max.bytes",
        at_least=1,
        doc="The most record bytes of one fetch answer; a larger single batch is sent alone.",
    )
    fetch_snapshot_bytes_max: int = setting(
        MIB,
        key="controller.quorum.fetch.snapshot.max.bytes",
        at_least=1,
        doc="The most bytes of a snapshot that one answer carries.",
    )
    snapshot_bytes_between: int = setting(
        20 * MIB,
        key="metadata.log.max.record.bytes.between.snapshots",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Record bytes after which the next snapshot is written.",
    )
    snapshot_interval_ms_max: int = setting(
        3_600_000,
        key="metadata.log.max.snapshot.interval.ms",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Time after which the next snapshot is written if anything changed; 0 switches it off.",
    )
    segment_bytes: int = setting(
        GIB,
        key="metadata.log.segment.bytes",
        at_least=12,
        doc="Size at which the metadata log rolls to its next segment.",
    )
    segment_ms: int = setting(
        604_800_000,
        key="metadata.log.segment.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Age at which the metadata log rolls to its next segment.",
    )
    retention_bytes_max: int = setting(
        100 * MIB,
        key="metadata.max.retention.bytes",
        kind=SettingKind.LONG,
        doc="Size of log and snapshots above which old ones go; the newest snapshot always stays.",
    )
    retention_ms_max: int = setting(
        604_800_000,
        key="metadata.max.retention.ms",
        kind=SettingKind.LONG,
        doc="Age above which old snapshots and the log below them go.",
    )
    idle_interval_ms_max: int = setting(
        500,
        key="metadata.max.idle.interval.ms",
        at_least=0,
        doc="How often an idle leader writes a no-op record; 0 switches it off.",
    )
