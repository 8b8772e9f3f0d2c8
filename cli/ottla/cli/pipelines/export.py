"""`ottla export TOPIC --to …`: exports a topic as a table, each record exactly once."""

import argparse
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import (
    CONNECTION,
    FORMAT,
    bootstrap_of,
    login_settings_of,
    number_of,
    print_json,
)
from ottla.cli.options import Declared, option
from ottla.cli.pipelines.pipeline_common import key_and_value
from ottla.cli.terminal import draw, is_watched, note, say, wipe
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    from ottla.pipeline.export.delta_table import DeltaTable
    from ottla.pipeline.export.export import ExportFigures, ExportOptions
    from ottla.pipeline.export.iceberg_table import IcebergTable
    from ottla.pipeline.export.table_sink import TableSink

ICEBERG = "iceberg:"
DELTA = "delta:"
COMMIT_INTERVAL = "1m"
FILE_SIZE = "128Mi"
DRAW_S = 0.5
ENDING = "committing the rows so far; once more to end without that"

CATALOG_OPTION = option(
    "--catalog-option KEY=VALUE ...",
    "option of the Iceberg catalog, such as uri or warehouse; may be repeated (default: those of "
    "~/.pyiceberg.yaml and PYICEBERG_CATALOG__…)",
)

OPTIONS: tuple[Declared, ...] = (
    option("topic TOPIC", "topic to export"),
    option(
        "--to DIR|iceberg:CATALOG.TABLE|delta:DIR",
        "directory of Parquet files, a table in a catalog of pyiceberg, or a Delta table",
        required=True,
    ),
    option("--follow", "wait for new records until interrupted (default: end at the topic's end)"),
    option("--json", "values are JSON objects, which become typed columns (default: bytes)"),
    option(
        "--schema DDL|FILE",
        "with --json: columns, such as 'id BIGINT, name STRING' (default: inferred from the first "
        "records)",
    ),
    option(
        "--isolation-level",
        "which records of transactions to export (default: %(default)s)",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
    ),
    option(
        "--file-size SIZE",
        "size at which a file is finished and committed (default: %(default)s)",
        default=FILE_SIZE,
    ),
    option(
        "--commit-interval DURATION",
        "with --follow: longest time that rows wait for a commit (default: %(default)s)",
        default=COMMIT_INTERVAL,
    ),
    option(
        "--compression",
        "codec of Parquet (default: %(default)s)",
        choices=("zstd", "snappy", "lz4", "gzip", "none"),
        default="zstd",
    ),
    CATALOG_OPTION,
    *CONNECTION,
    FORMAT,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla export`: export the topic until its end, or until interrupted. Returns the exit
    code."""
    require_tables(arguments.to)
    from ottla.pipeline.export.export import TopicExport
    from ottla.pipeline.run.watching import QueriesEnding, asked_by_signals

    options = export_options(arguments)
    ending = QueriesEnding()

    def on_request() -> None:
        if ending.at_once:
            # The process may end at any time: the table then has the state of its last commit.
            raise KeyboardInterrupt
        note(ENDING)

    shown = ExportShown(arguments.topic)
    start_s = time.monotonic()
    with open_sink(arguments) as sink:
        exporter = TopicExport(sink, options, show=shown, is_ending=lambda: ending.after_batch)
        with asked_by_signals(ending, on_request):
            try:
                figures = exporter.run()
            finally:
                shown.end()
    seconds = time.monotonic() - start_s
    if arguments.format == "json":
        print_json(summary(arguments, figures, seconds))
    else:
        files = "1 file" if figures.file_count == 1 else f"{figures.file_count:,} files"
        behind = f", {figures.behind_count:,} behind" if figures.behind_count else ""
        say(f"{figures.committed_count:,} rows in {files} added to {arguments.to}{behind}")
    if figures.bad_count:
        values = "1 value does" if figures.bad_count == 1 else f"{figures.bad_count:,} values do"
        note(f"warning: {values} not fit the columns of the table; see its column bad_value")
    return 0


def summary(
    arguments: argparse.Namespace, figures: "ExportFigures", seconds: float
) -> dict[str, Any]:
    """Return the result of an export as the JSON object that the command prints."""
    position = figures.position
    offsets = {} if position is None else position.next_offsets
    return {
        "topic": arguments.topic,
        "to": arguments.to,
        "row_count": figures.committed_count,
        "file_count": figures.file_count,
        "behind_count": figures.behind_count,
        "bad_value_count": figures.bad_count,
        "next_offsets": {str(number): offsets[number] for number in sorted(offsets)},
        "seconds": round(seconds, 3),
    }


def require_tables(target: str) -> None:
    """Raise ConfigError if the export's target requires Ottla's extra [tables], which is not
    installed."""
    try:
        import numpy  # noqa: F401
        import pyarrow  # noqa: F401

        if target.startswith(ICEBERG):
            import pyiceberg  # noqa: F401
        if target.startswith(DELTA):
            import deltalake  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            error.name or "pyarrow", f"is not installed; install it with: {install_hint('tables')}"
        ) from None


def export_options(arguments: argparse.Namespace) -> "ExportOptions":
    """Return the options of an export, from the command line's arguments. Raises ConfigError if an
    argument is invalid."""
    from ottla.pipeline.export.export import ExportOptions

    file_bytes = number_of(arguments.file_size)
    if file_bytes is None or file_bytes < 1:
        raise ConfigError("--file-size", f"is {arguments.file_size!r}; it must be such as 128Mi")
    return ExportOptions(
        topic=arguments.topic,
        read=read_options(arguments),
        is_json=arguments.json,
        value_type=value_type_option(arguments),
        follows=arguments.follow,
        file_bytes=int(file_bytes),
        commit_interval_s=parse_duration("--commit-interval", arguments.commit_interval),
        compression=arguments.compression,
    )


def value_type_option(arguments: argparse.Namespace) -> Any:
    """Return the type that the option --schema describes for JSON values, or None without this
    option."""
    from ottla.pipeline.export.value_schema import value_type_of

    if arguments.schema is None:
        return None
    if not arguments.json:
        raise ConfigError("--schema", "needs --json")
    path = Path(arguments.schema)
    is_file = "\n" not in arguments.schema and path.is_file()
    return value_type_of("--schema", path.read_text() if is_file else arguments.schema)


def read_options(arguments: argparse.Namespace) -> Any:
    """Return the options with which a command reads topics: addresses, login and isolation
    level."""
    from ottla.pipeline.read.read_options import ReadOptions

    addresses = bootstrap_of(arguments)
    return ReadOptions(
        bootstrap=",".join(f"{host}:{port}" for host, port in addresses),
        isolation_level=arguments.isolation_level,
        client=tuple(sorted(login_settings_of(arguments).items())),
    )


@contextmanager
def open_sink(arguments: argparse.Namespace) -> Iterator["TableSink"]:
    """Open the Iceberg table, Delta table or directory that --to names. Yields it as the sink
    (destination) of the exported rows."""
    if arguments.to.startswith((ICEBERG, DELTA)):
        with open_table("--to", arguments.to, arguments) as table:
            yield table
        return
    from ottla.pipeline.export.parquet_directory import local_directory, open_directory

    check_catalog("--to", arguments.to, arguments)
    with open_directory(local_directory("--to", arguments.to)) as sink:
        yield sink


def open_table(
    option: str, target: str, arguments: argparse.Namespace
) -> AbstractContextManager["IcebergTable | DeltaTable"]:
    """Return a context manager that opens an Iceberg or Delta table.  `option` is the option that
    names the table."""
    if target.startswith(ICEBERG):
        return open_iceberg(option, target, arguments)
    return open_delta(option, target, arguments)


def open_iceberg(
    option: str, target: str, arguments: argparse.Namespace
) -> AbstractContextManager["IcebergTable"]:
    """Return a context manager that opens an Iceberg table in its catalog.  `option` is the option
    that names the table."""
    from ottla.pipeline.export.iceberg_table import open_iceberg_table

    options = dict(key_and_value("--catalog-option", one) for one in arguments.catalog_option)
    return open_iceberg_table(target, options, option=option)


def open_delta(
    option: str, target: str, arguments: argparse.Namespace
) -> AbstractContextManager["DeltaTable"]:
    """Return a context manager that opens a Delta table.  `option` is the option that names the
    table."""
    from ottla.pipeline.export.delta_table import open_delta_table

    check_catalog(option, target, arguments)
    return open_delta_table(target, option=option)


def check_catalog(option: str, target: str, arguments: argparse.Namespace) -> None:
    """Raise ConfigError if the command line has options of an Iceberg catalog, but another kind of
    target."""
    if arguments.catalog_option and not target.startswith(ICEBERG):
        raise ConfigError("--catalog-option", f"needs {option} {ICEBERG}CATALOG.TABLE")


class ExportShown:
    """Progress line of an export, drawn on a terminal."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._is_drawn = is_watched()
        self._start_s = time.monotonic()
        self._drawn_s = 0.0

    def __call__(self, figures: "ExportFigures") -> None:
        """Draw the progress of the export, at most twice a second."""
        now_s = time.monotonic()
        if not self._is_drawn or now_s - self._drawn_s < DRAW_S:
            return
        self._drawn_s = now_s
        total = figures.row_count + figures.behind_count
        rate = figures.row_count / max(now_s - self._start_s, DRAW_S)
        draw(
            f"{self._topic}  {figures.row_count:,} of {total:,} rows  "
            f"{figures.row_count * 100 // max(total, 1)} %  {rate:,.0f} rows/s"
        )

    def end(self) -> None:
        """Erase the progress line of the export."""
        if self._is_drawn:
            wipe()
