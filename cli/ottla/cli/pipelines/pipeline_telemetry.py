"""`ottla pipeline telemetry`: aggregates client metrics over time windows."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ottla.cli.common import CONNECTION, FORMAT
from ottla.cli.options import Declared, option
from ottla.cli.pipelines.pipeline_common import (
    SPARK_OPTIONS,
    bootstrap_text,
    finish,
    follow_queries,
    key_and_value,
    login_options,
    open_spark,
    stream_options,
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
"""Default interval between batches of the aggregation, as a duration. A shorter interval would not
show results earlier, because the default window is one minute."""
CHECKPOINT = "_checkpoint"
SHUFFLES = "spark.sql.shuffle.partitions"
SHUFFLES_LOCAL = 4
"""Number of shuffle partitions in Spark on one machine. Spark's default of 200 is meant for a
cluster."""
MILLISECONDS = 1_000


OPTIONS: tuple[Declared, ...] = (
    option("-o --output DIR", "directory of the aggregates, Parquet by date"),
    option("--output-topic TOPIC", "topic for the aggregates as JSON, with or without --output"),
    option("--topic TOPIC", f"topic of the clients' metrics (default: {TOPIC})", default=TOPIC),
    option("--window DURATION", "length of a window (default: 1m)", default="1m"),
    option(
        "--lateness DURATION",
        "time to wait for pushes after the end of a window (default: 30s); later ones make rows of "
        "their own, marked is_late",
        default="30s",
    ),
    option(
        "--by NAME,…",
        "labels to group rows by, beside the metric: client_instance_id, client_id, principal, "
        "client_software_name, client_software_version, client_source_address, broker_id, or an "
        "attribute such as node.id (default: client_id,broker_id)",
        default="client_id,broker_id",
    ),
    option("--metrics BEGINNING,…", "only metrics of such names", default=""),
    option("--name NAME", "name of the query (default: telemetry-<name of DIR>)"),
    option(
        "--starting WHERE",
        "start of a new query: earliest, latest, or offsets as Spark's JSON (default: earliest)",
        default="earliest",
    ),
    option(
        "--option KEY=VALUE ...",
        "option of format('ottla'), such as maxOffsetsPerTrigger=100000; may be repeated",
    ),
    option("--checkpoint DIR", "directory of the checkpoint (default: _checkpoint of --output)"),
    stream_options(trigger=TRIGGER),
    *CONNECTION,
    FORMAT,
    SPARK_OPTIONS,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla pipeline telemetry`: aggregate client metrics over time windows until interrupted, or
    in one run. Returns the exit code."""
    from ottla.pipeline.run.session import require_pyspark

    require_pyspark()
    from ottla.pipeline.rollup.stream import start

    options = telemetry_options(arguments)
    is_json = arguments.format == "json"
    if arguments.master.startswith("local"):
        arguments.conf.insert(0, f"{SHUFFLES}={SHUFFLES_LOCAL}")  # the user's --conf overrides it
    with (
        missing_topic_explained(options.topic),
        prepared(options) as kept_open,
        open_spark(arguments, options.name, kept_open) as spark,
    ):
        totals = follow_queries([start(spark, options)], is_json=is_json)
    where = " and ".join(filter(None, [options.output, options.output_topic]))
    return finish(totals, is_json=is_json, what=f" rolled up in {where}")


def telemetry_options(arguments: argparse.Namespace) -> "TelemetryOptions":
    """Return the options of the aggregation of client metrics, from the command line's
    arguments."""
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
    """Lock the output of the aggregation, and check that the topic of client metrics exists, before
    Spark starts.

    A new output is created only if the topic exists. Yields the file descriptors that the Spark
    session must keep open.
    """
    path = None if options.output is None else local_path(options.output)
    is_new = path is None or not path.exists()
    if is_new:
        _check(options)
    with locked_output(options.output, options.checkpoint) as kept_open:
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
def missing_topic_explained(topic: str) -> Iterator[None]:
    """Within the `with` block, add a remedy to an error about the missing topic of client metrics.
    The remedy explains the creation of the topic."""
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
def locked_output(output: str | None, checkpoint: str) -> Iterator[tuple[int, ...]]:
    """Lock the output directory of an aggregation against other commands on this machine.

    Yields the file descriptors of the locks. The Spark session must keep the descriptors open,
    because the JVM may continue to write for a moment after this process has ended.
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
    """Return the default name of the streaming query that writes to `output`, which is a directory
    or a topic. Two aggregations with different outputs have different names."""
    last = PurePosixPath(output.rstrip("/")).name or "root"
    return "telemetry-" + re.sub(r"[^A-Za-z0-9._-]", "-", last)


def milliseconds(option: str, text: str) -> int:
    """Parse a duration, the value of the option `option`, and return it in milliseconds."""
    return round(parse_duration(option, text) * MILLISECONDS)


def words(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list in an option's value."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
