"""What may be said to `spark.read.format("ottla")`: every option of Spark's own Kafka connector.

Names, defaults and precedence are the connector's; `columns`, `dropReplays`, `replayLookbackCount`
and `shadowGroup` are ours.  Pure.
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
    Each,
    Everywhere,
    Place,
    Since,
    SinceEach,
    parse_partition_offsets,
)
from ottla.pipeline.read.read_options import POLL_TIMEOUT_MS, REPLAY_LOOKBACK_COUNT, ReadOptions

OF_SPARK = ("path",)
"""Options that Spark adds by itself."""
SET_BY_SPARK = {
    "key.deserializer": "keys are shipped as bytes; use DataFrame operations to read them",
    "value.deserializer": "values are shipped as bytes; use DataFrame operations to read them",
    "auto.offset.reset": "use startingOffsets to say where to begin",
    "enable.auto.commit": "Spark's checkpoint keeps the offsets; nothing is committed by readers",
    "interceptor.classes": "there are no interceptors here",
}


@dataclass(frozen=True)
class Assign:
    """These partitions (`assign`)."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics, as they come (`subscribe`)."""

    topics: frozenset[str]


@dataclass(frozen=True)
class SubscribePattern:
    """All topics with a name like this, as they come, but internal ones (`subscribePattern`)."""

    pattern: str


Topics = Assign | Subscribe | SubscribePattern


def parse_assignment(text: str) -> Assign:
    """a JSON object of topics with their partitions, as {"t": [0, 1]}."""
    found = set()
    for topic, numbers in parse_json_object(text).items():
        if not isinstance(numbers, list) or not all(type(one) is int for one in numbers):
            raise ValueError(text)
        found |= {TopicPartition(topic, number) for number in numbers}
    if not found or min(at.partition for at in found) < 0:
        raise ValueError(text)
    return Assign(frozenset(found))


def parse_topics(text: str) -> Subscribe:
    """the names of topics, separated by commas."""
    names = frozenset(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError(text)
    return Subscribe(names)


def parse_pattern(text: str) -> SubscribePattern:
    """a regular expression that whole names of topics match."""
    try:
        re.compile(text)
    except re.error:
        raise ValueError(text) from None
    if not text.strip():
        raise ValueError(text)
    return SubscribePattern(text.strip())


def parse_place(text: str) -> Place:
    """earliest, latest, or JSON such as {"t": {"0": 23}} (-2 is the earliest, -1 the latest)."""
    edge = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if edge is not None:
        return Everywhere(edge)
    found = parse_partition_offsets(parse_json_object(text))
    if min(found.values(), default=0) < EARLIEST:
        raise ValueError(text)
    return Each(found)


def parse_times(text: str) -> SinceEach:
    """a JSON object of times in ms, as {"t": {"0": 1700000000000}}."""
    found = parse_partition_offsets(parse_json_object(text))
    if min(found.values(), default=0) < 0:
        raise ValueError(text)
    return SinceEach(found)


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """The options one by one, as declared to users."""

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
        doc="Which topics to read; a stream finds new ones as they come.",
    )
    starting_timestamp_ms: int | None = setting(
        None,
        key="startingTimestamp",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Begin at the first record at or after this time, in ms; goes before "
        "startingOffsetsByTimestamp, which goes before startingOffsets.",
    )
    starting_times: SinceEach | None = setting(
        None,
        key="startingOffsetsByTimestamp",
        kind=SettingKind.STRING,
        parse=parse_times,
        doc="Begin at the first record at or after a time, given for each partition.",
    )
    starting: Place | None = setting(
        None,
        key="startingOffsets",
        kind=SettingKind.STRING,
        parse=parse_place,
        doc="Where a new query begins: by default earliest in batches, latest in streams.",
    )
    starting_strategy: str = setting(
        "error",
        key="startingOffsetsByTimestampStrategy",
        one_of=("error", "latest"),
        doc="What to do where a partition has no record so late: fail, or begin at its end.",
    )
    ending_timestamp_ms: int | None = setting(
        None,
        key="endingTimestamp",
        kind=SettingKind.LONG,
        at_least=0,
        doc="End a batch before the first record at or after this time, in ms.",
    )
    ending_times: SinceEach | None = setting(
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
        doc="Where a batch ends: latest, or an offset for each partition.",
    )
    fail_on_data_loss: bool = setting(
        True,
        key="failOnDataLoss",
        doc="Fail where records that were to be read are gone; if not, go on behind them.",
    )
    poll_timeout_ms: int = setting(
        POLL_TIMEOUT_MS,
        key="kafkaConsumer.pollTimeoutMs",
        at_least=1,
        doc="How long a task sits out troubles that pass.",
    )
    fetch_retries: int = setting(
        3, key="fetchOffset.numRetries", at_least=0, doc="How often offsets are asked for again."
    )
    fetch_retry_interval_ms: int = setting(
        10, key="fetchOffset.retryIntervalMs", at_least=0, doc="The wait before that."
    )
    offsets_per_trigger_max: int | None = setting(
        None,
        key="maxOffsetsPerTrigger",
        kind=SettingKind.LONG,
        at_least=1,
        doc="The most records of one batch of a stream, shared out by what partitions have.",
    )
    offsets_per_trigger_min: int | None = setting(
        None,
        key="minOffsetsPerTrigger",
        kind=SettingKind.LONG,
        at_least=1,
        doc="A batch of a stream waits for so many records, at most maxTriggerDelay.",
    )
    trigger_delay_ms_max: int = setting(
        900_000,
        key="maxTriggerDelay",
        parse=parse_duration_ms,
        text="15m",
        doc="How long minOffsetsPerTrigger holds a batch back.",
    )
    min_partitions: int | None = setting(
        None,
        key="minPartitions",
        kind=SettingKind.INT,
        at_least=1,
        doc="At least so many tasks: large partitions are cut.",
    )
    max_records_per_partition: int | None = setting(
        None,
        key="maxRecordsPerPartition",
        kind=SettingKind.LONG,
        at_least=1,
        doc="At most so many records a task.",
    )
    group_id_prefix: str = setting(
        "spark-kafka-source",
        key="groupIdPrefix",
        doc="Taken, and of no effect: no group is joined.",
    )
    include_headers: bool = setting(
        False, key="includeHeaders", doc="Whether there is a column of headers."
    )
    columns: tuple[str, ...] | None = setting(
        None,
        key="columns",
        kind=SettingKind.LIST,
        doc="The columns to ship (Spark tells no Python source which it needs); all by default.",
    )
    drop_replays: bool = setting(
        False, key="dropReplays", doc="Leave out what a repeated task of a Spark query wrote again."
    )
    replay_lookback_count: int = setting(
        REPLAY_LOOKBACK_COUNT,
        key="replayLookbackCount",
        at_least=0,
        doc="How many records before a range are read to know what was written before it.",
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
    """What a query reads: from where to where, how it is cut, and what a task must know."""

    topics: Topics
    start: Place
    end: Place
    fails_without_match: bool
    """Whether a partition without a record as late as `start` says is an error."""
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    min_partitions: int | None
    max_records_per_partition: int | None
    shadow_group: str | None
    read: ReadOptions


def parse_source_options(texts: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Read what a user said; ConfigError names the first option that is wrong or not honoured."""
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
    """Return the columns of the schema that options ask for; ConfigError as above."""
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
        return Since(settings.starting_timestamp_ms)
    if settings.starting_times is not None:
        return settings.starting_times
    place = settings.starting or Everywhere(LATEST if is_stream else EARLIEST)
    if not is_stream and _names(place, LATEST):
        raise ConfigError("startingOffsets", "is latest (-1), where a batch would find nothing")
    return place


def _end(settings: SourceSettings) -> Place:
    if settings.ending_timestamp_ms is not None:
        return Since(settings.ending_timestamp_ms)
    if settings.ending_times is not None:
        return settings.ending_times
    place = settings.ending or Everywhere(LATEST)
    if _names(place, EARLIEST):
        raise ConfigError("endingOffsets", "is earliest (-2), where a batch would find nothing")
    return place


def _names(place: Place, offset: int) -> bool:
    """Return whether a place is an edge of the log in some partition."""
    if isinstance(place, Everywhere):
        return place.offset == offset
    return isinstance(place, Each) and offset in place.offsets.values()


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
        client=given.client,
    )
