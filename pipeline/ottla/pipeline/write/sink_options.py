"""Everything that can be asked of a write: the connector's options, and the columns of its rows.

Pure, frozen and picklable: what a task must know travels to it with the writer.
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
"""The columns that a record is made of, and the types that each may have; others are not looked
at."""

SERIALIZERS = "the columns value and key are written as they are, bytes or text"
SET_BY_SPARK = {
    "key.serializer": SERIALIZERS,
    "value.serializer": SERIALIZERS,
}
TRANSACTIONAL_ID = "transactional.id"
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
TRANSACTION_TIMEOUT_MS = 900_000
"""The most that brokers allow by default: a transaction is open until all tasks of its batch are
done.  Shorter, long batches fail at their end; longer, readers of committed records wait longer for
what a driver that died, and does not come back, left open."""
OF_SPARK = ("checkpointLocation", "path", "queryName")
"""What Spark itself reads out of the options of a write."""


@dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """What may be written in `option(…)`, but for `kafka.*`."""

    topic: str | None = setting(
        None,
        key="topic",
        kind=SettingKind.STRING,
        doc="The topic of every row, whatever the column topic says.",
    )
    include_headers: bool = setting(
        True,
        key="includeHeaders",
        doc="Whether the column headers, where there is one, is written.",
    )
    provenance: bool = setting(
        True,
        key="provenance",
        doc="Whether each record says in its headers which write it is of: without, nobody can "
        "tell one that was written twice.",
    )
    sort_rows: bool = setting(
        False,
        key="sortRows",
        doc="Sort the rows of each task before they are written: for queries that may give them "
        "in another order when a task is repeated, as after a shuffle. A task then holds all its "
        "rows in memory.",
    )
    transactions: bool | None = setting(
        None,
        key="transactions",
        kind=SettingKind.BOOLEAN,
        doc="Whether each task writes in a transaction, so that readers of committed records see "
        "each row once. Set for streams and for writes with txnAppId or kafka.transactional.id.",
    )
    txn_app_id: str | None = setting(
        None,
        key="txnAppId",
        kind=SettingKind.STRING,
        doc="Whose write this is, where it may be repeated as a whole: a record that was written "
        "under the same txnAppId and txnVersion is a replay. For batch writes, as in "
        "foreachBatch.",
    )
    txn_version: int | None = setting(
        None,
        key="txnVersion",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Which write of its txnAppId this is: must grow from one to the next.",
    )

    def __post_init__(self) -> None:
        if (self.txn_app_id is None) != (self.txn_version is None):
            missing = "txnVersion" if self.txn_version is None else "txnAppId"
            raise ConfigError(missing, "is not set; txnAppId and txnVersion need each other")


class Columns(NamedTuple):
    """Where in a row the parts of a record are; None where there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None


@dataclass(frozen=True, kw_only=True)
class SinkTarget:
    """What a task must know to write its rows."""

    bootstrap: str
    options: SinkOptions
    columns: Columns
    client: tuple[tuple[str, str], ...]
    is_transactional: bool = False
    transactional_id: str | None = None
    """What the names of the tasks' transactions begin with; None for a name made of the query's."""

    def producer_config(self, transactional_id: str | None = None) -> ProducerConfig:
        """Return the settings of our producer, or of that of one task's transactions."""
        config, _none = load(ProducerConfig, dict(self.client))
        return replace(config, transactional_id=transactional_id)


def read_target(
    texts: Mapping[str, str], fields: Iterable[tuple[str, str]], *, is_streaming: bool
) -> SinkTarget:
    """Read the options of a write of rows with these fields: name and type, as Spark names it.

    ConfigError names the option, or the column, that is wrong.
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
        # What a failed request left twice would look like a gap, or a replay.
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
    """Find the parts of a record among the columns of a row, in whatever case they are written."""
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
