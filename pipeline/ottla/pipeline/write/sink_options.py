"""Options of a Spark write to topics, and the columns of its rows. Pure.

The options are frozen and picklable, because they are sent to the tasks with the writer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ottla.model.errors import ConfigError
from ottla.model.settings.client import ProducerConfig
from ottla.model.settings.declare import SettingKind, load, setting
from ottla.pipeline.option_values import KAFKA, KafkaOptions, parse_options

BYTES = ("binary", "string")
HEADERS = "array<struct<key:string,value:binary>>"
COLUMN_TYPES = {
    "value": BYTES,
    "key": BYTES,
    "headers": (HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
}
"""Allowed types of the columns that form a record, by column name. Other columns are ignored."""

SERIALIZERS = "the columns value and key are written as they are, bytes or text"
SET_BY_SPARK = {
    "key.serializer": SERIALIZERS,
    "value.serializer": SERIALIZERS,
}
TRANSACTIONAL_ID = "transactional.id"
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_MS = 900_000
"""Transaction timeout in ms, equal to the brokers' default maximum. A transaction is open until all
Spark tasks of its batch are done, so with a shorter timeout, long batches fail at their end. With a
longer timeout, read_committed consumers wait longer if a driver has died permanently and left
transactions open."""
OF_SPARK = ("checkpointLocation", "path", "queryName")
"""Names of the options of a write that Spark itself reads."""


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """Options of a write into topics that users set by `option(…)`, except for `kafka.*`."""

    topic: str | None = setting(
        None,
        key="topic",
        kind=SettingKind.STRING,
        doc="Topic of every row; overrides the column topic.",
    )
    include_headers: bool = setting(
        True,
        key="includeHeaders",
        doc="Write the column headers, if there is one.",
    )
    provenance: bool = setting(
        True,
        key="provenance",
        doc="Add headers with the write of each record; without them readers cannot detect "
        "duplicates of a repeated task.",
    )
    sort_rows: bool = setting(
        False,
        key="sortRows",
        doc="Sort the rows of each task before they are written: for queries whose order of rows "
        "may change when a task is repeated, as after a shuffle. A task then holds all its "
        "rows in memory.",
    )
    transactions: bool | None = setting(
        None,
        key="transactions",
        kind=SettingKind.BOOLEAN,
        doc="Write each task in a transaction, so that readers of committed records see "
        "each row once. Default true for streams and for writes with txnAppId or "
        "kafka.transactional.id.",
    )
    txn_app_id: str | None = setting(
        None,
        key="txnAppId",
        kind=SettingKind.STRING,
        doc="Name of the writer, if the write may be repeated as a whole: records with "
        "the same txnAppId and txnVersion are replays. For batch writes, as in foreachBatch.",
    )
    txn_version: int | None = setting(
        None,
        key="txnVersion",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Number of the write within its txnAppId: must grow from one to the next.",
    )

    def __post_init__(self) -> None:
        if (self.txn_app_id is None) != (self.txn_version is None):
            missing = "txnVersion" if self.txn_version is None else "txnAppId"
            raise ConfigError(missing, "is not set; txnAppId and txnVersion need each other")


class Columns(NamedTuple):
    """Index of the column in a row for each part of a record. None for a part without a column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


@dataclass(frozen=True, kw_only=True)
class SinkTarget:
    """Options that all writes of one Spark task share: topics, columns and settings of the
    producer."""

    bootstrap: str
    options: SinkOptions
    columns: Columns
    client: tuple[tuple[str, str], ...]
    is_transactional: bool = False
    transactional_id: str | None = None
    """Prefix of the Spark tasks' transactional ids. If it is None, the prefix is derived from the
    query's name."""

    def producer_config(self, transactional_id: str | None = None) -> ProducerConfig:
        """Return the settings of a Spark task's producer. With a `transactional_id`, the producer
        is transactional."""
        config, _none = load(ProducerConfig, dict(self.client))
        return replace(config, transactional_id=transactional_id)


def read_target(
    texts: Mapping[str, str], fields: Iterable[tuple[str, str]], *, is_streaming: bool
) -> SinkTarget:
    """Parse the options of a write into topics, and return them. `fields` are the columns of its
    rows, each as a name and a type in Spark's notation.

    Raises ConfigError for an invalid option or column.
    """
    options, given = parse_options(
        SinkOptions, ProducerConfig, texts, set_by_spark=SET_BY_SPARK, also_known=OF_SPARK
    )
    columns = find_columns(fields)
    if not options.include_headers:
        columns = columns._replace(headers=None)
    if options.topic is None and columns.topic is None:
        raise ConfigError("topic", "is not set, and the rows have no column topic")
    if is_streaming and options.txn_app_id is not None:
        raise ConfigError("txnAppId", "is for batch writes; a streaming query has its own id")
    target = _target(options, given, columns, is_streaming=is_streaming)
    config = target.producer_config()
    if not config.enable_idempotence:
        # Without idempotence, duplicates after a failed request would look like a gap or a repeated
        # task.
        raise ConfigError(f"{KAFKA}enable.idempotence", "is false; the sink writes in order, once")
    return target


def _target(
    options: SinkOptions, given: KafkaOptions, columns: Columns, *, is_streaming: bool
) -> SinkTarget:
    client = dict(given.client)
    transactional_id = client.pop(TRANSACTIONAL_ID, None)
    is_named = is_streaming or options.txn_app_id is not None or transactional_id is not None
    is_transactional = is_named if options.transactions is None else options.transactions
    if is_transactional:
        client.setdefault(TRANSACTION_TIMEOUT, str(TRANSACTION_TIMEOUT_MS))
    else:
        for key, text in ((TRANSACTIONAL_ID, transactional_id), *client.items()):
            if key in (TRANSACTIONAL_ID, TRANSACTION_TIMEOUT) and text is not None:
                raise ConfigError(KAFKA + key, "is of transactions, and this write has none")
    return SinkTarget(
        bootstrap=given.bootstrap,
        options=options,
        columns=columns,
        client=tuple(sorted(client.items())),
        is_transactional=is_transactional,
        transactional_id=transactional_id,
    )


def find_columns(fields: Iterable[tuple[str, str]]) -> Columns:
    """Return the index of the column in a row for each part of a record. Names are
    case-insensitive."""
    found: dict[str, int] = {}
    for index, (name, type_name) in enumerate(fields):
        part = name.lower()
        if part not in COLUMN_TYPES:
            continue
        if part in found:
            raise ConfigError(f"column {name}", "is there twice")
        allowed = COLUMN_TYPES[part]
        if type_name not in allowed:
            raise ConfigError(
                f"column {name}", f"is of type {type_name}; it must be {' or '.join(allowed)}"
            )
        found[part] = index
    if "value" not in found:
        raise ConfigError("column value", "is missing: it is what a record holds")
    return Columns(**found)
