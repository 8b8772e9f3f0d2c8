"""Kafka's performance tools as loads: ProducerPerformance, ConsumerPerformance and EndToEndLatency.

Each run is a Java process. Its figures are those that the tool prints, because the start of Java
takes longer than many loads.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.bench.kafka.kafka_server import java_program
from ottla.bench.programs.program_runs import output_of, without_result

TOOLS = "org.apache.kafka.tools"
HEAP = "-Xmx512m"
STEADY = re.compile(
    r"^\d+ steady state records sent, ([\d.]+) records/sec .*? "
    r"(\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th",
    re.MULTILINE,
)
"""Pattern of ProducerPerformance's summary of the records after the warm-up."""
END_TO_END = re.compile(
    r"^Avg latency: ([\d.]+) ms\s+"
    r"Percentiles: 50th = \d+, 99th = (\d+), 99\.9th = (\d+)",
    re.MULTILINE,
)
"""Pattern of EndToEndLatency's summary."""
FETCHED_PER_SECOND = 9
"""Column of ConsumerPerformance's last line: records per second without the time of joining."""


class ProducedByTool(NamedTuple):
    """Result of a run of ProducerPerformance, without the records of the warm-up."""

    records_per_second: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


class EndToEndByTool(NamedTuple):
    """Result of a run of EndToEndLatency: milliseconds from a send until the record is consumed.
    Percentiles are whole milliseconds."""

    mean_ms: float
    p99_ms: float
    p999_ms: float


def produce_by_tool(
    jars: Path,
    bootstrap: str,
    topic: str,
    *,
    count: int,
    warm_up_count: int,
    record_bytes: int,
    rate: int,
) -> ProducedByTool:
    """Send `count` records with ProducerPerformance, at most `rate` a second, or as fast as
    possible if `rate` is -1. The first `warm_up_count` records are not measured.

    Raises RefusedError with the end of the tool's output if the tool fails.
    """
    output = _run(
        jars,
        "ProducerPerformance",
        [
            *("--bootstrap-server", bootstrap, "--topic", topic),
            *("--num-records", str(count), "--warmup-records", str(warm_up_count)),
            *("--record-size", str(record_bytes), "--throughput", str(rate)),
        ],
    )
    return produced_of(output)


def produced_of(output: str) -> ProducedByTool:
    """Return the result in ProducerPerformance's output. Raises RefusedError if it contains
    none."""
    return ProducedByTool(*_numbers("ProducerPerformance", STEADY, output))


def consume_rate_by_tool(
    jars: Path, bootstrap: str, topic: str, *, group: str, count: int
) -> float:
    """Read at least `count` records with ConsumerPerformance. Returns the records per second,
    without the time in which the group is joined.

    Raises RefusedError with the end of the tool's output if the tool fails.
    """
    output = _run(
        jars,
        "ConsumerPerformance",
        [
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
            *("--num-records", str(count), "--hide-header"),
        ],
    )
    return consumed_of(output)


def consumed_of(output: str) -> float:
    """Return the records per second in ConsumerPerformance's output. Raises RefusedError if it
    contains none."""
    columns = output.strip().rpartition("\n")[2].split(", ")
    try:
        return float(columns[FETCHED_PER_SECOND])
    except (IndexError, ValueError):
        raise without_result("ConsumerPerformance", output) from None


def end_to_end_by_tool(
    jars: Path, bootstrap: str, topic: str, *, count: int, record_bytes: int
) -> EndToEndByTool:
    """Send `count` records with EndToEndLatency and acks=all, each after the previous one was
    consumed.

    Raises RefusedError with the end of the tool's output if the tool fails.
    """
    output = _run(
        jars,
        "EndToEndLatency",
        [
            *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(count)),
            *("--producer-acks", "all", "--record-size", str(record_bytes)),
        ],
    )
    return end_to_end_of(output)


def end_to_end_of(output: str) -> EndToEndByTool:
    """Return the result in EndToEndLatency's output. Raises RefusedError if it contains none."""
    return EndToEndByTool(*_numbers("EndToEndLatency", END_TO_END, output))


def _numbers(tool: str, summary: re.Pattern[str], output: str) -> Iterator[float]:
    """Return the numbers of a tool's summary, in the order of the pattern's groups."""
    found = summary.search(output)
    if found is None:
        raise without_result(tool, output)
    return map(float, found.groups())


def _run(jars: Path, tool: str, arguments: Sequence[str]) -> str:
    command = [java_program(os.environ), HEAP, "-cp", f"{jars}/*", f"{TOOLS}.{tool}", *arguments]
    return output_of(tool, command)
