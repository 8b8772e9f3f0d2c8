"""Columns that are decoded and encoded with a schema registry.

    orders = rows.select(from_registry("value", "http://registry:8081", "id long, sum double"))

The executors send requests to the registry, once for each schema and worker.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's own way to write it
from pyspark.sql.pandas import functions as arrow_functions
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, DataType

from ottla.client.schemas import (
    AvroSerializer,
    JsonSchemaSerializer,
    RegistryConfig,
    Schema,
    SchemaError,
    SchemaFormat,
    SerializerConfig,
    run_blocking,
)
from ottla.model.errors import ConfigError
from ottla.pipeline.registry.worker_registry import plain_reader, worker_registry

_arrow_udf: Any = arrow_functions.arrow_udf
"""Replacement of pyspark's `arrow_udf` without its type stubs, which reject the type hints that
pyspark recommends."""


def from_registry(
    value: Column | str,
    registry: str,
    returns: DataType | str,
    *,
    config: RegistryConfig | None = None,
    is_corrupt_null: bool = False,
) -> Column:
    """Return a Spark column of values, decoded from a column of record bytes by the schema of each
    record. The schemas may have any format.

    `registry` is an address, or the directory of a `file_registry`. `returns` is the type of the
    values, as Spark's DDL (`"id long, name string"`) or as a type. Fields are found by name. A
    field that a record lacks is null, and a field that the type lacks is left out. A record that
    cannot be read fails the query, and the error has the id of its schema. If `is_corrupt_null` is
    true, such a record becomes null instead.
    """
    data_type = DataType.fromDDL(returns) if isinstance(returns, str) else returns
    arrow_type = to_arrow_type(data_type, timezone="UTC")

    def read_values(column: pa.Array) -> pa.Array:
        reader = plain_reader(registry, config)
        values: list[Any] = []
        for data in column.to_pylist():
            try:
                values.append(None if data is None else reader.read(data))
            except SchemaError as error:
                if error.is_temporary or not is_corrupt_null:
                    raise
                values.append(None)
        return pa.array(values, type=arrow_type)

    found: Column = _arrow_udf(read_values, data_type)(_column(value))
    return found


def to_registry(
    value: Column | str,
    registry: str,
    topic: str,
    schema: str | Schema,
    *,
    config: RegistryConfig | None = None,
    serializer_config: SerializerConfig | None = None,
) -> Column:
    """Return a Spark column of record bytes for a topic, encoded with an Avro or a JSON schema.

    `schema` is an Avro schema as text, or a Schema. `value` is a column of structs with the
    schema's fields, such as `struct("id", "name")`. The executors register the schema, unless
    `serializer_config` forbids it.
    """
    own = Schema(schema) if isinstance(schema, str) else schema
    if own.format is SchemaFormat.PROTOBUF:
        raise ConfigError("schema", "is PROTOBUF; to_registry writes AVRO and JSON")
    make = AvroSerializer[Any] if own.format is SchemaFormat.AVRO else JsonSchemaSerializer[Any]

    def write_values(column: pa.Array) -> pa.Array:
        serializer = make(worker_registry(registry, config), own, config=serializer_config)
        records = [
            None if one is None else run_blocking(serializer.serialize(topic, "value", one)).data
            for one in column.to_pylist()
        ]
        return pa.array(records, type=pa.binary())

    found: Column = _arrow_udf(write_values, BinaryType())(_column(value))
    return found


def _column(value: Column | str) -> Column:
    return F.col(value) if isinstance(value, str) else value
