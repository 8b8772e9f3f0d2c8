"""Schema of a topic in Spark: the columns of Spark's own Kafka connector, in its order.

One table defines both the DDL for Spark and the Arrow schema of every record batch, because Spark
refuses a batch whose schema differs.  pyarrow is imported only when a schema is requested.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS = "headers"
DDL: Mapping[str, str] = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    HEADERS: "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Spark type of each column of a topic, by column name. The column `headers` is present only on
request."""
COLUMNS = tuple(DDL)


def column_names(columns: Sequence[str] | None, include_headers: bool) -> tuple[str, ...]:
    """Return the names of the requested columns in the order of Spark's Kafka connector. The order
    of `columns` has no effect.

    If `columns` is None, all columns are requested, including `headers` if `include_headers` is
    true. `columns` may also name `headers`. Raises ConfigError for an unknown column, and for an
    empty list.
    """
    if columns is None:
        return tuple(name for name in COLUMNS if include_headers or name != HEADERS)
    by_lower_name = {name.lower(): name for name in COLUMNS}
    wanted: set[str] = set()
    for name in columns:
        known = by_lower_name.get(name.lower())
        if known is None:
            near = get_close_matches(name.lower(), by_lower_name, 1)
            hint = f"did you mean {by_lower_name[near[0]]}?" if near else "there are " + _listed()
            raise ConfigError("columns", f"there is no column {name!r}; {hint}")
        wanted.add(known)
    if not wanted:
        raise ConfigError("columns", f"name one at least of {_listed()}")
    return tuple(name for name in COLUMNS if name in wanted)


def spark_ddl(names: Sequence[str]) -> str:
    """Return the schema of the columns `names` as Spark's DDL."""
    return ", ".join(f"{name} {DDL[name]}" for name in names)


@cache
def arrow_schema(names: tuple[str, ...]) -> "pa.Schema":
    """Return the Arrow schema of the columns `names`, exactly as Spark derives it from the DDL."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in names])


def _listed() -> str:
    return ", ".join(COLUMNS)
