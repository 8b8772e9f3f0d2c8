"""How groups of consumers are coordinated, and how their offsets are kept."""

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX, MIB
from ottla.model.settings.declare import SettingKind, definitions, setting
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
"""Pairs of settings of which the second may not be below the first."""


MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def migration_policy(text: str) -> str:
    """one of bidirectional, upgrade, downgrade, disabled, in either case."""
    found = text.lower()
    if found not in MIGRATION_POLICIES:
        raise ValueError(text)
    return found


@frozen(kw_only=True)
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
        kind=SettingKind.LONG,
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
        kind=SettingKind.SHORT,
        at_least=1,
        doc="Replicas of the topic that holds committed offsets.",
    )
    offsets_topic_segment_bytes: int = setting(
        100 * MIB,
        key="offsets.topic.segment.bytes",
        at_least=MIB,
        doc="Size of a segment of the offsets topic. Smaller loads and compacts faster.",
    )
    rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer"),
        key="group.coordinator.rebalance.protocols",
        one_of=("classic", "consumer"),
        doc="Which protocols groups may use; classic must be among them.",
    )
    consumer_session_timeout_ms: int = setting(
        45_000,
        key="group.consumer.session.timeout.ms",
        at_least=1,
        doc="How long a member of the consumer protocol may be silent before it is removed.",
    )
    consumer_session_timeout_ms_min: int = setting(
        45_000,
        key="group.consumer.min.session.timeout.ms",
        at_least=1,
        doc="The shortest session timeout that a group of the consumer protocol may be given.",
    )
    consumer_session_timeout_ms_max: int = setting(
        60_000,
        key="group.consumer.max.session.timeout.ms",
        at_least=1,
        doc="The longest session timeout that a group of the consumer protocol may be given.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        5_000,
        key="group.consumer.heartbeat.interval.ms",
        at_least=1,
        doc="How often members of the consumer protocol are told to send a heartbeat. A change of "
        "the assignment reaches them with the next one.",
    )
    consumer_heartbeat_interval_ms_min: int = setting(
        5_000,
        key="group.consumer.min.heartbeat.interval.ms",
        at_least=1,
        doc="The shortest heartbeat interval that a group of the consumer protocol may be given.",
    )
    consumer_heartbeat_interval_ms_max: int = setting(
        15_000,
        key="group.consumer.max.heartbeat.interval.ms",
        at_least=1,
        doc="The longest heartbeat interval that a group of the consumer protocol may be given.",
    )
    consumer_assignment_interval_ms: int = setting(
        0,
        key="group.consumer.assignment.interval.ms",
        at_least=0,
        doc="The shortest time between two assignments of a group of the consumer protocol. What "
        "changes within it is assigned together, and members that join wait for that. Kafka 4.4's "
        "default is 1000.",
    )
    consumer_assignment_interval_ms_min: int = setting(
        0,
        key="group.consumer.min.assignment.interval.ms",
        at_least=0,
        doc="The shortest assignment interval that a group may be given.",
    )
    consumer_assignment_interval_ms_max: int = setting(
        15_000,
        key="group.consumer.max.assignment.interval.ms",
        at_least=0,
        doc="The longest assignment interval that a group may be given.",
    )
    consumer_size_max: int = setting(
        INT32_MAX,
        key="group.consumer.max.size",
        at_least=1,
        doc="The most members of one group of the consumer protocol.",
    )
    consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        key="group.consumer.assignors",
        one_of=("uniform", "range"),
        doc="The assignors that groups of the consumer protocol may choose of; the first is taken "
        "where no member asks for one.",
    )
    consumer_migration_policy: str = setting(
        "bidirectional",
        key="group.consumer.migration.policy",
        parse=migration_policy,
        doc="Whether a group may go over from the classic protocol to the consumer protocol "
        "(upgrade), back (downgrade), both or neither while it has members.",
    )
    consumer_regex_refresh_interval_ms: int = setting(
        600_000,
        key="group.consumer.regex.refresh.interval.ms",
        at_least=10_000,
        doc="How often regular expressions of subscriptions are resolved again for the principals "
        "that subscribe by them, where an authorizer is set: one that was silent since then limits "
        "no longer which topics are seen. Changes of topics and of ACLs are followed at once.",
    )

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
        """How long offsets are kept, in milliseconds."""
        return self.offsets_retention_minutes * 60_000
