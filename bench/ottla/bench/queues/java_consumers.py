"""Share consumers of Kafka's own client: its tool ShareConsumerPerformance, in a Java process.

The tool's final figures include the time of joining, and at the end the time in which single
consumers wait. The measurement therefore uses the reports that the tool prints while it runs.
"""

import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.bench.kafka.kafka_server import java_program
from ottla.model.errors import ErrorCode, RefusedError

TOOL = "org.apache.kafka.tools.ShareConsumerPerformance"
HEAP = "-Xmx512m"
TOOL_TIMEOUT_MS = 120_000
"""Time in milliseconds after which Kafka's tool interrupts its consumers, even if they still read
records. A shorter time interrupts runs on a busy machine."""
REPORT_MS = 1
"""Interval in milliseconds between the reports of each consumer of Kafka's tool: one for each poll
with records. With a longer interval, the last records of each of many consumers have no report."""
RUN_TIMEOUT_S = 300.0
MEASURED_SHARE = 0.5
"""Fraction of the records after which the measurement ends. A consumer reports at the first record
of a poll. The last 500 records of each of 64 consumers are therefore not reported, and not all
consumers are busy until the end."""
REPORT = re.compile(r" (\d+), \d+ for share consumer (\d+?)(?=\d{4}-|\D|$)")
"""Pattern of a consumer's report in the output of Kafka's tool, with the number of records so far
and the number of the consumer. Consumers report concurrently, so several reports may be on one
line."""

TOTAL = re.compile(r" (\d+), \d+$")
"""Pattern of the last line of the tool's output. The group is the number of records that all
consumers have read."""


class ConsumedShare(NamedTuple):
    """Result of a run of Kafka's tool, from its first report until half of all records were
    consumed: the number of records, the seconds and the CPU seconds."""

    records: int
    seconds: float
    cpu_s: float
    """CPU seconds of the servers while these records were consumed."""


class ToolReports:
    """Progress of a run of Kafka's ShareConsumerPerformance tool, read from the reports that it
    prints."""

    def __init__(self, count: int, cpu_s: Callable[[], float]) -> None:
        """`count` is the number of records to read. `cpu_s` returns the CPU seconds that the
        servers have used so far."""
        self.result: ConsumedShare | None = None
        """Result of the tool's run, set once half of the records are read; None before that."""
        self._count = count
        self._cpu_s = cpu_s
        self._counts: dict[str, int] = {}
        self._first: tuple[int, float, float] | None = None
        """Number of records, time and CPU seconds at the tool's first report; None before that."""

    def take(self, line: str, now_s: float) -> None:
        """Process the reports in one line of the tool's output. `now_s` is the time in seconds at
        which the tool printed the line."""
        for reported, consumer in REPORT.findall(line):
            self._counts[consumer] = int(reported)
        count = sum(self._counts.values())
        total = TOTAL.search(line)
        if total is not None:
            count = int(total[1])  # Many consumers of few records report less.
        if not count or self.result is not None:
            return
        if self._first is None:
            self._first = count, now_s, self._cpu_s()
        elif count >= MEASURED_SHARE * self._count:
            first_count, first_s, first_cpu_s = self._first
            self.result = ConsumedShare(
                count - first_count, now_s - first_s, self._cpu_s() - first_cpu_s
            )


def consume_by_tool(
    jars: Path,
    bootstrap: str,
    topic: str,
    *,
    group: str,
    count: int,
    consumers: int,
    cpu_s: Callable[[], float],
) -> ConsumedShare:
    """Read `count` records with Kafka's tool as a share group, with a thread for each consumer.
    `cpu_s` returns the CPU seconds that the servers have used so far.

    Raises RefusedError with the end of the tool's output if the tool fails or reads fewer records.
    """
    words = {
        "--bootstrap-server": bootstrap,
        "--topic": topic,
        "--group": group,
        "--num-records": count,
        "--threads": consumers,
        "--timeout": TOOL_TIMEOUT_MS,
        "--reporting-interval": REPORT_MS,
    }
    arguments = [str(word) for pair in words.items() for word in pair]
    command = [java_program(os.environ), HEAP, "-cp", f"{jars}/*", TOOL, *arguments]
    reports, line = ToolReports(count, cpu_s), ""
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [*command, "--show-detailed-stats"], stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        watch = threading.Timer(RUN_TIMEOUT_S, process.kill)
        watch.start()
        try:
            for line in process.stdout:
                reports.take(line, time.perf_counter())
        finally:
            process.kill()
            watch.cancel()
        if reports.result is None:
            errors.seek(0)
            reason = (line + errors.read()).strip()[-300:]
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{TOOL}: {reason}")
    return reports.result
