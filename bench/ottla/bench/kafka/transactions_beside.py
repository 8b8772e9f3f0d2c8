"""Transactions of Ottla, and of Apache Kafka in the same rounds.

Both servers are started with equal settings and take turns.  The first round runs on fresh servers
and is reported separately.  The other rounds run on warm servers.  Without Kafka, the cluster may
have several brokers, and each partition then has up to three replicas.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.kafka.beside_kafka import (
    EQUAL_SETTINGS,
    IS_HIGHER_BETTER,
    OTTLA_SETTINGS,
    BesideServer,
    open_servers,
    wait_until_led,
)
from ottla.bench.kafka.comparison import OURS, Measured, as_table, compare, spread_of
from ottla.bench.kafka.transaction_loads import (
    TransactionLoad,
    commit_small_ones,
    produce_idempotently,
    produce_in_transactions,
)
from ottla.bench.kafka.turns import MeasurementRounds, load_average
from ottla.bench.load import Load, Progress, make_topic
from ottla.bench.local_cluster import open_local_cluster
from ottla.bench.processes import usage_of
from ottla.bench.result import Result
from ottla.bench.tables import table_of

FEW, MANY = 1, 50
"""Partition counts of the two topics in the transaction benchmark."""
SIDE_BY_SIDE = 16
"""Number of concurrent producers in the benchmark that measures one transaction coordinator."""
REPLICAS_MAX = 3


class TransactionRow(NamedTuple):
    """One benchmark of transactions, which is one row of the report: its load, its number of
    partitions, and the names of the reported values."""

    run: Callable[[TransactionLoad], Result]
    partitions: int
    figures: tuple[str, ...]


_RATE = ("per_second", "broker_cpu_us_each")
_ENDS = (*_RATE, "latency_p50_ms", "latency_p99_ms")
ROWS: dict[str, TransactionRow] = {
    "idempotent-1": TransactionRow(produce_idempotently, FEW, _RATE),
    "100ms-1": TransactionRow(partial(produce_in_transactions, duration_s=0.1), FEW, _ENDS),
    "10ms-1": TransactionRow(partial(produce_in_transactions, duration_s=0.01), FEW, _ENDS),
    "idempotent-50": TransactionRow(produce_idempotently, MANY, _RATE),
    "100ms-50": TransactionRow(partial(produce_in_transactions, duration_s=0.1), MANY, _ENDS),
    "10ms-50": TransactionRow(partial(produce_in_transactions, duration_s=0.01), MANY, _ENDS),
    "commits-1": TransactionRow(commit_small_ones, FEW, _ENDS),
    "commits-50": TransactionRow(commit_small_ones, MANY, _ENDS),
    "commits-of-16": TransactionRow(partial(commit_small_ones, producers=SIDE_BY_SIDE), FEW, _ENDS),
}
"""Benchmarks of transactions by name. The first six count records per second, all others count
transactions per second."""

SHARES = {
    f"{duration}-{partitions}": f"idempotent-{partitions}"
    for partitions in (FEW, MANY)
    for duration in ("100ms", "10ms")
}
"""Name of the corresponding benchmark without transactions, for each benchmark with transactions.
The report shows the rate with transactions as a fraction of the rate without."""


class TransactionsReport(NamedTuple):
    """Values that the transaction benchmark measured in the first round, and in the later
    rounds."""

    version: str | None
    """Version of Apache Kafka. None if only Ottla was measured."""
    fresh: list[Measured]
    warm: list[Measured]
    load_averages: tuple[float, float]
    """Load averages of the machine over one minute, before the first round and after the last."""

    def figures(self) -> dict[str, Any]:
        """Return the report of the transaction benchmark in its JSON form."""
        return {
            "what": "transactions",
            "kafka_version": self.version,
            "rounds": len(self.warm),
            "load_averages": self.load_averages,
            "fresh": _rows_of(self.fresh),
            "warm": _rows_of(self.warm),
            "shares": shares_of(self.warm),
        }

    def text(self) -> str:
        """Return the report of the transaction benchmark as tables."""
        parts = []
        for title, rounds in (("fresh servers", self.fresh), ("warm servers", self.warm)):
            parts += [title, *_table_of(rounds), ""]
        parts += [
            f"{row} by {SHARES[row]}, {server}: {share:.2f}"
            for row, shares in shares_of(self.warm).items()
            for server, share in shares.items()
        ]
        before, after = self.load_averages
        version = "without Kafka" if self.version is None else f"Kafka {self.version}"
        loads = f"load of the machine {before:g} before, {after:g} after"
        return "\n".join([*parts, f"{version}; {len(self.warm)} warm rounds; {loads}"])


def shares_of(rounds: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """Return the median rate of each benchmark as a fraction of the rate without transactions, by
    benchmark and server."""
    found: dict[str, dict[str, float]] = {}
    for row, whole in SHARES.items():
        for server in dict.fromkeys(server for _, server in rounds[0]):
            if (row, server) in rounds[0] and (whole, server) in rounds[0]:
                shares = [
                    each[row, server]["per_second"] / each[whole, server]["per_second"]
                    for each in rounds
                ]
                found.setdefault(row, {})[server] = round(median(shares), 3)
    return found


def _is_alone(rounds: Sequence[Measured]) -> bool:
    return {server for _, server in rounds[0]} == {OURS}


def _rows_of(rounds: Sequence[Measured]) -> list[dict[str, Any]]:
    if not _is_alone(rounds):
        return [each.figures() for each in compare(rounds, IS_HIGHER_BETTER)]
    return [
        {"row": row, "figure": figure, OURS: spread_of(values)._asdict()}
        for row, figure, values in _values_of(rounds)
    ]


def _table_of(rounds: Sequence[Measured]) -> list[str]:
    if not _is_alone(rounds):
        return [as_table(compare(rounds, IS_HIGHER_BETTER))]
    rows = [(row, figure, f"{median(values):,.6g}") for row, figure, values in _values_of(rounds)]
    return [table_of(("ROW", "FIGURE", "MEDIAN"), rows)]


def _values_of(rounds: Sequence[Measured]) -> Iterator[tuple[str, str, list[float]]]:
    for row, _ in rounds[0]:
        for figure in rounds[0][row, OURS]:
            yield row, figure, [each[row, OURS][figure] for each in rounds]


def run_transactions(
    jars: Path | None,
    *,
    brokers: int,
    seconds: float,
    rounds: int,
    timeout_s: float,
    progress: Progress,
) -> TransactionsReport:
    """Start Ottla, and Kafka if it is compared, and run every benchmark, first on fresh and then on
    warm servers. Returns the report.

    Raises RefusedError if a server does not start, or no warm round is complete in time.
    """
    turns = MeasurementRounds(timeout_s, progress)
    rows = list(ROWS)
    with _open(jars, brokers) as (version, servers):

        def measure(row: str, name: str) -> Mapping[str, float]:
            return measured(row, servers[name], seconds)

        for server in servers.values():
            prepare(server, replicas=min(brokers, REPLICAS_MAX))
        names = tuple(servers)
        before = load_average()
        fresh = turns.take(rows, 1, measure, servers=names)
        warm = turns.take(rows, rounds, measure, servers=names)
        after = load_average()
    turns.require(warm, "lower --seconds", kind="warm round")
    return TransactionsReport(version, fresh, warm, (before, after))


def measured(row: str, server: BesideServer, seconds: float) -> Mapping[str, float]:
    """Run the load of one benchmark of transactions on one server. Returns the measured values of
    the load, with the CPU time of the server's processes."""
    found = ROWS[row]
    load = TransactionLoad(
        bootstrap=server.bootstrap,
        topic=_topic_of(found.partitions),
        partitions=found.partitions,
        seconds=seconds,
    )
    before = usage_of(server.pids)
    result = found.run(load)
    figures = replace(result, usage=usage_of(server.pids).since(before)).figures()
    # If a load is too short for a commit to be counted, it has no latency.
    return {name: figures.get(name, 0.0) for name in found.figures}


def prepare(server: BesideServer, *, replicas: int) -> None:
    """Create the topics that the benchmarks of transactions use."""
    for partitions in (FEW, MANY):
        load = Load(
            bootstrap=server.bootstrap,
            topic=_topic_of(partitions),
            partitions=partitions,
            replication_factor=replicas,
        )
        make_topic(load)
        wait_until_led(load)


def _topic_of(partitions: int) -> str:
    return f"transactions-{partitions}"


@contextmanager
def _open(jars: Path | None, brokers: int) -> Iterator[tuple[str | None, dict[str, BesideServer]]]:
    replicas = min(brokers, REPLICAS_MAX)
    settings = {
        **EQUAL_SETTINGS,
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
    }
    if jars is not None:
        with open_servers(jars, settings) as opened:
            yield opened
        return
    with open_local_cluster(
        controllers=1, brokers=brokers, restarts=False, **{**OTTLA_SETTINGS, **settings}
    ) as ottla:
        yield None, {OURS: BesideServer(ottla.bootstrap, tuple(ottla.pids.values()))}
