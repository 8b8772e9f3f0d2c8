"""The settings of one topic, and the broker settings that give them their defaults."""

from collections.abc import Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.limits import GIB, INT64_MAX, MIB
from ottla.model.settings.declare import Definition, SettingKind, definitions, load, setting
from ottla.model.settings.throttled_replicas import ThrottledReplicas, throttled_replicas
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
"""Broker keys whose value is turned to milliseconds before it serves as a topic's default."""

NO_REPLICAS = ThrottledReplicas()

MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"


@frozen(kw_only=True)
class TopicConfig:
    """What an operator may say of one topic; every change takes effect at once."""

    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        key="cleanup.policy",
        one_of=("delete", "compact"),
        broker_keys=("log.cleanup.policy",),
        doc="What becomes of old segments: deleted by age and size, compacted by key, or both.",
    )
    compression_type: str = setting(
        "producer",
        key="compression.type",
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_keys=("compression.type",),
        doc="The codec batches are stored in; 'producer' keeps what the producer chose.",
    )
    compression_gzip_level: int = setting(
        -1,
        key="compression.gzip.level",
        at_least=-1,
        at_most=9,
        none_of=(0,),
        broker_keys=("compression.gzip.level",),
        doc="The gzip level where compression.type is gzip; -1 is the library's default.",
    )
    compression_lz4_level: int = setting(
        9,
        key="compression.lz4.level",
        at_least=1,
        at_most=17,
        broker_keys=("compression.lz4.level",),
        doc="The lz4 level where compression.type is lz4; 9 is lz4's fast compressor.",
    )
    compression_zstd_level: int = setting(
        3,
        key="compression.zstd.level",
        at_least=-131_072,
        at_most=22,
        broker_keys=("compression.zstd.level",),
        doc="The zstd level where compression.type is zstd.",
    )
    delete_retention_ms: int = setting(
        DAY_MS,
        key="delete.retention.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.cleaner.delete.retention.ms",),
        doc="How long a tombstone of a compacted topic stays readable.",
    )
    file_delete_delay_ms: int = setting(
        MINUTE_MS,
        key="file.delete.delay.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.segment.delete.delay.ms",),
        doc="How long a removed file stays on disk for reads under way.",
    )
    flush_messages: int = setting(
        INT64_MAX,
        key="flush.messages",
        kind=SettingKind.LONG,
        at_least=1,
        broker_keys=("log.flush.interval.messages",),
        doc="Records after which the log is flushed to disk; 1 flushes before every answer.",
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
        doc="Replicas throttled on the follower's side, partition:broker each, or *.",
    )
    index_interval_bytes: int = setting(
        4_096,
        key="index.interval.bytes",
        at_least=0,
        broker_keys=("log.index.interval.bytes",),
        doc="Log bytes between two index entries. Smaller finds faster, larger keeps indexes "
        "small.",
    )
    leader_replication_throttled_replicas: ThrottledReplicas = setting(
        NO_REPLICAS,
        key="leader.replication.throttled.replicas",
        kind=SettingKind.LIST,
        parse=throttled_replicas,
        doc="Replicas throttled on the leader's side, partition:broker each, or *.",
    )
    max_compaction_lag_ms: int = setting(
        INT64_MAX,
        key=MAX_COMPACTION_LAG,
        kind=SettingKind.LONG,
        at_least=1,
        broker_keys=("log.cleaner.max.compaction.lag.ms",),
        doc="The longest time a record may stay uncompacted.",
    )
    max_message_bytes: int = setting(
        MIB + 12,
        key="max.message.bytes",
        at_least=0,
        broker_keys=("message.max.bytes",),
        doc="The largest record batch accepted, as stored.",
    )
    message_timestamp_after_max_ms: int = setting(
        HOUR_MS,
        key="message.timestamp.after.max.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.message.timestamp.after.max.ms",),
        doc="How far a record's timestamp may lie ahead of the broker's clock.",
    )
    message_timestamp_before_max_ms: int = setting(
        INT64_MAX,
        key="message.timestamp.before.max.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.message.timestamp.before.max.ms",),
        doc="How far a record's timestamp may lie behind the broker's clock.",
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        key="message.timestamp.type",
        one_of=("CreateTime", "LogAppendTime"),
        broker_keys=("log.message.timestamp.type",),
        doc="Whose clock stamps a record: the producer's or the broker's.",
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        key="min.cleanable.dirty.ratio",
        at_least=0,
        at_most=1,
        broker_keys=("log.cleaner.min.cleanable.ratio",),
        doc="The share of uncompacted bytes above which a log is compacted.",
    )
    min_compaction_lag_ms: int = setting(
        0,
        key=MIN_COMPACTION_LAG,
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.cleaner.min.compaction.lag.ms",),
        doc="How long a record stays uncompacted at the least.",
    )
    min_insync_replicas: int = setting(
        1,
        key="min.insync.replicas",
        at_least=1,
        broker_keys=("min.insync.replicas",),
        doc="Replicas that must be in sync for an acks=all produce to be accepted.",
    )
    preallocate: bool = setting(
        False,
        key="preallocate",
        broker_keys=("log.preallocate",),
        doc="Whether a new segment's file is made in its full size.",
    )
    record_validation: str = setting(
        "header",
        key="record.validation",
        one_of=("header", "full"),
        doc="Ottla's own: check batch headers only, or every record too. Always full where a "
        "topic is compacted or recompressed.",
    )
    retention_bytes: int = setting(
        -1,
        key="retention.bytes",
        kind=SettingKind.LONG,
        broker_keys=("log.retention.bytes",),
        doc="Size of a partition above which its oldest segments go; -1 is no bound.",
    )
    retention_ms: int = setting(
        7 * DAY_MS,
        key="retention.ms",
        kind=SettingKind.LONG,
        at_least=-1,
        broker_keys=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="Age above which segments go; -1 is no bound.",
    )
    segment_bytes: int = setting(
        GIB,
        key="segment.bytes",
        at_least=MIB,
        broker_keys=("log.segment.bytes",),
        doc="Size at which a partition's log rolls to its next file.",
    )
    segment_index_bytes: int = setting(
        10 * MIB,
        key="segment.index.bytes",
        at_least=4,
        broker_keys=("log.index.size.max.bytes",),
        doc="The largest size of an index file; a full index rolls the segment.",
    )
    segment_jitter_ms: int = setting(
        0,
        key="segment.jitter.ms",
        kind=SettingKind.LONG,
        at_least=0,
        broker_keys=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="A random time taken off segment.ms so that segments do not all roll at once.",
    )
    segment_ms: int = setting(
        7 * DAY_MS,
        key="segment.ms",
        kind=SettingKind.LONG,
        at_least=1,
        broker_keys=("log.roll.ms", "log.roll.hours"),
        doc="Age at which a partition's log rolls to its next file.",
    )
    unclean_leader_election_enable: bool = setting(
        False,
        key="unclean.leader.election.enable",
        broker_keys=("unclean.leader.election.enable",),
        doc="Whether a replica that may lack acknowledged records can lead when no other is left.",
    )

    @property
    def is_compacted(self) -> bool:
        """Whether records are kept by key."""
        return "compact" in self.cleanup_policy

    @classmethod
    def from_texts(
        cls, overrides: Mapping[str, str], defaults: Mapping[str, str] | None = None
    ) -> "TopicConfig":
        """Build one topic's settings from its overrides over `defaults` (both by topic key).

        Keys it does not know are passed over; a bad value raises ConfigError.
        """
        texts = {**(defaults or {}), **overrides}
        return load(cls, texts)[0]


TOPIC_DEFAULTS = TopicConfig()
"""A topic's settings where nothing is set."""

_NO_REMOTE_STORAGE = "there is no remote storage"


def _absent(
    key: str, default: str, why: str, kind: SettingKind, *broker_keys: str, at_least: int = -1
) -> Definition:
    return Definition(
        key=key,
        field_name="",
        kind=kind,
        default=default,
        doc=f"Accepted at its default only: {why}.",
        at_least=None if kind is SettingKind.BOOLEAN else at_least,
        broker_keys=broker_keys,
        default_only_because=why,
    )


ABSENT_DEFINITIONS: Mapping[str, Definition] = {
    one.key: one
    for one in (
        _absent(
            "errors.deadletterqueue.group.enable",
            "false",
            "share groups are not served",
            SettingKind.BOOLEAN,
        ),
        _absent(
            "local.retention.bytes",
            "-2",
            _NO_REMOTE_STORAGE,
            SettingKind.LONG,
            "log.local.retention.bytes",
            at_least=-2,
        ),
        _absent(
            "local.retention.ms",
            "-2",
            _NO_REMOTE_STORAGE,
            SettingKind.LONG,
            "log.local.retention.ms",
            at_least=-2,
        ),
        _absent(
            "max.decompressed.message.bytes",
            "2147483639",
            "Ottla bounds the size of a decompressed batch itself",
            SettingKind.INT,
            "max.decompressed.message.bytes",
            at_least=1,
        ),
        _absent(
            "remote.copy.lag.bytes",
            "-1",
            _NO_REMOTE_STORAGE,
            SettingKind.LONG,
            "log.remote.copy.lag.bytes",
        ),
        _absent(
            "remote.copy.lag.ms",
            "0",
            _NO_REMOTE_STORAGE,
            SettingKind.LONG,
            "log.remote.copy.lag.ms",
        ),
        *(
            _absent(key, "false", _NO_REMOTE_STORAGE, SettingKind.BOOLEAN)
            for key in (
                "remote.log.copy.disable",
                "remote.log.delete.on.disable",
                "remote.storage.enable",
            )
        ),
    )
}
"""Kafka's topic settings of features that Ottla does not have, by key."""

TOPIC_DEFINITIONS: Mapping[str, Definition] = {**definitions(TopicConfig), **ABSENT_DEFINITIONS}

BROKER_TO_TOPIC: dict[str, str] = {
    broker_key: definition.key
    for definition in definitions(TopicConfig).values()
    for broker_key in definition.broker_keys
}
"""Which topic setting a broker key gives the default of."""


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
"""Kafka's defaults of the keys that give one topic setting together, of which only one has any."""

RETENTION_TIMES = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
"""Broker keys of which every negative number means that there is no bound; zero is refused."""


def _default_definition(broker_key: str, topic_key: str) -> Definition:
    """Return the declaration of a broker key, by Kafka's rules for the broker."""
    of_topic = TOPIC_DEFINITIONS[topic_key]
    own = replace(
        of_topic,
        key=broker_key,
        default=UNSET_DEFAULTS.get(broker_key, of_topic.default),
        # As in Kafka, of several units only the one topics speak of is dynamic.
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
"""The broker-side twins of the topic settings, by broker key."""


def topic_defaults_of(broker_texts: Mapping[str, str]) -> dict[str, str]:
    """Return the topic defaults that broker settings give, by topic key; checks every value."""
    found: dict[str, str] = {}
    for definition in definitions(TopicConfig).values():
        for broker_key in definition.broker_keys:
            if broker_key in broker_texts:
                found[definition.key] = as_topic_text(broker_key, broker_texts[broker_key])
                break
    return found


def as_topic_text(broker_key: str, text: str) -> str:
    """Return a topic's default as its own key would have it.  Raises ConfigError if not allowed.

    Hours and minutes become milliseconds; a retention time without bound is -1.
    """
    value = DEFAULT_DEFINITIONS[broker_key].value_of(text)
    if broker_key in RETENTION_TIMES and value < 0:
        return "-1"
    unit_ms = LONGER_UNITS.get(broker_key)
    return text.strip() if unit_ms is None else str(value * unit_ms)


def check_topic_texts(texts: Mapping[str, str | None]) -> None:
    """Refuse (INVALID_CONFIG) a topic setting that is unknown or whose value is not allowed."""
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
    """Refuse (INVALID_CONFIG) settings of a topic that contradict each other.

    `texts` is all that the topic will have of its own, each of them allowed by itself.
    """
    shortest, longest = texts.get(MIN_COMPACTION_LAG), texts.get(MAX_COMPACTION_LAG)
    if shortest is not None and longest is not None and int(shortest) > int(longest):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_COMPACTION_LAG} {shortest} is above {MAX_COMPACTION_LAG} {longest}: nothing "
            "could be compacted in time",
        )
