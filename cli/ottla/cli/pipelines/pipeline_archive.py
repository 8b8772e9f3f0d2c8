"""`ottla pipeline archive TOPIC…`: archives topics as Parquet or as a table, each record exactly
once."""

import argparse
import re
import time
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ottla.cli.common import CONNECTION, FORMAT, print_json
from ottla.cli.options import Declared, option
from ottla.cli.pipelines.export import CATALOG_OPTION
from ottla.cli.pipelines.pipeline_archive_table import PARQUET, check_format, run_table
from ottla.cli.pipelines.pipeline_common import (
    SPARK_OPTIONS,
    bootstrap_text,
    counted_rows,
    finish,
    follow_queries,
    key_and_value,
    login_options,
    open_spark,
    stream_options,
    trigger_of,
)
from ottla.cli.terminal import say
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError
from ottla.model.points_in_time import parse_time

if TYPE_CHECKING:
    from ottla.pipeline.archive.archive import ArchiveOptions
    from ottla.pipeline.archive.backfill import TimeSpan

MILLISECONDS = 1_000
LATE = "1h"
TRIGGER = "1m"
"""Default interval between batches of the archive, as a duration. Each batch writes at least one
file for each topic and hour, so a shorter interval creates many small files."""


OPTIONS: tuple[Declared, ...] = (
    option("topics TOPIC", "topic to archive", nargs="*"),
    option("--pattern REGEX", "regular expression of topics, including later ones"),
    option(
        "-o --output DIR|iceberg:CATALOG.TABLE",
        "directory or URL of the archive, or a table in a catalog of pyiceberg",
        required=True,
    ),
    option(
        "--table-format",
        "form of the archive: Parquet files by topic, date and hour, or one table for one topic "
        "(default: %(default)s)",
        choices=("parquet", "iceberg", "delta"),
        default=PARQUET,
    ),
    CATALOG_OPTION,
    option("--name NAME", "name of the query (default: archive-<name of DIR>)"),
    option("--schema DDL|FILE", "schema of values that are JSON (default: bytes)"),
    option(
        "--transform MODULE:FUNCTION",
        "function from DataFrame to DataFrame, also as file.py:function",
    ),
    option(
        "--starting WHERE",
        "start of a new archive: earliest, latest, or offsets as Spark's JSON (default: earliest)",
        default="earliest",
    ),
    option(
        "--option KEY=VALUE ...",
        "option of format('ottla'), such as maxOffsetsPerTrigger=100000; may be repeated",
    ),
    option("--headers", "keep the records' headers"),
    option("--checkpoint DIR", "directory of the checkpoint (default: _checkpoint of --output)"),
    option(
        "--from TIME",
        "start of a batch that adds missing records, such as 7d or 2026-07-31T12:00 "
        "(default: a stream)",
        dest="from_",
    ),
    option("--to TIME", "with --from: end of the batch (default: now)"),
    option(
        "--late DURATION",
        f"with --to: maximum disorder of the records' times (default: {LATE})",
        default=LATE,
    ),
    stream_options(trigger=TRIGGER),
    *CONNECTION,
    FORMAT,
    SPARK_OPTIONS,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla pipeline archive`: archive records of topics: continuously until interrupted, in one
    batch, or only the records of a span of time. Returns the exit code."""
    from ottla.pipeline.archive.archive import own_place

    check_format(arguments)
    options = archive_options(arguments)
    span = span_of(arguments)
    if options.schema is not None:
        from ottla.pipeline.run.session import require_pyspark
        from ottla.pipeline.run.transforms import check_schema

        require_pyspark()
        check_schema(options.schema)
    if arguments.table_format != PARQUET:
        return run_table(arguments, options)
    if span is not None:
        return run_backfill(arguments, options, span)
    check_archived(options)
    with own_place(options) as kept_open:
        return run_stream(arguments, options, kept_open)


def check_archived(options: "ArchiveOptions") -> None:
    """Check the output directory, and check that the topics exist, before Spark starts. Raises
    ConfigError or RefusedError if they are unusable."""
    from ottla.pipeline.archive.archive_directory import check_output
    from ottla.pipeline.archive.checkpoint import has_begun
    from ottla.pipeline.read.source_check import check_source

    check_output(options.output)
    check_source(
        options.source, is_stream=True, is_resumed=has_begun(options.checkpoint_path) is not False
    )


def run_stream(
    arguments: argparse.Namespace, options: "ArchiveOptions", kept_open: tuple[int, ...]
) -> int:
    """Archive records of topics as a Spark stream, until interrupted or in one batch. `kept_open`
    contains file descriptors that the JVM inherits. Returns the exit code."""
    from ottla.pipeline.archive.archive import start_archive

    is_json = arguments.format == "json"
    with (
        open_spark(arguments, options.name, kept_open) as spark,
    ):
        query = start_archive(spark, options)
        totals = follow_queries([query], is_json=is_json)
    return finish(totals, is_json=is_json, what=f" archived in {options.output}")


def run_backfill(arguments: argparse.Namespace, options: "ArchiveOptions", span: "TimeSpan") -> int:
    """Archive the records in a span of time, except for records that are already archived. Returns
    the exit code."""
    from ottla.pipeline.archive.archive_directory import check_output, local_path
    from ottla.pipeline.archive.backfill import backfill, source_of
    from ottla.pipeline.read.source_check import check_source

    if local_path(options.output) is None:
        raise ConfigError("--from", f"{options.output} is not on this machine's disks")
    check_output(options.output)
    check_source(source_of(options, span), is_stream=False)
    with open_spark(arguments, options.name) as spark:
        count = backfill(spark, options, span)
    if arguments.format == "json":
        print_json({"row_count": count, "start_ms": span.start_ms, "end_ms": span.end_ms})
    else:
        say(f"{counted_rows(count)} added to {options.output}")
    return 0


def span_of(arguments: argparse.Namespace) -> "TimeSpan | None":
    """Return the span of time in the command line's arguments, or None for a continuous archive."""
    from ottla.pipeline.archive.backfill import TimeSpan

    if arguments.from_ is None:
        if arguments.to is not None:
            raise ConfigError("--to", "needs --from")
        return None
    now_ms = round(time.time() * MILLISECONDS)
    start_ms = parse_time("--from", arguments.from_, now_ms)
    end_ms = now_ms if arguments.to is None else parse_time("--to", arguments.to, now_ms)
    if start_ms >= end_ms:
        raise ConfigError("--from", "must be before --to")
    late_ms = round(parse_duration("--late", arguments.late) * MILLISECONDS)
    return TimeSpan(start_ms=start_ms, end_ms=end_ms, late_ms=late_ms)


def archive_options(arguments: argparse.Namespace) -> "ArchiveOptions":
    """Return the options of the archive, from the command line's arguments."""
    from ottla.pipeline.archive.archive import ArchiveOptions
    from ottla.pipeline.run.transforms import load_function

    transform: Any = arguments.transform and load_function("--transform", arguments.transform)
    return ArchiveOptions(
        output=arguments.output,
        name=arguments.name or default_name(arguments.output),
        source=source_options(arguments),
        schema=arguments.schema,
        transform=transform,
        checkpoint=arguments.checkpoint,
        trigger_s=trigger_of(arguments),
    )


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of Spark's data source `format("ottla")` for the topics to archive. Raises
    ConfigError if the command line has both topic names and a pattern, or neither."""
    if bool(arguments.topics) == bool(arguments.pattern):
        raise ConfigError("TOPIC", "name topics, or a --pattern of their names, and not both")
    options = {
        "kafka.bootstrap.servers": bootstrap_text(arguments),
        **login_options(arguments),
        "startingOffsets": arguments.starting,
    }
    if arguments.pattern:
        options["subscribePattern"] = arguments.pattern
    else:
        options["subscribe"] = ",".join(arguments.topics)
    if arguments.headers:
        options["includeHeaders"] = "true"
    options.update(key_and_value("--option", text) for text in arguments.option)
    return options


def default_name(output: str) -> str:
    """Return the default name of an archive's streaming query, derived from its output directory.
    Each archive has its own directory and group."""
    last = PurePosixPath(output.rstrip("/")).name or "root"
    return "archive-" + re.sub(r"[^A-Za-z0-9._-]", "-", last)
