"""`ottla pipeline archive --table-format iceberg|delta`: archives a topic as a table, by Spark."""

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.pipelines.export import DELTA, ICEBERG, open_table, require_tables
from ottla.cli.pipelines.pipeline_common import finish, follow_queries, open_spark
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from ottla.pipeline.archive.archive import ArchiveOptions

PARQUET = "parquet"
OPTION = "--table-format"


def check_format(arguments: argparse.Namespace) -> None:
    """Raise ConfigError if the table format and other options of `ottla pipeline archive`
    contradict each other."""
    form, output = arguments.table_format, arguments.output
    is_catalog = output.startswith(ICEBERG)
    if is_catalog and form != "iceberg":
        raise ConfigError("--output", f"is {output!r}, which needs {OPTION} iceberg")
    if not is_catalog and form == "iceberg":
        raise ConfigError(
            "--output", f"is {output!r}; a table of Iceberg is {ICEBERG}CATALOG.TABLE"
        )
    if form == PARQUET:
        if arguments.catalog_option:
            raise ConfigError("--catalog-option", f"needs {OPTION} iceberg")
        return
    if arguments.pattern or len(arguments.topics) != 1:
        raise ConfigError(OPTION, "a table has the records of one topic; name one TOPIC")
    if arguments.from_ is not None:
        raise ConfigError(
            "--from", f"fills archives of Parquet; {OPTION} {form} has no gaps to fill"
        )
    if arguments.checkpoint is not None:
        raise ConfigError(
            "--checkpoint", f"is not used by {OPTION} {form}: the table has the offsets"
        )


def run_table(arguments: argparse.Namespace, options: "ArchiveOptions") -> int:
    """Archive records of a topic into a table until interrupted, or in one batch. Returns the exit
    code."""
    target = options.output
    if arguments.table_format == "delta":
        target = f"{DELTA}{options.output}"
    require_tables(target)
    from ottla.pipeline.read.source_check import check_source
    from ottla.pipeline.tables.table_archive import (
        TableArchiveOptions,
        source_at,
        start_table_archive,
    )

    archive = TableArchiveOptions(
        topic=arguments.topics[0],
        name=options.name,
        source=options.source,
        schema=options.schema,
        transform=options.transform,
        trigger_s=options.trigger_s,
    )
    is_json = arguments.format == "json"
    with (
        open_table("--output", target, arguments) as table,
        tempfile.TemporaryDirectory(prefix="ottla-table-") as checkpoint,
    ):
        check_source(options.source, is_stream=True, is_resumed=table.position is not None)
        source = source_at(table, archive)
        with open_spark(arguments, options.name) as spark:
            query = start_table_archive(spark, table, archive, source, Path(checkpoint))
            totals = follow_queries([query], is_json=is_json)
    return finish(totals, is_json=is_json, what=f" archived in {options.output}")
