"""How groups of consumers are coordinated, and how their offsets are kept."""

from dataclasses import dataclass

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX, MIB
from ottla.model.settings.declare import Kind, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of the group coordinator; all brokers should have the same."""

    session_timeout_ms_min: int = setting(
        6_000,
        key="group.min.session.timeout.ms",
        at_least=0,
        doc="The shortest session timeout a member may ask for. Shorter finds a dead member "
        "sooner and costs more heartbeats.",
    )
    session_timeout_ms_max: int = setting(
        1_800_000,
        key="group.max.session.timeout.ms",
        at_least=0,
        doc="The longest session timeout a member may ask for.",
    )
    initial_rebalance_delay_ms: int = setting(
        3_000,
        key="group.initial.rebalance.delay.ms",
        at_least=0,
        doc="How long an empty group waits for more members before its first rebalance.",
    )
    size_max: int = setting(
        INT32_MAX,
        key="group.max.size",
        at_least=1,
        doc="The most members of one group.",
    )
    offset_metadata_bytes_max: int = setting(
        4_096,
        key="offset.metadata.max.bytes",
        doc="The longest text that may be kept with a committed offset.",
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        key="offsets.commit.timeout.ms",
        at_least=1,
        doc="How long a commit may wait for the replicas of the offsets topic.",
    )
    offsets_retention_minutes: int = setting(
        7 * 24 * 60,
        key="offsets.retention.minutes",
        at_least=1,
        doc="How long the offsets of an empty group are kept; where no group is used, how long "
        "after the last commit.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000,
        key="offsets.retention.check.interval.ms",
        kind=Kind.LONG,
        at_least=1,
        doc="How often offsets are checked against their retention.",
    )
    offsets_topic_num_partitions: int = setting(
        50,
        key="offsets.topic.num.partitions",
        at_least=1,
        doc="Partitions of the topic that holds committed offsets.",
    )
    offsets_topic_replication_factor: int = setting(
        3,
        key="offsets.topic.replication.factor",
        kind=Kind.SHORT,
        at_least=1,
        doc="Replicas of the topic that holds committed offsets.",
    )
    offsets_topic_segment_bytes: int = setting(
        100 * MIB,
        key="offsets.topic.segment.bytes",
        at_least=1,
        doc="Size of a segment of the offsets topic. Smaller loads and compacts faster.",
    )

    def __post_init__(self) -> None:
        if self.session_timeout_ms_max < self.session_timeout_ms_min:
            raise ConfigError(
                "group.max.session.timeout.ms",
                f"is {self.session_timeout_ms_max}; it must not be below "
                f"group.min.session.timeout.ms, which is {self.session_timeout_ms_min}",
            )

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets are kept, in milliseconds."""
        return self.offsets_retention_minutes * 60_000
