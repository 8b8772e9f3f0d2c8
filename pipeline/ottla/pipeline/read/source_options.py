"""Options of `spark.read.format("ottla")`: every option of Spark's own Kafka connector.

Names, defaults and precedence are the connector's. `columns`, `dropReplays`, `replayLookbackCount`
and `shadowGroup` exist only here. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.declare import SettingKind, setting
from ottla.pipeline.option_values import (
    KafkaOptions,
    parse_duration_ms,
    parse_json_object,
    parse_options,
)
from ottla.pipeline.read.arrow_schema import HEADERS, column_names
from ottla.pipeline.read.offsets import (
    EARLIEST,
    LATEST,
    AllPartitions,
    FromTimestamp,
    OffsetPerPartition,
    Place,
    TimestampPerPartition,
    parse_partition_offsets,
)
from ottla.pipeline.read.read_options import POLL_TIMEOUT_MS, REPLAY_LOOKBACK_COUNT, ReadOptions
from ottla.storage.tier.store_settings import (
    ACCESS_KEY_ID_KEY,
    CA_FILE_KEY,
    ENDPOINT_KEY,
    REGION_KEY,
    SECRET_ACCESS_KEY_KEY,
    URI_KEY,
    StoreSettings,
    checked_location,
)

OF_SPARK = ("path",)
"""Names of the options that Spark itself adds to the user's options."""
SET_BY_SPARK = {
    "key.deserializer": "keys are shipped as bytes; use DataFrame operations to read them",
    "value.deserializer": "values are shipped as bytes; use DataFrame operations to read them",
    "auto.offset.reset": "use startingOffsets to say where to begin",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets; nothing is committed by readers",
    "interceptor.classes": "there are no interceptors here",
}


@dataclass(frozen=True)
class Assign:
    """Choice of the partitions that the option `assign` names one by one."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class Subscribe:
    """Choice of all partitions of the topics that the option `subscribe` names, including
    partitions that are added later."""

    topics: frozenset[str]


@dataclass(frozen=True)
class SubscribePattern:
    """Choice of all non-internal topics whose name matches the option `subscribePattern`, including
    topics that are created later."""

    pattern: str


Topics = Assign | Subscribe | SubscribePattern


def parse_assignment(text: str) -> Assign:
    """a JSON object of topics with their partitions, as {"t": [0, 1]}.

    Returns the choice of partitions. Raises ValueError if the text is malformed. Error messages
    quote the first line as the description of valid texts."""
    found = set()
    for topic, numbers in parse_json_object(text).items():
        if not isinstance(numbers, list) or not all(type(one) is int for one in numbers):
            raise ValueError(text)
        found |= {TopicPartition(topic, number) for number in numbers}
    if not found or min(at.partition for at in found) < 0:
        raise ValueError(text)
    return Assign(frozenset(found))


def parse_topics(text: str) -> Subscribe:
    """the names of topics, separated by commas.

    Returns the choice of topics. Raises ValueError if the text contains no name. Error messages
    quote the first line as the description of valid texts."""
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError(text)
    return Subscribe(names)


def parse_pattern(text: str) -> SubscribePattern:
    """a regular expression that whole names of topics match.

    Returns the choice of topics. Raises ValueError if the text is no valid expression. Error
    messages quote the first line as the description of valid texts."""
    try:
        re.compile(text)
    except re.error:
        raise ValueError(text) from None
    if not text.strip():
        raise ValueError(text)
    return SubscribePattern(text.strip())


def parse_place(text: str) -> Place:
    """earliest, latest, or JSON such as {"t": {"0": 23}} (-2 is the earliest, -1 the latest).

    Returns the start or end of a query. Raises ValueError if the text is malformed. Error messages
    quote the first line as the description of valid texts."""
    edge = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if edge is not None:
        return AllPartitions(edge)
    found = parse_partition_offsets(parse_json_object(text))
    if min(found.values(), default=0) < EARLIEST:
        raise ValueError(text)
    return OffsetPerPartition(found)


def parse_times(text: str) -> TimestampPerPartition:
    """a JSON object of times in ms, as {"t": {"0": 1700000000000}}.

    Returns the timestamp of each partition. Raises ValueError if the text is malformed. Error
    messages quote the first line as the description of valid texts."""
    found = parse_partition_offsets(parse_json_object(text))
    if min(found.values(), default=0) < 0:
        raise ValueError(text)
    return TimestampPerPartition(found)


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Options for reading topics, with the names and texts that users write."""

    assign: Assign | None = setting(
        None,
        key="assign",
        kind=SettingKind.STRING,
        parse=parse_assignment,
        doc="Partitions to read.",
    )
    subscribe: Subscribe | None = setting(
        None, key="subscribe", kind=SettingKind.STRING, parse=parse_topics, doc="Topics to read."
    )
    subscribe_pattern: SubscribePattern | None = setting(
        None,
        key="subscribePattern",
        kind=SettingKind.STRING,
        parse=parse_pattern,
        doc="Topics to read, by a pattern; a stream finds new ones when they are created.",
    )
    starting_timestamp_ms: int | None = setting(
        None,
        key="startingTimestamp",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Time in ms: start at the first record at or after it; precedes "
        "startingOffsetsByTimestamp, which precedes startingOffsets.",
    )
    starting_times: TimestampPerPartition | None = setting(
        None,
        key="startingOffsetsByTimestamp",
        kind=SettingKind.STRING,
        parse=parse_times,
        doc="Start at the first record at or after a time, given for each partition.",
    )
    starting: Place | None = setting(
        None,
        key="startingOffsets",
        kind=SettingKind.STRING,
        parse=parse_place,
        doc="Start of a new query: by default earliest in batches, latest in streams.",
    )
    starting_strategy: str = setting(
        "error",
        key="startingOffsetsByTimestampStrategy",
        one_of=("error", "latest"),
        doc="Action if a partition has no record that late: fail, or start at its end.",
    )
    ending_timestamp_ms: int | None = setting(
        None,
        key="endingTimestamp",
        kind=SettingKind.LONG,
        at_least=0,
        doc="End a batch before the first record at or after this time, in ms.",
    )
    ending_times: TimestampPerPartition | None = setting(
        None,
        key="endingOffsetsByTimestamp",
        kind=SettingKind.STRING,
        parse=parse_times,
        doc="End a batch before the first record at or after a time, given for each partition.",
    )
    ending: Place | None = setting(
        None,
        key="endingOffsets",
        kind=SettingKind.STRING,
        parse=parse_place,
        doc="End of a batch: latest, or an offset for each partition.",
    )
    fail_on_data_loss: bool = setting(
        True,
        key="failOnDataLoss",
        doc="Fail if records to be read are deleted; otherwise continue after them.",
    )
    poll_timeout_ms: int = setting(
        POLL_TIMEOUT_MS,
        key="kafkaConsumer.pollTimeoutMs",
        at_least=1,
        doc="Timeout of temporary failures in a task, in ms.",
    )
    fetch_retries: int = setting(
        3,
        key="fetchOffset.numRetries",
        at_least=0,
        doc="Number of retries of a request for offsets.",
    )
    fetch_retry_interval_ms: int = setting(
        10, key="fetchOffset.retryIntervalMs", at_least=0, doc="Delay before a retry, in ms."
    )
    offsets_per_trigger_max: int | None = setting(
        None,
        key="maxOffsetsPerTrigger",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Largest batch of a stream, in records; partitions get proportional shares.",
    )
    offsets_per_trigger_min: int | None = setting(
        None,
        key="minOffsetsPerTrigger",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Smallest batch of a stream, in records; it waits at most maxTriggerDelay for them.",
    )
    trigger_delay_ms_max: int = setting(
        900_000,
        key="maxTriggerDelay",
        parse=parse_duration_ms,
        text="15m",
        doc="Longest delay of a batch by minOffsetsPerTrigger.",
    )
    min_partitions: int | None = setting(
        None,
        key="minPartitions",
        kind=SettingKind.INT,
        at_least=1,
        doc="Least number of tasks: large partitions are cut.",
    )
    max_records_per_partition: int | None = setting(
        None,
        key="maxRecordsPerPartition",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Largest number of records of a task.",
    )
    group_id_prefix: str = setting(
        "spark-kafka-source",
        key="groupIdPrefix",
        doc="Accepted without effect: no group is joined.",
    )
    include_headers: bool = setting(False, key="includeHeaders", doc="Include a column of headers.")
    columns: tuple[str, ...] | None = setting(
        None,
        key="columns",
        kind=SettingKind.LIST,
        doc="Columns to read; Spark does not report the needed ones to a source. Default all.",
    )
    drop_replays: bool = setting(
        False,
        key="dropReplays",
        doc="Skip records that a repeated task of a Spark query wrote again.",
    )
    replay_lookback_count: int = setting(
        REPLAY_LOOKBACK_COUNT,
        key="replayLookbackCount",
        at_least=0,
        doc="Records before a range that are read to detect repetitions.",
    )
    tier: str = setting(
        "brokers",
        key="tier",
        one_of=("brokers", "direct"),
        doc="Reader of copied segments (tiered storage): with direct, tasks read them from the "
        "object store, and only the rest from brokers.",
    )
    tier_uri: str = setting(
        "", key="tierUri", doc="Place of the copied segments, as remote.log.storage.uri."
    )
    tier_access_key_id: str = setting(
        "",
        key="tierAccessKeyId",
        kind=SettingKind.PASSWORD,
        doc="Access key of the object store; without it, the environment's credentials count.",
    )
    tier_secret_access_key: str = setting(
        "",
        key="tierSecretAccessKey",
        kind=SettingKind.PASSWORD,
        doc="Secret key of the object store.",
    )
    tier_endpoint: str = setting(
        "", key="tierEndpoint", doc="URL of the object store's server, if not the provider's own."
    )
    tier_region: str = setting("", key="tierRegion", doc="Region of the bucket in S3.")
    tier_ca_file: str = setting(
        "", key="tierCaFile", doc="PEM file with certificates of the object store to trust."
    )
    shadow_group: str | None = setting(
        None,
        key="shadowGroup",
        kind=SettingKind.STRING,
        doc="The group that a stream's progress is committed to, for `ottla group lag` to show; "
        "spark-<name of the query> where the session was registered.",
    )


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Parsed options of a query: its topics, its start and end, its division into tasks, and the
    options of the tasks."""

    topics: Topics
    start: Place
    end: Place
    fails_without_match: bool
    """True if the query fails when a partition has no record at or after the requested start
    timestamp."""
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    min_partitions: int | None
    max_records_per_partition: int | None
    shadow_group: str | None
    read: ReadOptions


def parse_source_options(texts: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Parse the source options that a user has written. Raises ConfigError for the first invalid or
    unsupported option."""
    settings, given = parse_options(
        SourceSettings, ConsumerConfig, texts, set_by_spark=SET_BY_SPARK, also_known=OF_SPARK
    )
    _check_bounds(settings)
    if is_stream:
        _refuse_ends(settings)
    return SourceOptions(
        topics=_topics(settings),
        start=_start(settings, is_stream=is_stream),
        end=_end(settings),
        fails_without_match=settings.starting_strategy == "error",
        offsets_per_trigger_max=settings.offsets_per_trigger_max,
        offsets_per_trigger_min=settings.offsets_per_trigger_min,
        trigger_delay_ms_max=settings.trigger_delay_ms_max,
        min_partitions=settings.min_partitions,
        max_records_per_partition=settings.max_records_per_partition,
        shadow_group=settings.shadow_group,
        read=_read(settings, given),
    )


def parse_columns(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Parse the requested columns in a user's options. Raises ConfigError if they are invalid."""
    settings, _given = parse_options(
        SourceSettings, ConsumerConfig, texts, set_by_spark=SET_BY_SPARK, also_known=OF_SPARK
    )
    _topics(settings)
    return column_names(settings.columns, settings.include_headers)


def _topics(settings: SourceSettings) -> Topics:
    given = {
        "assign": settings.assign,
        "subscribe": settings.subscribe,
        "subscribePattern": settings.subscribe_pattern,
    }
    found = [(name, topics) for name, topics in given.items() if topics is not None]
    if not found:
        raise ConfigError("subscribe", "is not set; one of assign, subscribe, subscribePattern is")
    if len(found) > 1:
        raise ConfigError(found[1][0], f"may not be set together with {found[0][0]}")
    return found[0][1]


def _start(settings: SourceSettings, *, is_stream: bool) -> Place:
    if settings.starting_timestamp_ms is not None:
        return FromTimestamp(settings.starting_timestamp_ms)
    if settings.starting_times is not None:
        return settings.starting_times
    place = settings.starting or AllPartitions(LATEST if is_stream else EARLIEST)
    if not is_stream and _names(place, LATEST):
        raise ConfigError("startingOffsets", "is latest (-1), where a batch would find nothing")
    return place


def _end(settings: SourceSettings) -> Place:
    if settings.ending_timestamp_ms is not None:
        return FromTimestamp(settings.ending_timestamp_ms)
    if settings.ending_times is not None:
        return settings.ending_times
    place = settings.ending or AllPartitions(LATEST)
    if _names(place, EARLIEST):
        raise ConfigError("endingOffsets", "is earliest (-2), where a batch would find nothing")
    return place


def _names(place: Place, offset: int) -> bool:
    """Return whether the start or end of a query, `place`, contains the symbolic offset `offset`
    (EARLIEST or LATEST) for any partition."""
    if isinstance(place, AllPartitions):
        return place.offset == offset
    return isinstance(place, OffsetPerPartition) and offset in place.offsets.values()


def _refuse_ends(settings: SourceSettings) -> None:
    ends: dict[str, Any] = {
        "endingTimestamp": settings.ending_timestamp_ms,
        "endingOffsetsByTimestamp": settings.ending_times,
        "endingOffsets": settings.ending,
    }
    for name, value in ends.items():
        if value is not None:
            raise ConfigError(name, "may not be set: a stream has no end")


def _check_bounds(settings: SourceSettings) -> None:
    least, most = settings.offsets_per_trigger_min, settings.offsets_per_trigger_max
    if least is not None and most is not None and least > most:
        raise ConfigError(
            "minOffsetsPerTrigger", f"is {least}; it must not exceed maxOffsetsPerTrigger, {most}"
        )


def _tier(settings: SourceSettings) -> StoreSettings | None:
    """Return the settings of the object store from which tasks read copied segments, or None if
    they read only from brokers."""
    given = {
        "tierUri": settings.tier_uri,
        "tierAccessKeyId": settings.tier_access_key_id,
        "tierSecretAccessKey": settings.tier_secret_access_key,
        "tierEndpoint": settings.tier_endpoint,
        "tierRegion": settings.tier_region,
        "tierCaFile": settings.tier_ca_file,
    }
    if settings.tier != "direct":
        for name, value in given.items():
            if value:
                raise ConfigError(name, "has no effect unless tier is direct")
        return None
    if settings.drop_replays:
        raise ConfigError("dropReplays", "cannot be combined with tier=direct")
    if not settings.tier_uri:
        raise ConfigError("tierUri", "is not set; tier=direct needs the place of the segments")
    store = StoreSettings(
        uri=settings.tier_uri,
        access_key_id=settings.tier_access_key_id,
        secret_access_key=settings.tier_secret_access_key,
        endpoint=settings.tier_endpoint,
        region=settings.tier_region,
        ca_file=settings.tier_ca_file,
    )
    try:
        checked_location(store)
    except ConfigError as error:
        raise ConfigError(OPTION_OF_SETTING[error.setting], error.problem) from None
    return store


OPTION_OF_SETTING = {
    URI_KEY: "tierUri",
    ACCESS_KEY_ID_KEY: "tierAccessKeyId",
    SECRET_ACCESS_KEY_KEY: "tierSecretAccessKey",
    ENDPOINT_KEY: "tierEndpoint",
    REGION_KEY: "tierRegion",
    CA_FILE_KEY: "tierCaFile",
}


def _read(settings: SourceSettings, given: KafkaOptions) -> ReadOptions:
    columns = column_names(settings.columns, settings.include_headers)
    client = dict(given.client)
    return ReadOptions(
        bootstrap=given.bootstrap,
        include_headers=HEADERS in columns,
        isolation_level=client.get("isolation.level", "read_uncommitted"),
        poll_timeout_ms=settings.poll_timeout_ms,
        fetch_retries=settings.fetch_retries,
        fetch_retry_interval_ms=settings.fetch_retry_interval_ms,
        fail_on_data_loss=settings.fail_on_data_loss,
        columns=columns,
        drop_replays=settings.drop_replays,
        replay_lookback_count=settings.replay_lookback_count,
        tier=_tier(settings),
        client=given.client,
    )
