"""DataFrame functions that several commands use to transform records.

Each accepts records with the columns of `format("ottla")` and returns a DataFrame. All
transformations are narrow (no shuffle, no state), so that a repeated batch has the same result.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ottla.model.errors import ConfigError
from ottla.pipeline.run.ddl import ddl_problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Transform = Callable[["DataFrame"], "DataFrame"]

MICROSECONDS_AN_HOUR = 3_600_000_000
HOURS_A_DAY = 24
PLACED = ("topic", "date", "hour")
"""Names of the columns that determine the directory of a record in an archive."""
_UNREAD = "_unread"


def with_hour(records: "DataFrame") -> "DataFrame":
    """Return the records with two more columns, `date` and `hour`, computed from their timestamps.
    Both are in UTC in every time zone of the session."""
    from pyspark.sql import functions as f

    # Computed arithmetically, because all date functions use the session's time zone.
    hours = f.floor(f.unix_micros(f.col("timestamp")) / MICROSECONDS_AN_HOUR)
    return records.withColumns(
        {
            "date": f.date_from_unix_date(f.floor(hours / HOURS_A_DAY).cast("int")),
            "hour": f.pmod(hours, f.lit(HOURS_A_DAY)).cast("int"),
        }
    )


def with_json_value(records: "DataFrame", schema: "StructType") -> "DataFrame":
    """Return the records with `value` parsed from JSON into a struct, and with `bad_value`, the
    bytes that did not match the schema.

    No record is lost: if `bad_value` is not null, the struct contains the fields that could be
    read.  A null value (a tombstone) stays null, and its `bad_value` is null.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    parsed = f.from_json(
        f.col("value").cast("string"),
        type(schema)([*schema.fields]).add(_UNREAD, StringType()),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _UNREAD},
    )
    fitted = f.col("_parsed")
    is_bad = fitted[_UNREAD].isNotNull() | (fitted.isNull() & f.col("value").isNotNull())
    columns = [name for name in records.columns if name != "value"]
    at = records.columns.index("value")
    return records.withColumn("_parsed", parsed).select(
        *columns[:at],
        f.when(fitted.isNotNull(), fitted.dropFields(_UNREAD)).alias("value"),
        f.when(is_bad, f.col("value")).alias("bad_value"),
        *columns[at:],
    )


def check_schema(text: str) -> None:
    """Raise ConfigError for a schema text that Spark would refuse, if this can be detected without
    a JVM."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from ottla.pipeline.run.spark_errors import spark_message

    try:
        content = _schema_text(text)
        if content.lstrip().startswith("{"):
            StructType.fromJson(json.loads(content))
            return
        why = ddl_problem(content)
    except (PySparkException, KeyError, TypeError, ValueError, OSError) as error:
        why = spark_message(error) if isinstance(error, PySparkException) else repr(error)
    if why:
        raise _no_schema(text, why)


def read_schema(text: str) -> "StructType":
    """Return a Spark schema from a DDL text, or from a file that contains DDL or Spark's JSON."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    from ottla.pipeline.run.spark_errors import spark_message

    try:
        content = _schema_text(text)
        if content.lstrip().startswith("{"):
            found: Any = StructType.fromJson(json.loads(content))
        else:
            found = StructType.fromDDL(content)
        if isinstance(found, StructType) and found.fields:
            return found
        why = "it names no fields"
    except (PySparkException, KeyError, TypeError, ValueError, OSError) as error:
        why = spark_message(error) if isinstance(error, PySparkException) else repr(error)
    raise _no_schema(text, why)


def _schema_text(text: str) -> str:
    path = Path(text)
    return path.read_text() if "\n" not in text and path.is_file() else text


def _no_schema(text: str, why: str) -> ConfigError:
    return ConfigError(
        "--schema",
        f"{text!r} is neither a DDL such as 'id BIGINT, name STRING', nor a file with one or "
        f"with a schema as Spark writes it in JSON: {why}",
    )


def load_function(option: str, text: str) -> Callable[..., object]:
    """Return the function that a text of the form `module:function` or `path/to/file.py:function`
    names. `option` is the name of the option in errors."""
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise ConfigError(option, f"is {text!r}; it must be module:function or file.py:function")
    module = load_file(option, Path(where)) if where.endswith(".py") else _imported(option, where)
    function = getattr(module, name, None)
    if not callable(function):
        raise ConfigError(option, f"there is no function {name!r} in {where}")
    return function  # type: ignore[no-any-return]  # callable() says nothing of what it returns


def load_file(option: str, path: Path) -> ModuleType:
    """Import a user's Python file by its path, and return the module. `option` is the name of the
    option in errors."""
    if not path.is_file():
        raise ConfigError(option, f"there is no file {path}")
    from pyspark import cloudpickle

    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[path.stem] = module
    # Executors cannot import the file, so its functions are pickled by value.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spec.loader.exec_module(module)
    return module


def _imported(option: str, name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # An import in the user's code failed; the traceback shows the line.
        raise ConfigError(option, f"there is no module {name!r}") from None
