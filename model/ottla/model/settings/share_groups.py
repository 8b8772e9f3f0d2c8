"""Settings of share groups (KIP-932): the cluster's settings, and the settings of a single
group."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.declare import definitions, setting
from ottla.model.settings.offset_reset import LATEST, NONE, offset_reset_text
from ottla.model.values import frozen

BACKOFF_MS_MAX = 24 * 3_600_000
"""Maximum back-off between two deliveries of a record, in ms: one day."""
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


@frozen(kw_only=True)
class ShareGroupConfig:
    """Settings that apply to all share groups. All brokers should have the same values."""

    session_timeout_ms: int = setting(
        45_000,
        key="group.share.session.timeout.ms",
        at_least=1,
        doc="Time without a heartbeat after which a member of a share group is removed.",
    )
    session_timeout_ms_min: int = setting(
        45_000,
        key="group.share.min.session.timeout.ms",
        at_least=1,
        doc="Minimum of a share group's session timeout.",
    )
    session_timeout_ms_max: int = setting(
        60_000,
        key="group.share.max.session.timeout.ms",
        at_least=1,
        doc="Maximum of a share group's session timeout.",
    )
    heartbeat_interval_ms: int = setting(
        5_000,
        key="group.share.heartbeat.interval.ms",
        at_least=1,
        doc="Interval at which members of share groups must send heartbeats. A new assignment "
        "reaches a member with its next heartbeat.",
    )
    heartbeat_interval_ms_min: int = setting(
        5_000,
        key="group.share.min.heartbeat.interval.ms",
        at_least=1,
        doc="Minimum of a share group's heartbeat interval.",
    )
    heartbeat_interval_ms_max: int = setting(
        15_000,
        key="group.share.max.heartbeat.interval.ms",
        at_least=1,
        doc="Maximum of a share group's heartbeat interval.",
    )
    assignment_interval_ms: int = setting(
        1_000,
        key="group.share.assignment.interval.ms",
        at_least=0,
        is_dynamic=True,
        doc="Minimum interval between two assignments of a share group. Changes within the "
        "interval are assigned together, and joining members wait for it.",
    )
    assignment_interval_ms_min: int = setting(
        0,
        key="group.share.min.assignment.interval.ms",
        at_least=0,
        doc="Minimum of a share group's assignment interval.",
    )
    assignment_interval_ms_max: int = setting(
        15_000,
        key="group.share.max.assignment.interval.ms",
        at_least=0,
        doc="Maximum of a share group's assignment interval.",
    )
    record_lock_duration_ms: int = setting(
        30_000,
        key="group.share.record.lock.duration.ms",
        at_least=1_000,
        at_most=3_600_000,
        doc="Time for which a record that was delivered to one consumer of a share group is not "
        "delivered to another one. Shorter repeats the work of slow consumers; longer delays the "
        "records of dead ones.",
    )
    record_lock_duration_ms_min: int = setting(
        15_000,
        key="group.share.min.record.lock.duration.ms",
        at_least=1_000,
        at_most=30_000,
        doc="Minimum of a share group's record lock duration.",
    )
    record_lock_duration_ms_max: int = setting(
        60_000,
        key="group.share.max.record.lock.duration.ms",
        at_least=30_000,
        at_most=3_600_000,
        doc="Maximum of a share group's record lock duration.",
    )
    delivery_count_limit: int = setting(
        5,
        key="group.share.delivery.count.limit",
        at_least=2,
        at_most=10,
        doc="Maximum number of deliveries of a record to a share group.",
    )
    delivery_count_limit_min: int = setting(
        2,
        key="group.share.min.delivery.count.limit",
        at_least=2,
        at_most=5,
        doc="Minimum of a share group's delivery count limit.",
    )
    delivery_count_limit_max: int = setting(
        10,
        key="group.share.max.delivery.count.limit",
        at_least=5,
        at_most=25,
        doc="Maximum of a share group's delivery count limit.",
    )
    partition_max_record_locks: int = setting(
        2_000,
        key="group.share.partition.max.record.locks",
        at_least=100,
        at_most=10_000,
        doc="Maximum number of records of one partition between the oldest unsettled and the "
        "newest delivered one in a share group.",
    )
    partition_max_record_locks_min: int = setting(
        100,
        key="group.share.min.partition.max.record.locks",
        at_least=100,
        at_most=2_000,
        doc="Minimum of a share group's record locks per partition.",
    )
    partition_max_record_locks_max: int = setting(
        4_000,
        key="group.share.max.partition.max.record.locks",
        at_least=2_000,
        at_most=10_000,
        doc="Maximum of a share group's record locks per partition.",
    )
    size_max: int = setting(
        200,
        key="group.share.max.size",
        at_least=1,
        at_most=1_000,
        doc="Maximum number of members of a share group.",
    )
    session_count_max: int = setting(
        2_000,
        key="group.share.max.share.sessions",
        at_least=1,
        doc="Maximum number of share sessions of a broker; not below group.share.max.size.",
    )
    assignors: tuple[str, ...] = setting(
        ("simple",),
        key="group.share.assignors",
        doc="Assignor of share groups, of which there is one.",
    )
    initialize_retry_interval_ms: int = setting(
        30_000,
        key="group.share.initialize.retry.interval.ms",
        at_least=1,
        doc="Interval at which a share group repeats the initialisation of partitions whose "
        "coordinator did not confirm it; not below offsets.commit.timeout.ms.",
    )

    def __post_init__(self) -> None:
        for bound in BOUNDED:
            low, value, high = bound.values_of(self)
            if value < low:
                raise ConfigError(
                    bound.key,
                    f"is {value}; it must not be below {bound.min_key}, which is {low}",
                )
            if value > high:
                raise ConfigError(
                    bound.max_key, f"is {high}; it must not be below {bound.key}, which is {value}"
                )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                "group.share.heartbeat.interval.ms",
                f"is {self.heartbeat_interval_ms}; it must be below "
                f"group.share.session.timeout.ms, which is {self.session_timeout_ms}",
            )
        if self.session_count_max < self.size_max:
            raise ConfigError(
                "group.share.max.share.sessions",
                f"is {self.session_count_max}; it must not be below group.share.max.size, which is "
                f"{self.size_max}",
            )
        if self.assignors != ("simple",):
            raise ConfigError(
                "group.share.assignors", f"is {','.join(self.assignors)}; it must be simple"
            )


class ShareBound(NamedTuple):
    """A setting of share groups for which the cluster has a default, a minimum and a maximum."""

    noun: str
    field_name: str

    @property
    def key(self) -> str:
        """Broker key that sets the default value for all share groups."""
        return f"group.share.{self.noun}"

    @property
    def group_key(self) -> str:
        """Key that sets the value for one share group."""
        return f"share.{self.noun}"

    @property
    def min_key(self) -> str:
        """Broker key that sets the minimum value for all share groups."""
        return f"group.share.min.{self.noun}"

    @property
    def max_key(self) -> str:
        """Broker key that sets the maximum value for all share groups."""
        return f"group.share.max.{self.noun}"

    def values_of(self, config: ShareGroupConfig) -> tuple[int, int, int]:
        """Return the minimum, the default and the maximum of the setting in `config`."""
        return (
            getattr(config, f"{self.field_name}_min"),
            getattr(config, self.field_name),
            getattr(config, f"{self.field_name}_max"),
        )


BOUNDED = (
    ShareBound("heartbeat.interval.ms", "heartbeat_interval_ms"),
    ShareBound("session.timeout.ms", "session_timeout_ms"),
    ShareBound("assignment.interval.ms", "assignment_interval_ms"),
    ShareBound("record.lock.duration.ms", "record_lock_duration_ms"),
    ShareBound("delivery.count.limit", "delivery_count_limit"),
    ShareBound("partition.max.record.locks", "partition_max_record_locks"),
)


def share_offset_reset(text: str) -> str:
    """earliest, latest or by_duration:DURATION, an ISO-8601 duration such as PT1H30M.

    Checks the text of `share.auto.offset.reset` and returns it. Raises ValueError for any other
    text. Error messages quote the first line as the description of valid texts.
    """
    if text == NONE:
        raise ValueError(text)
    return offset_reset_text(text)


@frozen(kw_only=True)
class ShareGroupSettings:
    """Effective settings of one share group: its own settings, and the brokers' defaults for all
    others."""

    session_timeout_ms: int = setting(
        45_000,
        key="share.session.timeout.ms",
        at_least=1,
        broker_keys=("group.share.session.timeout.ms",),
        doc="Time without a heartbeat after which a member of the share group is removed.",
    )
    heartbeat_interval_ms: int = setting(
        5_000,
        key="share.heartbeat.interval.ms",
        at_least=1,
        broker_keys=("group.share.heartbeat.interval.ms",),
        doc="Interval at which members of the share group must send heartbeats.",
    )
    assignment_interval_ms: int = setting(
        1_000,
        key="share.assignment.interval.ms",
        at_least=0,
        broker_keys=("group.share.assignment.interval.ms",),
        doc="Minimum interval between two assignments of the share group.",
    )
    record_lock_duration_ms: int = setting(
        30_000,
        key="share.record.lock.duration.ms",
        at_least=1_000,
        broker_keys=("group.share.record.lock.duration.ms",),
        doc="Time for which a delivered record is not delivered to another consumer.",
    )
    delivery_count_limit: int = setting(
        5,
        key="share.delivery.count.limit",
        at_least=2,
        broker_keys=("group.share.delivery.count.limit",),
        doc="Maximum number of deliveries of a record.",
    )
    partition_max_record_locks: int = setting(
        2_000,
        key="share.partition.max.record.locks",
        at_least=100,
        broker_keys=("group.share.partition.max.record.locks",),
        doc="Maximum number of records of one partition between the oldest unsettled and the "
        "newest delivered one.",
    )
    offset_reset: str = setting(
        LATEST,
        key="share.auto.offset.reset",
        parse=share_offset_reset,
        doc="Start offset of a partition that the group has not consumed: earliest, latest, or "
        "by_duration:DURATION for the records of this duration before now.",
    )
    isolation_level: str = setting(
        READ_UNCOMMITTED,
        key="share.isolation.level",
        one_of=(READ_COMMITTED, READ_UNCOMMITTED),
        doc="Whether records of open and aborted transactions are delivered.",
    )
    is_renew_enabled: bool = setting(
        True,
        key="share.renew.acknowledge.enable",
        doc="Whether consumers may renew the locks of records (KIP-1222).",
    )
    dead_letter_topic: str = setting(
        "",
        key="errors.deadletterqueue.topic.name",
        doc="Topic that gets a dead letter of each record that is rejected, or has no delivery "
        "left; empty for none (KIP-1191). It needs errors.deadletterqueue.group.enable=true.",
    )
    has_whole_dead_letters: bool = setting(
        False,
        key="errors.deadletterqueue.copy.record.enable",
        doc="Whether a dead letter contains the record's key, value, headers and timestamp.",
    )

    backoff_ms_min: int = setting(
        0,
        key="ottla.share.backoff.min.ms",
        at_least=0,
        at_most=BACKOFF_MS_MAX,
        doc="Minimum time between two deliveries of a record. It doubles with each delivery, up to "
        "ottla.share.backoff.max.ms, and has jitter. 0 delivers a released record at once. After "
        "the leader of the partition has changed, a back-off begins again.",
    )
    backoff_ms_max: int = setting(
        600_000,
        key="ottla.share.backoff.max.ms",
        at_least=1,
        at_most=BACKOFF_MS_MAX,
        doc="Maximum time between two deliveries of a record, if there is a minimum; not below it.",
    )
    key_concurrency: int = setting(
        0,
        key="ottla.share.key.concurrency",
        at_least=0,
        at_most=1_000,
        doc="Maximum number of records with equal key that are in flight in one partition. 1 "
        "delivers the records of a key in order, one after the other. 0 ignores keys.",
    )
    has_priority: bool = setting(
        False,
        key="ottla.share.priority.enable",
        doc="Whether the header ottla.priority (high, normal or low) decides which records are "
        "delivered earlier: 4, 2 and 1 of 7 as long as all three have records.",
    )
    look_ahead_records: int = setting(
        100_000,
        key="ottla.share.lookahead.records",
        at_least=1_000,
        at_most=1_000_000,
        doc="Maximum number of unsettled records of one partition that are in memory while records "
        "are delayed, in back-off, ordered by key or by priority. A record overtakes only these. "
        "The leader needs 150 to 500 bytes for each.",
    )


SHARE_GROUP_DEFINITIONS = definitions(ShareGroupSettings)


def capped(
    values: Mapping[str, Any], config: ShareGroupConfig
) -> tuple[ShareGroupSettings, list[str]]:
    """Return the effective settings of a share group, and a warning for each of its values that is
    outside the cluster's bounds.

    `values` contains the values that are set for the group, by field name. A value may have been
    stored before the cluster's bounds excluded it. The nearest allowed value is then used, as in
    Kafka (KIP-1240).
    """
    effective: dict[str, Any] = dict(values)
    warnings = []
    for bound in BOUNDED:
        low, default, high = bound.values_of(config)
        value = effective.setdefault(bound.field_name, default)
        if not low <= value <= high:
            effective[bound.field_name] = nearest = min(max(value, low), high)
            key = bound.min_key if value < low else bound.max_key
            warnings.append(
                f"{bound.group_key} is {value}; it counts as {nearest} because of {key}"
            )
    return ShareGroupSettings(**effective), warnings


def check_share_texts(settings: ShareGroupSettings, config: ShareGroupConfig) -> None:
    """Raise RefusedError(INVALID_CONFIG) if a setting of a share group is outside the cluster's
    bounds, or if the group's dead letter topic is an internal topic."""
    for bound in BOUNDED:
        value = getattr(settings, bound.field_name)
        low, _, high = bound.values_of(config)
        if value < low:
            reason = f"{bound.group_key} must be greater than or equal to {bound.min_key}"
            raise RefusedError(ErrorCode.INVALID_CONFIG, reason)
        if value > high:
            reason = f"{bound.group_key} must be less than or equal to {bound.max_key}"
            raise RefusedError(ErrorCode.INVALID_CONFIG, reason)
    if settings.session_timeout_ms <= settings.heartbeat_interval_ms:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "share.session.timeout.ms must be greater than share.heartbeat.interval.ms",
        )
    if settings.backoff_ms_min > settings.backoff_ms_max:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "ottla.share.backoff.min.ms must not be above ottla.share.backoff.max.ms",
        )
    if settings.dead_letter_topic.startswith("__"):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        )
