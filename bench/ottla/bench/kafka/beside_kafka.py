"""Comparison of Ottla and Apache Kafka, with equal settings, fresh directories, and the same load
on both in turns.

Each server is one broker and one controller on loopback.  Kafka runs in one process; Ottla runs in
two, whose CPU times are added.  Both servers run all the time, and the one that is not measured is
idle.  The first round warms up both servers and is not counted, because Java compiles code only
after some use.
"""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ottla.bench.kafka.comparison import OURS, THEIRS, FigureComparison, compare
from ottla.bench.kafka.kafka_server import open_kafka
from ottla.bench.kafka.turns import MeasurementRounds, load_average
from ottla.bench.load import Load, Progress, consume, end_to_end, library, make_topic, produce
from ottla.bench.local_cluster import open_local_cluster
from ottla.bench.processes import usage_of
from ottla.bench.requests import run_requests
from ottla.bench.result import Result
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.model.signal_handlers_driver import signal_handlers

EQUAL_SETTINGS = {
    "auto.create.topics.enable": "false",
    "compression.type": "producer",
    "default.replication.factor": "1",
    "fetch.max.bytes": "57671680",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.interval.bytes": "4096",
    "log.segment.bytes": "1073741824",
    "min.insync.replicas": "1",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "socket.request.max.bytes": "104857600",
}
"""Settings of both servers in the comparison, Ottla and Kafka. All other settings either have equal
defaults or exist in one server only."""

# Kafka offers client telemetry only with a plug-in, so its clients do not request it.
OTTLA_SETTINGS = {"client.telemetry": "off"}

IS_HIGHER_BETTER = {
    "per_second": True,
    "latency_p50_ms": False,
    "latency_p99_ms": False,
    "broker_cpu_us_each": False,
}
LED_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.05
TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideWork:
    """Load of one round of the comparison. Ottla and Kafka get the same load."""

    load: Load
    """Load that the benchmarks `produce` and `fetch` apply to each server. Each of them sets its
    own bootstrap address and topic in the load."""
    singles: int
    requests: int
    connections: int
    in_flight: int


class BesideServer(NamedTuple):
    """One of the two servers that are compared, Ottla or Kafka: its address and processes."""

    bootstrap: str
    pids: tuple[int, ...]


class BesideReport(NamedTuple):
    """Comparisons of Ottla with Kafka, and the settings of the run."""

    version: str
    rounds: int
    comparisons: list[FigureComparison]
    load_averages: tuple[float, float]
    """Load averages of the machine over one minute, before the first round and after the last."""

    def figures(self) -> dict[str, Any]:
        """Return the report of the comparison in its JSON form."""
        return {
            "what": "beside",
            "kafka_version": self.version,
            "rounds": self.rounds,
            "load_averages": self.load_averages,
            "rows": [each.figures() for each in self.comparisons],
        }


class ComparisonRow(NamedTuple):
    """One benchmark of the comparison with Kafka, which is one row of the report: its load, and the
    names of the measured values that are compared."""

    run: Callable[[Load, BesideWork], Result]
    figures: tuple[str, ...]


def _no_progress(done: int) -> None:
    pass


def _end_to_end(load: Load, work: BesideWork) -> Result:
    return end_to_end(replace(load, count=work.singles), _no_progress)


def _requests(kind: str) -> ComparisonRow:
    def run(load: Load, work: BesideWork) -> Result:
        return run_requests(
            parse_bootstrap(load.bootstrap)[0],
            kind=kind,
            topic=load.topic,
            count=work.requests,
            connections=work.connections,
            in_flight=work.in_flight,
            progress=_no_progress,
        )

    return ComparisonRow(run, ("per_second", "latency_p99_ms", "broker_cpu_us_each"))


_RATE = ("per_second", "broker_cpu_us_each")
_LATENCY = ("latency_p50_ms", "latency_p99_ms", "broker_cpu_us_each")
ROWS: dict[str, ComparisonRow] = {
    "produce": ComparisonRow(lambda load, _: produce(load, _no_progress), _RATE),
    "fetch": ComparisonRow(lambda load, _: consume(load, _no_progress), _RATE),
    "e2e": ComparisonRow(_end_to_end, _LATENCY),
    "produce-requests": _requests("produce"),
    "fetch-requests": _requests("fetch"),
    "metadata-requests": _requests("metadata"),
}
"""Benchmarks of the comparison with Kafka by their name on the command line. librdkafka drives the
load of the benchmarks produce, fetch and e2e."""


def rows_of(text: str) -> list[str]:
    """Return the names of benchmarks that a comma-separated list contains. Raises ConfigError if a
    name is unknown."""
    names = list(dict.fromkeys(text.split(",")))
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise ConfigError("--rows", f"has no {unknown[0]!r}; there are {', '.join(ROWS)}")
    return names


def run_beside_kafka(
    jars: Path,
    rows: list[str],
    work: BesideWork,
    *,
    rounds: int,
    timeout_s: float,
    settings: Mapping[str, str],
    progress: Progress,
) -> BesideReport:
    """Start Ottla and Kafka, warm them up, and compare them. Returns the report.

    Raises RefusedError if a server does not start, or no round is complete in time.
    """
    turns = MeasurementRounds(timeout_s, progress)
    with open_servers(jars, {**EQUAL_SETTINGS, **settings}) as (version, servers):

        def measure(row: str, name: str) -> Mapping[str, float]:
            return measured(row, servers[name], work)

        for row in rows:
            for server in servers.values():
                prepare(row, server, work)
        turns.take(rows, 1, measure)
        before = load_average()
        taken = turns.take(rows, rounds, measure)
        after = load_average()
        for server in servers.values() if "produce-requests" in rows else ():
            check_appended(server, work, at_least=len(taken) * work.requests)
    turns.require(taken, "lower the counts or raise --timeout")
    return BesideReport(version, len(taken), compare(taken, IS_HIGHER_BETTER), (before, after))


def measured(row: str, server: BesideServer, work: BesideWork) -> Mapping[str, float]:
    """Run the load of one benchmark on one server. Returns the measured values of the load, with
    the CPU time of the server's processes."""
    before = usage_of(server.pids)
    result = ROWS[row].run(_load_of(row, server, work), work)
    figures = replace(result, usage=usage_of(server.pids).since(before)).figures()
    return {name: figures[name] for name in ROWS[row].figures}


def prepare(row: str, server: BesideServer, work: BesideWork) -> None:
    """Create the topic of a benchmark, and write the records that the benchmark `fetch` reads."""
    load = _load_of(row, server, work)
    make_topic(load)
    wait_until_led(load)
    if row == "fetch":
        produce(load, _no_progress)


def _load_of(row: str, server: BesideServer, work: BesideWork) -> Load:
    return replace(
        work.load, bootstrap=server.bootstrap, topic=f"beside-{row}", replication_factor=1
    )


def wait_until_led(load: Load) -> None:
    """Wait until every partition of a topic has a leader, so that no broker refuses the benchmark's
    requests.

    Raises RefusedError if that takes too long.
    """
    client = {"bootstrap.servers": load.bootstrap, "log_level": 3}
    admin = library("confluent_kafka.admin").AdminClient(client)
    deadline = time.monotonic() + LED_TIMEOUT_S
    while time.monotonic() < deadline:
        partitions = admin.list_topics(load.topic, timeout=10).topics[load.topic].partitions
        if len(partitions) == load.partitions and all(p.leader >= 0 for p in partitions.values()):
            return
        time.sleep(LOOK_AGAIN_S)
    raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"{load.topic} at {load.bootstrap}: no leader")


def check_appended(server: BesideServer, work: BesideWork, *, at_least: int) -> None:
    """Raise RefusedError if a server's log has fewer than `at_least` records after the benchmark
    `produce-requests`. The load of this benchmark does not check the responses to its requests."""
    load = _load_of("produce-requests", server, work)
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer({"bootstrap.servers": load.bootstrap, "group.id": "beside"})
    try:
        first = confluent.TopicPartition(load.topic, 0)
        _, end_offset = consumer.get_watermark_offsets(first, timeout=30)
    finally:
        consumer.close()
    if end_offset < at_least:
        reason = f"{load.topic} at {load.bootstrap} has {end_offset} records of {at_least} or more"
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)


@contextmanager
def open_servers(
    jars: Path, settings: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, BesideServer]]]:
    """Start Ottla and Kafka with the same settings. Yields Kafka's version, and the two servers.

    Raises RefusedError if one does not start.
    """
    with (
        ends_by_sigterm(),
        tempfile.TemporaryDirectory(prefix="ottla-bench-kafka-") as directory,
        open_kafka(jars, Path(directory), settings) as kafka,
        open_local_cluster(
            controllers=1, brokers=1, restarts=False, **{**OTTLA_SETTINGS, **settings}
        ) as ottla,
    ):
        yield (
            kafka.version,
            {
                OURS: BesideServer(ottla.bootstrap, tuple(ottla.pids.values())),
                THEIRS: BesideServer(kafka.bootstrap, (kafka.pid,)),
            },
        )


@contextmanager
def ends_by_sigterm() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C in the block, so that the servers are stopped and their
    directories removed."""

    def end(*_: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    with signal_handlers(end, signal.SIGTERM):
        yield
