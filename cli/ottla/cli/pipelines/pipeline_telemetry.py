"""`ottla pipeline telemetry`: what clients report of themselves, rolled up by windows."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ottla.cli.common import add_cluster_arguments, add_format_argument
from ottla.cli.pipelines.pipeline_common import (
    add_spark_arguments,
    add_stream_arguments,
    bootstrap_text,
    finish,
    follow_queries,
    key_and_value,
    login_options,
    open_spark,
    trigger_of,
)
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError, RefusedError
from ottla.pipeline.archive.archive_directory import (
    ArchiveDirectory,
    changing,
    check_output,
    local_path,
)
from ottla.pipeline.run.spark_errors import SparkFailedError

if TYPE_CHECKING:
    from ottla.pipeline.rollup.stream import TelemetryOptions

TOPIC = "__client_metrics"
TRIGGER = "1m"
"""Windows are a minute long when nothing else is said: looking more often tells nothing sooner."""
CHECKPOINT = "_checkpoint"
SHUFFLES = "spark.sql.shuffle.partitions"
SHUFFLES_LOCAL = 4
"""Spark cuts what it sorts and groups into 200 parts, which suits a cluster, not one machine."""
MILLISECONDS = 1_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="directory of the aggregates, Parquet by date"
    )
    parser.add_argument(
        "--output-topic",
        metavar="TOPIC",
        help="topic for the aggregates as JSON, with or without --output",
    )
    parser.add_argument(
        "--topic", default=TOPIC, help=f"topic of the clients' metrics (default: {TOPIC})"
    )
    parser.add_argument(
        "--window", default="1m", metavar="DURATION", help="how long a window is (default: 1m)"
    )
    parser.add_argument(
        "--lateness",
        default="30s",
        metavar="DURATION",
        help="how long a window waits for pushes after its end (default: 30s); later ones make "
        "rows of their own, marked is_late",
    )
    parser.add_argument(
        "--by",
        default="client_id,broker_id",
        metavar="NAME,…",
        help="what rows are made by, beside the metric: client_instance_id, client_id, principal, "
        "client_software_name, client_software_version, client_source_address, broker_id, or an "
        "attribute such as node.id (default: client_id,broker_id)",
    )
    parser.add_argument(
        "--metrics", default="", metavar="BEGINNING,…", help="only metrics of such names"
    )
    parser.add_argument("--name", help="name of the query (default: telemetry-<name of DIR>)")
    parser.add_argument(
        "--starting",
        default="earliest",
        metavar="WHERE",
        help="start of a new query: earliest, latest, or offsets as Spark's JSON (default: "
        "earliest)",
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of format('ottla'), such as maxOffsetsPerTrigger=100000; may be repeated",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="directory of the checkpoint (default: _checkpoint of --output)",
    )
    add_stream_arguments(parser, trigger=TRIGGER)
    add_cluster_arguments(parser)
    add_format_argument(parser)
    add_spark_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Roll up until told to stop, or once."""
    from ottla.pipeline.run.session import require_pyspark

    require_pyspark()
    from ottla.pipeline.rollup.stream import start

    options = telemetry_options(arguments)
    is_json = arguments.format == "json"
    if arguments.master.startswith("local"):
        arguments.conf.insert(0, f"{SHUFFLES}={SHUFFLES_LOCAL}")  # what the user says comes later
    with (
        topic_explained(options.topic),
        prepared(options) as kept_open,
        open_spark(arguments, options.name, kept_open) as spark,
    ):
        totals = follow_queries([start(spark, options)], is_json=is_json)
    where = " and ".join(filter(None, [options.output, options.output_topic]))
    return finish(totals, is_json=is_json, what=f" rolled up in {where}")


def telemetry_options(arguments: argparse.Namespace) -> "TelemetryOptions":
    """Return what the command line asks for."""
    from ottla.pipeline.rollup.frames import RollupOptions
    from ottla.pipeline.rollup.stream import TelemetryOptions

    output = arguments.output
    if output is None and arguments.output_topic is None:
        raise ConfigError("--output", "name a directory or an --output-topic, or both")
    if output is None and arguments.checkpoint is None:
        raise ConfigError("--checkpoint", "is needed where there is no --output to keep it in")
    return TelemetryOptions(
        bootstrap=bootstrap_text(arguments),
        login=login_options(arguments),
        checkpoint=arguments.checkpoint or f"{output.rstrip('/')}/{CHECKPOINT}",
        output=output,
        output_topic=arguments.output_topic,
        topic=arguments.topic,
        name=arguments.name or query_name(output or arguments.output_topic),
        rollup=RollupOptions(
            window_ms=milliseconds("--window", arguments.window),
            by=words(arguments.by),
            metrics=words(arguments.metrics),
        ),
        lateness_ms=milliseconds("--lateness", arguments.lateness),
        trigger_s=trigger_of(arguments),
        source={
            "startingOffsets": arguments.starting,
            **dict(key_and_value("--option", text) for text in arguments.option),
        },
    )


@contextmanager
def prepared(options: "TelemetryOptions") -> Iterator[tuple[int, ...]]:
    """Be alone in the output, and ask the cluster for the topic, before Spark starts.

    A new output is made only when the topic is there.  Yields what the session must keep open.
    """
    path = None if options.output is None else local_path(options.output)
    is_new = path is None or not path.exists()
    if is_new:
        _check(options)
    with alone_in(options.output, options.checkpoint) as kept_open:
        if not is_new:
            _check(options)
        yield kept_open


def _check(options: "TelemetryOptions") -> None:
    from ottla.pipeline.archive.checkpoint import has_begun
    from ottla.pipeline.read.source_check import check_source
    from ottla.pipeline.rollup.stream import source_of

    if options.output is not None:
        check_output(options.output)
    is_resumed = has_begun(options.checkpoint) is not False
    check_source(source_of(options), is_stream=True, is_resumed=is_resumed)


@contextmanager
def topic_explained(topic: str) -> Iterator[None]:
    """Say of the topic that brokers write, when it is missing, how it comes to be."""
    try:
        yield
    except (SparkFailedError, RefusedError) as error:
        if topic != TOPIC or TOPIC not in str(error) or "no topic" not in str(error):
            raise
        raise SparkFailedError(
            f"{error}: brokers with telemetry.topic=true write it, once a client reports "
            "('ottla metrics subscriptions set' asks them to)"
        ) from None


@contextmanager
def alone_in(output: str | None, checkpoint: str) -> Iterator[tuple[int, ...]]:
    """Be the only command that writes into a directory, as far as it is on this machine.

    Yields what the session must keep open: a JVM that outlives us for a moment writes, too.
    """
    path = None if output is None else local_path(output)
    if path is None:
        yield ()
        return
    if path.exists() and not path.is_dir():
        raise ConfigError("--output", f"{path} is no directory")
    if ArchiveDirectory(path).has_log:
        raise ConfigError(
            "--output",
            f"{path} is an archive, whose readers would not see rollups; name another directory",
        )
    begun = local_path(checkpoint)
    if begun is not None and not (begun / "metadata").exists() and any(path.glob("date=*")):
        raise ConfigError(
            "--output",
            f"{path} has rollups, but {checkpoint} is not how far they are; a new beginning would "
            "count all of it again: remove them, or name another directory",
        )
    with changing(path) as lock:
        yield (lock,)


def query_name(output: str) -> str:
    """Return a query's name after where it writes: one rollup there, one group a rollup."""
    last = PurePosixPath(output.rstrip("/")).name or "root"
    return "telemetry-" + re.sub(r"[^A-Za-z0-9._-]", "-", last)


def milliseconds(option: str, text: str) -> int:
    """Return a duration in milliseconds."""
    return round(parse_duration(option, text) * MILLISECONDS)


def words(text: str) -> tuple[str, ...]:
    """Return what stands between commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
