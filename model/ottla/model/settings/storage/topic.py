"""The settings of one topic, and the broker settings that supply their defaults."""

from collections.abc import Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.limits import DECOMPRESSED_RECORD_BYTES_MAX, GIB, INT64_MAX, MIB
from ottla.model.settings.declare import Definition, SettingKind, definitions, load, setting
from ottla.model.settings.storage.throttled_replicas import ThrottledReplicas, throttled_replicas
from ottla.model.values import frozen

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

LONGER_UNITS = {
    "log.retention.minutes": MINUTE_MS,
    "log.retention.hours": HOUR_MS,
    "log.roll.hours": HOUR_MS,
    "log.roll.jitter.hours": HOUR_MS,
}
"""Broker keys with values in hours or minutes that supply the default of a topic setting in ms.
Each has the number of milliseconds per unit."""

NO_SHARE_DELAY_MS = -1
"""Value, in ms, of the delay setting that disables delayed delivery in share groups: records are
not examined for a delay."""

NO_REPLICAS = ThrottledReplicas()

REMOTE_STORAGE_ENABLE = "remote.storage.enable"
SAME_AS_RETENTION = -2
"""Value of local.retention.ms and local.retention.bytes that means "the same as the topic's
retention"."""

MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"


@frozen(kw_only=True)
class TopicConfig:
    """Settings of one topic. A change takes effect at once."""

    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        key="cleanup.policy",
        one_of=("delete", "compact"),
        broker_keys=("log.cleanup.policy",),
        doc="Treatment of old segments: deleted by age and size, compacted by key, or both.",
    )
    compression_type: str = setting(
        "producer",
        key="compression.type",
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_keys=("compression.type",),
        doc="Codec in which batches are stored; 'producer' keeps the producer's codec.",
    )
    compression_gzip_level: int = setting(
        -1,
        key="compression.gzip.level",
        at_least=-1,
        at_most=9,
        none_of=(0,),
        broker_keys=("compression.gzip.level",),
        doc="Level of gzip, if that is the compression.type; -1 is the library's default.",
    )
    compression_lz4_level: int = setting(
        9,
        key="compression.lz4.level",
        at_least=1,
        at_most=17,
        broker_keys=("compression.lz4.level",),
        doc="Level of lz4, if that is the compression.type; 9 is lz4's fast compressor.",
    )
    compression_zstd_level: int = setting(
        3,
        key="compression.zstd.level",
        at_least=-131_072,
        at_most=22,
        broker_keys=("compression.zstd.level",),
        doc="Level of zstd, if that is the compression.type.",
    )
    delete_retention_ms: int = setting(
        DAY_MS,
        key="delete.retention.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.cleaner.delete.retention.ms",),
        doc="Time for which a tombstone of a compacted topic remains readable.",
    )
    gets_dead_letters: bool = setting(
        False,
        key="errors.deadletterqueue.group.enable",
        doc="Whether share groups may write dead letters to this topic (KIP-1191).",
    )
    file_delete_delay_ms: int = setting(
        MINUTE_MS,
        key="file.delete.delay.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.segment.delete.delay.ms",),
        doc="Time for which a removed file remains on disk for reads under way.",
    )
    flush_messages: int = setting(
        INT64_MAX,
        key="flush.messages",
        kind=SettingKind.LONG,
        at_least=1,
        broker_keys=("log.flush.interval.messages",),
        doc="Number of records after which the log is flushed to disk; 1 flushes before every "
        "response.",
    )
    flush_ms: int = setting(
        INT64_MAX,
        key="flush.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Time after which written records are flushed to disk.",
    )
    follower_replication_throttled_replicas: ThrottledReplicas = setting(
        NO_REPLICAS,
        key="follower.replication.throttled.replicas",
        kind=SettingKind.LIST,
        parse=throttled_replicas,
        doc="Replicas throttled on the follower's side, as partition:broker each, or *.",
    )
    index_interval_bytes: int = setting(
        4_096,
        key="index.interval.bytes",
        at_least=0,
        broker_keys=("log.index.interval.bytes",),
        doc="Log bytes between two index entries. Smaller speeds up look-ups; larger keeps indexes "
        "small.",
    )
    leader_replication_throttled_replicas: ThrottledReplicas = setting(
        NO_REPLICAS,
        key="leader.replication.throttled.replicas",
        kind=SettingKind.LIST,
        parse=throttled_replicas,
        doc="Replicas throttled on the leader's side, as partition:broker each, or *.",
    )
    max_compaction_lag_ms: int = setting(
        INT64_MAX,
        key=MAX_COMPACTION_LAG,
        kind=SettingKind.LONG,
        at_least=1,
        broker_keys=("log.cleaner.max.compaction.lag.ms",),
        doc="Maximum time that a record may remain uncompacted.",
    )
    max_decompressed_message_bytes: int = setting(
        DECOMPRESSED_RECORD_BYTES_MAX,
        key="max.decompressed.message.bytes",
        at_least=1,
        at_most=DECOMPRESSED_RECORD_BYTES_MAX,
        broker_keys=("max.decompressed.message.bytes",),
        doc="Size of the largest accepted record of a compressed batch, decompressed. A smaller "
        "value than the default has the broker decompress and check each compressed batch. Records "
        "that are stored already stay readable and are compacted, unlike in Kafka.",
    )
    max_message_bytes: int = setting(
        MIB + 12,
        key="max.message.bytes",
        at_least=0,
        broker_keys=("message.max.bytes",),
        doc="Size of the largest accepted record batch, as stored.",
    )
    message_timestamp_after_max_ms: int = setting(
        HOUR_MS,
        key="message.timestamp.after.max.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.message.timestamp.after.max.ms",),
        doc="Maximum difference by which a record's timestamp may be ahead of the broker's clock.",
    )
    message_timestamp_before_max_ms: int = setting(
        INT64_MAX,
        key="message.timestamp.before.max.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.message.timestamp.before.max.ms",),
        doc="Maximum difference by which a record's timestamp may be behind the broker's clock.",
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        key="message.timestamp.type",
        one_of=("CreateTime", "LogAppendTime"),
        broker_keys=("log.message.timestamp.type",),
        doc="Source of a record's timestamp: the producer's clock or the broker's.",
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        key="min.cleanable.dirty.ratio",
        at_least=0,
        at_most=1,
        broker_keys=("log.cleaner.min.cleanable.ratio",),
        doc="Fraction of uncompacted bytes above which a log is compacted.",
    )
    min_compaction_lag_ms: int = setting(
        0,
        key=MIN_COMPACTION_LAG,
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.cleaner.min.compaction.lag.ms",),
        doc="Minimum time that a record remains uncompacted.",
    )
    min_insync_replicas: int = setting(
        1,
        key="min.insync.replicas",
        at_least=1,
        broker_keys=("min.insync.replicas",),
        doc="Number of replicas that must be in sync for a produce request with acks=all to be "
        "accepted.",
    )
    share_delay_ms: int = setting(
        NO_SHARE_DELAY_MS,
        key="ottla.share.delay.ms",
        kind=SettingKind.LONG,
        at_least=NO_SHARE_DELAY_MS,
        at_most=365 * DAY_MS,
        doc="Time from the timestamp of a record to its first delivery to share groups, unless the "
        "record has a header ottla.delay.ms or ottla.due.ms. 0 delays records with such a header "
        "only; -1 ignores these headers. Consumers without a share group are not delayed.",
    )
    preallocate: bool = setting(
        False,
        key="preallocate",
        broker_keys=("log.preallocate",),
        doc="Whether a new segment's file is created with its full size.",
    )
    local_retention_bytes: int = setting(
        SAME_AS_RETENTION,
        key="local.retention.bytes",
        kind=SettingKind.LONG,
        at_least=SAME_AS_RETENTION,
        broker_keys=("log.local.retention.bytes",),
        doc="Size of a tiered partition on disk above which its oldest copied segments are deleted "
        "there; -2 is the value of retention.bytes, -1 is unlimited.",
    )
    local_retention_ms: int = setting(
        SAME_AS_RETENTION,
        key="local.retention.ms",
        kind=SettingKind.LONG,
        at_least=SAME_AS_RETENTION,
        broker_keys=("log.local.retention.ms",),
        doc="Age above which copied segments of a tiered partition are deleted on disk; -2 is the "
        "value of retention.ms, -1 is unlimited.",
    )
    remote_copy_lag_bytes: int = setting(
        -1,
        key="remote.copy.lag.bytes",
        kind=SettingKind.LONG,
        at_least=-1,
        broker_keys=("log.remote.copy.lag.bytes",),
        doc="Size of the records after a closed segment from which on it is copied to the object "
        "store; 0 copies it at once, -1 stands for the local retention (KIP-1241).",
    )
    remote_copy_lag_ms: int = setting(
        0,
        key="remote.copy.lag.ms",
        kind=SettingKind.LONG,
        at_least=-1,
        broker_keys=("log.remote.copy.lag.ms",),
        doc="Age from which on a closed segment is copied to the object store; 0 copies it at "
        "once, -1 stands for the local retention (KIP-1241).",
    )
    remote_log_copy_disable: bool = setting(
        False,
        key="remote.log.copy.disable",
        doc="Whether a tiered topic gets no further copies; those that it has stay readable.",
    )
    remote_log_delete_on_disable: bool = setting(
        False,
        key="remote.log.delete.on.disable",
        doc="Whether all copies of the topic are deleted when remote.storage.enable becomes false; "
        "it can become false only with this.",
    )
    remote_storage_enable: bool = setting(
        False,
        key=REMOTE_STORAGE_ENABLE,
        doc="Whether closed segments are copied to the object store of tiered storage, and deleted "
        "on disk by local.retention.ms and local.retention.bytes.",
    )
    record_validation: str = setting(
        "header",
        key="record.validation",
        one_of=("header", "full"),
        doc="Ottla's own: validation of batch headers only, or of every record. Always full if the "
        "topic is compacted or recompressed.",
    )
    retention_bytes: int = setting(
        -1,
        key="retention.bytes",
        kind=SettingKind.LONG,
        broker_keys=("log.retention.bytes",),
        doc="Size of a partition above which its oldest segments are deleted; -1 is unlimited.",
    )
    retention_ms: int = setting(
        7 * DAY_MS,
        key="retention.ms",
        kind=SettingKind.LONG,
        at_least=-1,
        broker_keys=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="Age above which segments are deleted; -1 is unlimited.",
    )
    segment_bytes: int = setting(
        GIB,
        key="segment.bytes",
        at_least=MIB,
        broker_keys=("log.segment.bytes",),
        doc="Size at which a partition's log rolls to a new segment.",
    )
    segment_index_bytes: int = setting(
        10 * MIB,
        key="segment.index.bytes",
        at_least=4,
        broker_keys=("log.index.size.max.bytes",),
        doc="Maximum size of an index file; a full index rolls the segment.",
    )
    segment_jitter_ms: int = setting(
        0,
        key="segment.jitter.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="Maximum of a random time that is subtracted from segment.ms, so that segments do not "
        "all roll at once.",
    )
    segment_ms: int = setting(
        7 * DAY_MS,
        key="segment.ms",
        kind=SettingKind.LONG,
        at_least=1,
        broker_keys=("log.roll.ms", "log.roll.hours"),
        doc="Age at which a partition's log rolls to a new segment.",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        key="unclean.leader.election.enable",
        broker_keys=("unclean.leader.election.enable",),
        doc="Whether a replica that may lack acknowledged records can become leader if no other is "
        "left.",
    )

    @property
    def is_compacted(self) -> bool:
        """True if the logs of the topic are compacted."""
        return "compact" in self.cleanup_policy

    @classmethod
    def from_texts(
        cls, overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ) -> "TopicConfig":
        """Create the settings of a topic from `overrides`, which are set on the topic, and from
        `defaults`. Both are given by topic key.

        Unknown keys are ignored. Raises ConfigError for an invalid value.
        """
        texts = {**(defaults or {}), **overrides}
        return load(cls, texts)[0]


TOPIC_DEFAULTS = TopicConfig()
"""Settings of a topic if neither the topic nor the brokers set any."""

TOPIC_DEFINITIONS: Mapping[str, Definition] = definitions(TopicConfig)

BROKER_TO_TOPIC: dict[str, str] = {
    broker_key: definition.key
    for definition in definitions(TopicConfig).values()
    for broker_key in definition.broker_keys
}
"""Topic key by broker key, for the broker settings that supply the default of a topic setting."""


_HOURS_OF_DAYS = str(7 * 24)
UNSET_DEFAULTS: Mapping[str, str | None] = {
    "log.retention.ms": None,
    "log.retention.minutes": None,
    "log.retention.hours": _HOURS_OF_DAYS,
    "log.roll.ms": None,
    "log.roll.hours": _HOURS_OF_DAYS,
    "log.roll.jitter.ms": None,
    "log.roll.jitter.hours": "0",
    "log.flush.interval.ms": None,
}
"""Kafka's defaults of broker keys whose topic setting has a different default. None means that the
key has no default. If several broker keys supply one topic setting, at most one of them has a
default."""

RETENTION_TIMES = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
"""Broker keys of retention times. Any negative value means unlimited retention. Zero is refused."""


def _default_definition(broker_key: str, topic_key: str) -> Definition:
    """Return the declaration of a broker key, by Kafka's rules for brokers."""
    of_topic = TOPIC_DEFINITIONS[topic_key]
    own = replace(
        of_topic,
        key=broker_key,
        default=UNSET_DEFAULTS.get(broker_key, of_topic.default),
        # As in Kafka, only the key in the topic setting's own unit is dynamic.
        is_dynamic=broker_key not in LONGER_UNITS,
    )
    if broker_key in LONGER_UNITS:
        own = replace(own, kind=SettingKind.INT)
    if broker_key in RETENTION_TIMES:
        own = replace(own, at_least=None, none_of=(0,))
    return own


DEFAULT_DEFINITIONS: Mapping[str, Definition] = {
    broker_key: _default_definition(broker_key, topic_key)
    for broker_key, topic_key in BROKER_TO_TOPIC.items()
}
"""Declarations of the broker settings that supply the defaults of topic settings, by broker key."""


def topic_defaults_of(broker_texts: Mapping[str, str]) -> dict[str, str]:
    """Return the default topic settings that a broker's settings contain, by topic key. Raises
    ConfigError if one of them is invalid."""
    found: dict[str, str] = {}
    for definition in definitions(TopicConfig).values():
        for broker_key in definition.broker_keys:
            if broker_key in broker_texts:
                found[definition.key] = as_topic_text(broker_key, broker_texts[broker_key])
                break
    return found


def as_topic_text(broker_key: str, text: str) -> str:
    """Convert the text of a broker key to the text of the topic key whose default it supplies.
    Raises ConfigError if the text is invalid.

    Hours and minutes are converted to milliseconds. An unlimited retention time becomes -1.
    """
    value = DEFAULT_DEFINITIONS[broker_key].value_of(text)
    if broker_key in RETENTION_TIMES and value < 0:
        return "-1"
    unit_ms = LONGER_UNITS.get(broker_key)
    return text.strip() if unit_ms is None else str(value * unit_ms)


def check_topic_texts(texts: Mapping[str, str | None]) -> None:
    """Raise RefusedError(INVALID_CONFIG) if a topic setting is unknown or has an invalid value."""
    for key, text in texts.items():
        definition = TOPIC_DEFINITIONS.get(key)
        if definition is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {key}")
        if text is None:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}"
            )
        try:
            definition.value_of(text)
        except ConfigError as error:
            raise RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_topic_as_a_whole(texts: Mapping[str, str | None]) -> None:
    """Raise RefusedError(INVALID_CONFIG) if the settings of a topic contradict each other.

    `texts` contains all settings that the topic itself will have. Each of them is valid on its own.
    """
    shortest, longest = texts.get(MIN_COMPACTION_LAG), texts.get(MAX_COMPACTION_LAG)
    if shortest is not None and longest is not None and int(shortest) > int(longest):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_COMPACTION_LAG} {shortest} is above {MAX_COMPACTION_LAG} {longest}: nothing "
            "could be compacted in time",
        )
