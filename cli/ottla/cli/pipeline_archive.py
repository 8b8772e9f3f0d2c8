"""`ottla pipeline archive TOPIC…`: topics into Parquet, each record exactly once."""

import argparse
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ottla.cli.common import add_cluster_arguments, add_format_argument
from ottla.cli.pipeline_common import (
    add_spark_arguments,
    add_stream_arguments,
    bootstrap_text,
    finish,
    follow_queries,
    key_and_value,
    open_spark,
    trigger_of,
)
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from ottla.pipeline.archive import ArchiveOptions

TRIGGER = "1m"
"""Each batch is at least a file per hour and topic: shorter makes many small files."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="what to archive")
    parser.add_argument(
        "--pattern", metavar="REGEX", help="all topics with such names, also those yet to come"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="where to")
    parser.add_argument("--name", help="the query's name (default: archive-<DIR's own name>)")
    parser.add_argument(
        "--schema", metavar="DDL|FILE", help="values are JSON of this schema (default: bytes)"
    )
    parser.add_argument(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="a function from DataFrame to DataFrame, also as file.py:function",
    )
    parser.add_argument(
        "--starting",
        default="earliest",
        metavar="WHERE",
        help="where a new archive begins: earliest (default), latest, or offsets as Spark's JSON",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of format('ottla'), such as maxOffsetsPerTrigger=100000",
    )
    parser.add_argument("--headers", action="store_true", help="keep the records' headers")
    parser.add_argument("--checkpoint", metavar="DIR", help="default: DIR/_checkpoint of --output")
    add_stream_arguments(parser, trigger=TRIGGER)
    add_cluster_arguments(parser)
    add_format_argument(parser)
    add_spark_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Archive until told to stop, or once."""
    from ottla.pipeline.archive import start_archive

    options = archive_options(arguments)
    is_json = arguments.format == "json"
    with open_spark(arguments, options.name) as spark:
        query = start_archive(spark, options)
        totals = follow_queries([query], is_json=is_json)
    return finish(totals, is_json=is_json, what=f" archived in {options.output}")


def archive_options(arguments: argparse.Namespace) -> "ArchiveOptions":
    """Return what the command line asks for."""
    from ottla.pipeline.archive import ArchiveOptions
    from ottla.pipeline.transforms import load_function

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
    """Return the options of `format("ottla")`; ConfigError unless it is clear which topics."""
    if bool(arguments.topics) == bool(arguments.pattern):
        raise ConfigError("TOPIC", "name topics, or a --pattern of their names, and not both")
    options = {
        "kafka.bootstrap.servers": bootstrap_text(arguments),
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
    """Return a query's name after its output: one archive a directory, one group an archive."""
    last = PurePosixPath(output.rstrip("/")).name or "root"
    return "archive-" + re.sub(r"[^A-Za-z0-9._-]", "-", last)
