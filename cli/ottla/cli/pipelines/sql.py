"""`ottla sql QUERY`: runs an SQL query over live topics by DuckDB."""

import argparse
import csv
import io
import re
from typing import TYPE_CHECKING, Any

from ottla.cli.common import CONNECTION
from ottla.cli.options import Declared, option
from ottla.cli.pipelines.export import read_options, value_type_option
from ottla.cli.tables import print_table
from ottla.cli.terminal import note, say_block, say_json
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 2_000
TABLE_ROWS_MAX = 1_000
"""Maximum number of rows of an SQL result in a table. All rows of the table are stored in memory,
because the column widths depend on every row."""
MEMORY = "1Gi"
_NO_FIELD = re.compile(r"Cannot extract field .* because it is not a struct")
_SHOW_TABLES = re.compile(r"\s*(show\s+(all\s+)?tables|\.tables)\s*;?\s*", re.IGNORECASE)
_UNKNOWN_TABLE = re.compile(r"Table with name (\S+) does not exist!")

OPTIONS: tuple[Declared, ...] = (
    option("query QUERY", "query in DuckDB's SQL; topics are tables, quoted if need be"),
    option("--json", "values are JSON objects, which become typed columns (default: bytes)"),
    option(
        "--schema DDL|FILE",
        "with --json: columns, such as 'id BIGINT, name STRING' (default: inferred from the first "
        "records of each topic)",
    ),
    option(
        "--isolation-level",
        "which records of transactions to read (default: %(default)s)",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
    ),
    option(
        "--memory SIZE",
        "memory of the query; beyond it DuckDB writes temporary files (default: %(default)s)",
        default=MEMORY,
    ),
    *CONNECTION,
    option(
        "--format",
        "format of the output (default: %(default)s)",
        choices=("table", "json", "csv"),
        default="table",
    ),
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla sql`: run an SQL query over the topics named in the query, and print its result.
    Returns the exit code."""
    try:
        import duckdb
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            error.name or "duckdb", f"is not installed; install it with: {install_hint('sql')}"
        ) from None
    if _SHOW_TABLES.fullmatch(arguments.query):
        raise ConfigError("QUERY", "the tables are the topics; 'ottla topic list' shows them")
    from ottla.pipeline.export.topic_scan import scans_of

    scans = scans_of(
        arguments.query,
        read_options(arguments),
        is_json=arguments.json,
        value_type=value_type_option(arguments),
    )
    with duckdb.connect() as engine:
        try:
            engine.execute("SET memory_limit = ?", [f"{arguments.memory}B"])
            for topic, scan in scans.items():
                engine.register(topic, scan)
            found = engine.sql(arguments.query)
            if found is not None:
                show(found.to_arrow_reader(BATCH_ROWS), arguments.format)
        except duckdb.Error as error:
            failure = next((one.failure for one in scans.values() if one.failure), None)
            sentence = _sentence(error, has_fields=arguments.json)
            raise failure or ConfigError("QUERY", sentence) from None
    return 0


def show(reader: "pa.RecordBatchReader", form: str) -> None:
    """Print the rows of an SQL query's result. CSV and JSON are printed as the rows arrive; a table
    is printed at the end, with at most `TABLE_ROWS_MAX` rows."""
    names = reader.schema.names
    if form == "csv":
        say_block(_csv([names]))
    shown: list[list[Any]] = []
    for batch in reader:
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        if form == "json":
            for row in rows:
                say_json(dict(zip(names, map(_plain, row), strict=True)))
        elif form == "csv" and rows:
            say_block(_csv(map(_text, row) for row in rows))
        else:
            shown += [[_cell(one) for one in row] for row in rows]
            if len(shown) > TABLE_ROWS_MAX:
                break
    if form == "table":
        print_table(names, shown[:TABLE_ROWS_MAX], are_headers_data=True)
        if len(shown) > TABLE_ROWS_MAX:
            note(f"the first {TABLE_ROWS_MAX:,} rows; --format csv or json prints all of them")


def _csv(rows: Any) -> str:
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerows(rows)
    return output.getvalue().rstrip("\n")


def _plain(value: Any) -> Any:
    """Convert a value of an SQL result to a JSON type. Bytes and times become texts."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(value: Any) -> str:
    plain = _plain(value)
    return "" if plain is None else str(plain)


def _cell(value: Any) -> Any:
    plain = _plain(value)
    return plain if plain is None or isinstance(plain, int | str) else str(plain)


def _sentence(error: Exception, *, has_fields: bool) -> str:
    """Return DuckDB's error message as one line. `has_fields` is True if the values of records are
    JSON.

    For an unknown table, DuckDB suggests its own tables. The result replaces these suggestions by
    an explanation of the names of topics.
    """
    if not has_fields and _NO_FIELD.search(str(error)):
        return "values are bytes, which have no fields; --json reads JSON values as columns"
    unknown = _UNKNOWN_TABLE.search(str(error))
    if unknown is not None:
        return (
            f"there is no topic or table {unknown[1]!r}; 'ottla topic list' shows the topics, and "
            "names with other characters than letters, digits and _ are quoted"
        )
    return " ".join(str(error).partition("\n\n")[0].split())
