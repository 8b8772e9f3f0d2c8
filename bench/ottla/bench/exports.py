"""Benchmark of `ottla export`: rows per second of one core, raw and JSON, including the fetching of
records.

`python -m ottla.bench.exports --bootstrap HOST:PORT` produces records of some 90 bytes to a new
topic. It exports the topic alternately as raw bytes and as JSON, each time in a new process. The
figures are those of the exporting process alone, without its startup. CPU seconds vary less than
the elapsed time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

import trio

from ottla.bench.topics import fresh_name
from ottla.client import ProducerConfig, open_admin, open_producer
from ottla.pipeline.export.export import ExportOptions, TopicExport
from ottla.pipeline.export.parquet_directory import open_directory
from ottla.pipeline.export.value_schema import value_type_of
from ottla.pipeline.read.read_options import ReadOptions

FORMS = ("raw", "json")
COLUMNS = "id BIGINT, name STRING, amount DOUBLE, at BIGINT, n INT"
COUNT = 1_000_000
ROUNDS = 3
PARTITIONS = 2
BATCH_BYTES = 131_072
START_MS = 1_764_331_200_000
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class ExportCost:
    """Cost of one export: the rows written, the elapsed seconds and the CPU seconds."""

    rows: int
    seconds: float
    cpu_s: float


def values_of(count: int) -> Iterator[bytes]:
    """Yield `count` JSON objects as values of records to export. Every run gets the same values."""
    chance = Random(1)
    for number in range(count):
        yield (
            b'{"id":%d,"name":"customer-of-the-shop-%d","amount":%.2f,"at":%d,"n":%d}'
            % (
                MILLION + number,
                chance.randint(1, 999_999),
                chance.random() * 1_000,
                START_MS + number,
                number % 10,
            )
        )


async def produce(bootstrap: str, topic: str, count: int) -> None:
    """Produce `count` records to a new topic, for the exports to be measured."""
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(topic, partition_count=PARTITIONS)
    config = ProducerConfig(batch_bytes=BATCH_BYTES, linger_ms=5)
    async with open_producer(bootstrap, config) as producer:
        for value in values_of(count):
            await producer.send(topic, value)
        await producer.flush()


async def delete(bootstrap: str, topic: str) -> None:
    """Delete the topic of the benchmark."""
    async with open_admin(bootstrap) as admin:
        await admin.delete_topic(topic)


def export(bootstrap: str, topic: str, form: str, directory: Path) -> ExportCost:
    """Export the benchmark's topic in this process, and return the cost. `form` is the format of
    the exported values: raw or JSON."""
    read = ReadOptions(bootstrap=bootstrap, isolation_level="read_committed")
    type_ = value_type_of("--schema", COLUMNS) if form == "json" else None
    options = ExportOptions(topic=topic, read=read, is_json=form == "json", value_type=type_)
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    with open_directory(directory) as table:
        figures = TopicExport(table, options).run()
    seconds, cpu_s = time.monotonic() - start_s, time.process_time() - start_cpu_s
    return ExportCost(figures.committed_count, round(seconds, 3), round(cpu_s, 3))


def measure(bootstrap: str, topic: str, form: str) -> ExportCost:
    """Export the benchmark's topic in a separate process, and return the cost. `form` is the format
    of the exported values: raw or JSON."""
    command = [sys.executable, "-m", "ottla.bench.exports", "--bootstrap", bootstrap]
    with tempfile.TemporaryDirectory() as directory:
        command += ["--topic", topic, "--form", form, "--directory", directory]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return ExportCost(*json.loads(done.stdout))


def compare(bootstrap: str, count: int, rounds: int) -> list[str]:
    """Export `count` new records several times, and return a line of text with the rows per second
    for each format (raw and JSON)."""
    costs: dict[str, list[ExportCost]] = {form: [] for form in FORMS}
    topic = fresh_name()
    trio.run(produce, bootstrap, topic, count)
    try:
        for _ in range(rounds):
            for form in FORMS:
                cost = measure(bootstrap, topic, form)
                assert cost.rows == count
                costs[form].append(cost)
    finally:
        trio.run(delete, bootstrap, topic)
    return [
        f"{form:5} {count:,} rows: {median(one.cpu_s for one in some):.2f} s of CPU "
        f"({min(one.cpu_s for one in some):.2f} to {max(one.cpu_s for one in some):.2f}), "
        f"{count / median(one.cpu_s for one in some) / MILLION:.2f} M rows/s of one core; "
        f"{median(one.seconds for one in some):.2f} s elapsed"
        for form, some in costs.items()
    ]


def main() -> None:
    """Print the cost of exports as raw bytes and as JSON. With `--form`, export once in that form,
    and print the cost as JSON."""
    parser = argparse.ArgumentParser(prog="python -m ottla.bench.exports")
    parser.add_argument("--count", type=int, default=COUNT, help="records (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns (default: %(default)s)")
    parser.add_argument("--bootstrap", required=True, help="address of a broker, as host:port")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--form", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.form is not None:
        cost = export(
            arguments.bootstrap, arguments.topic, arguments.form, Path(arguments.directory)
        )
        print(json.dumps([cost.rows, cost.seconds, cost.cpu_s]))
        return
    for line in compare(arguments.bootstrap, arguments.count, arguments.rounds):
        print(line)


if __name__ == "__main__":
    main()
