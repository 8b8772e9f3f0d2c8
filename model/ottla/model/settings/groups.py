"""Settings of the group coordinator, and of the offsets that groups commit."""

from collections.abc import Mapping
from dataclasses import field

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX, MIB
from ottla.model.settings.declare import SettingKind, definitions, setting, values_of
from ottla.model.settings.share_groups import ShareGroupConfig
from ottla.model.values import frozen

ORDERED = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
)
"""Pairs of field names. In each pair, the value of the second field must not be below that of the
first."""


MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def migration_policy(text: str) -> str:
    """one of bidirectional, upgrade, downgrade, disabled, in either case.

    Returns the value of `group.consumer.migration.policy` in lower case. Raises ValueError for any
    other text. Error messages quote the first line as the description of valid texts.
    """
    found = text.lower()
    if found not in MIGRATION_POLICIES:
        raise ValueError(text)
    return found


@frozen(kw_only=True)
class GroupConfig:
    """Settings of the group coordinator. All brokers should have the same values."""

    session_timeout_ms_min: int = setting(
        6_000,
        key="group.min.session.timeout.ms",
        at_least=0,
        doc="Minimum session timeout that a member may request. Shorter detects a dead member "
        "sooner and costs more heartbeats.",
    )
    session_timeout_ms_max: int = setting(
        1_800_000,
        key="group.max.session.timeout.ms",
        at_least=0,
        doc="Maximum session timeout that a member may request.",
    )
    initial_rebalance_delay_ms: int = setting(
        3_000,
        key="group.initial.rebalance.delay.ms",
        at_least=0,
        doc="Time for which an empty group waits for more members before its first rebalance.",
    )
    size_max: int = setting(
        INT32_MAX,
        key="group.max.size",
        at_least=1,
        doc="Maximum number of members of a group.",
    )
    offset_metadata_bytes_max: int = setting(
        4_096,
        key="offset.metadata.max.bytes",
        doc="Maximum size of the metadata of a committed offset.",
    )
    offsets_commit_timeout_ms: int = setting(
        5_000,
        key="offsets.commit.timeout.ms",
        at_least=1,
        doc="Maximum time that a commit waits for the replicas of the offsets topic.",
    )
    offsets_retention_minutes: int = setting(
        7 * 24 * 60,
        key="offsets.retention.minutes",
        at_least=1,
        doc="Time for which the offsets of an empty group are kept; for offsets committed without "
        "group membership, counted from the last commit.",
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000,
        key="offsets.retention.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval between checks for expired offsets.",
    )
    offsets_topic_num_partitions: int = setting(
        50,
        key="offsets.topic.num.partitions",
        at_least=1,
        doc="Number of partitions of the offsets topic.",
    )
    offsets_topic_replication_factor: int = setting(
        3,
        key="offsets.topic.replication.factor",
        kind=SettingKind.SHORT,
        at_least=1,
        doc="Replication factor of the offsets topic.",
    )
    offsets_topic_segment_bytes: int = setting(
        100 * MIB,
        key="offsets.topic.segment.bytes",
        at_least=MIB,
        doc="Segment size of the offsets topic. Smaller loads and compacts faster.",
    )
    rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer"),
        key="group.coordinator.rebalance.protocols",
        one_of=("classic", "consumer"),
        doc="Protocols that groups may use; classic must be among them.",
    )
    consumer_session_timeout_ms: int = setting(
        45_000,
        key="group.consumer.session.timeout.ms",
        at_least=1,
        doc="Time without a heartbeat after which a member of the consumer protocol is removed.",
    )
    consumer_session_timeout_ms_min: int = setting(
        45_000,
        key="group.consumer.min.session.timeout.ms",
        at_least=1,
        doc="Minimum of a group's session timeout in the consumer protocol.",
    )
    consumer_session_timeout_ms_max: int = setting(
        60_000,
        key="group.consumer.max.session.timeout.ms",
        at_least=1,
        doc="Maximum of a group's session timeout in the consumer protocol.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        5_000,
        key="group.consumer.heartbeat.interval.ms",
        at_least=1,
        doc="Interval at which members of the consumer protocol must send heartbeats. A new "
        "assignment reaches a member with its next heartbeat.",
    )
    consumer_heartbeat_interval_ms_min: int = setting(
        5_000,
        key="group.consumer.min.heartbeat.interval.ms",
        at_least=1,
        doc="Minimum of a group's heartbeat interval in the consumer protocol.",
    )
    consumer_heartbeat_interval_ms_max: int = setting(
        15_000,
        key="group.consumer.max.heartbeat.interval.ms",
        at_least=1,
        doc="Maximum of a group's heartbeat interval in the consumer protocol.",
    )
    consumer_assignment_interval_ms: int = setting(
        0,
        key="group.consumer.assignment.interval.ms",
        at_least=0,
        is_dynamic=True,
        doc="Minimum interval between two assignments of a group of the consumer protocol. Changes "
        "within the interval are assigned together, and joining members wait for it. Kafka 4.4's "
        "default is 1000.",
    )
    consumer_assignment_interval_ms_min: int = setting(
        0,
        key="group.consumer.min.assignment.interval.ms",
        at_least=0,
        doc="Minimum of a group's assignment interval.",
    )
    consumer_assignment_interval_ms_max: int = setting(
        15_000,
        key="group.consumer.max.assignment.interval.ms",
        at_least=0,
        doc="Maximum of a group's assignment interval.",
    )
    consumer_size_max: int = setting(
        INT32_MAX,
        key="group.consumer.max.size",
        at_least=1,
        doc="Maximum number of members of a group of the consumer protocol.",
    )
    consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        key="group.consumer.assignors",
        one_of=("uniform", "range"),
        doc="Assignors that groups of the consumer protocol may use; the first is used if no "
        "member requests one.",
    )
    consumer_migration_policy: str = setting(
        "bidirectional",
        key="group.consumer.migration.policy",
        parse=migration_policy,
        doc="Whether a group may switch from the classic protocol to the consumer protocol "
        "(upgrade), back (downgrade), both or neither while it has members.",
    )
    consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        key="group.consumer.regex.refresh.interval.ms",
        at_least=10_000,
        doc="Interval at which regular expressions of subscriptions are resolved again for the "
        "principals that use them, if there is an authorizer. A principal whose members sent no "
        "heartbeat in the interval no longer restricts the topics. Changes of topics and of ACLs "
        "take effect at once.",
    )
    share: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    """Settings of share groups (KIP-932), which the group coordinator also manages."""

    def __post_init__(self) -> None:
        for lower, upper in ORDERED:
            known = definitions(GroupConfig)
            low = getattr(self, known[lower].field_name)
            high = getattr(self, known[upper].field_name)
            if high < low:
                raise ConfigError(upper, f"is {high}; it must not be below {lower}, which is {low}")
        if "classic" not in self.rebalance_protocols:
            raise ConfigError(
                "group.coordinator.rebalance.protocols",
                f"is {','.join(self.rebalance_protocols)}; classic must be among them",
            )
        if not self.consumer_assignors:
            raise ConfigError("group.consumer.assignors", "is empty; name at least one assignor")
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                "group.consumer.heartbeat.interval.ms",
                f"is {self.consumer_heartbeat_interval_ms}; it must be below "
                f"group.consumer.session.timeout.ms, which is {self.consumer_session_timeout_ms}",
            )

    @property
    def offsets_retention_ms(self) -> int:
        """Time in ms for which the committed offsets of a group without members are kept."""
        return self.offsets_retention_minutes * 60_000


def group_config_of(texts: Mapping[str, str]) -> tuple[GroupConfig, set[str]]:
    """Parse the settings of classic, consumer and share groups from texts by key. Returns the
    settings, and the keys that are no settings of groups."""
    groups, unknown = values_of(GroupConfig, texts)
    share, unknown_to_share = values_of(ShareGroupConfig, texts)
    return GroupConfig(**groups, share=ShareGroupConfig(**share)), unknown & unknown_to_share
