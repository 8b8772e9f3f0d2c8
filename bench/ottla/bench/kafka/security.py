"""Cost of security to a broker, compared with Apache Kafka: TLS, handshakes, ACLs, and a mix.

Four servers run all the time: Ottla and Kafka without an authorizer, and both with an authorizer
and ACLs. Servers that are not being measured are idle. The benchmarks run on the servers in turns,
after one round that warms up the servers. A cost is the median of the ratios over the rounds.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.bench.kafka.beside_kafka import EQUAL_SETTINGS, ends_by_sigterm
from ottla.bench.kafka.comparison import (
    OURS,
    SERVERS,
    FigureComparison,
    Measured,
    Spread,
    as_table,
    compare,
    shown,
    spread_of,
)
from ottla.bench.kafka.mixed_load import measure_mix, prepare_mix
from ottla.bench.kafka.security_rows import (
    ENTRIES_ROWS,
    IS_HIGHER_BETTER,
    OFF,
    ON,
    TLS_ROWS,
    SecurityWork,
    measure_entries,
    prepare_entries,
    prepare_tls,
)
from ottla.bench.kafka.security_servers import SecurityServer, make_certificate, open_pair
from ottla.bench.kafka.turns import MeasurementRounds, load_average
from ottla.bench.load import Progress
from ottla.bench.tables import table_of

ONE_REPLICA = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
MIX = "mix"
"""Benchmark with TLS, a login, ACLs, quotas, a compacted topic and transactions together."""

ROWS = (*TLS_ROWS, *ENTRIES_ROWS, MIX)
PLAIN_ROWS = {
    f"{what}-tls1{minor}": f"{what}-plain" for what in ("produce", "fetch") for minor in (3, 2)
}
"""Name of the corresponding benchmark without TLS, by the name of the benchmark with TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityReport:
    """Results of `ottla bench security`: comparisons of Ottla with Kafka, the cost of security on
    each server, and the conditions of the run."""

    version: str
    comparisons: list[FigureComparison]
    costs: dict[str, dict[str, Spread]]
    """Ratios that express the cost of TLS and of ACLs, by comparison and server."""
    rounds: int
    holds: int
    """Number of times that Ottla's event loops were blocked for more than 20 ms during the
    rounds."""
    load_averages: tuple[float, float]

    def figures(self) -> dict[str, Any]:
        """Return the report on the cost of security in its JSON form."""
        return {
            "what": "security",
            "kafka_version": self.version,
            "rounds": self.rounds,
            "load_averages": self.load_averages,
            "loop_holds_above_20_ms": self.holds,
            "rows": [each.figures() for each in self.comparisons],
            "costs": {
                what: {server: spread._asdict() for server, spread in spreads.items()}
                for what, spreads in self.costs.items()
            },
        }

    def text(self) -> str:
        """Return the report on the cost of security as tables."""
        lines = [as_table(self.comparisons), "", "ratios, the median of each round's own:"]
        rows = [
            (what, ", ".join(f"{one} {shown(spread)}" for one, spread in spreads.items()))
            for what, spreads in self.costs.items()
        ]
        lines.append(table_of(("FIGURE", "RATIO"), rows))
        before, after = self.load_averages
        lines += [
            "",
            f"Kafka {self.version}; {self.rounds} rounds; load of the machine {before:g} before, "
            f"{after:g} after; Ottla's loop was held above 20 ms {self.holds} times",
        ]
        return "\n".join(lines)


class SecurityPairs(NamedTuple):
    """The four servers that are compared, as two pairs of Ottla and Kafka: without and with an
    authorizer."""

    version: str
    plain: Mapping[str, SecurityServer]
    with_entries: Mapping[str, SecurityServer]
    ca: Path

    def measured(self, row: str, name: str, work: SecurityWork) -> Mapping[str, float]:
        """Run the load of a benchmark on the server `name` (Ottla or Kafka), and return the
        measured values by name."""
        if row == MIX:
            return measure_mix(self.with_entries[name], self.ca)
        server = self.plain[name]
        if row in TLS_ROWS:
            return TLS_ROWS[row](server, work, self.ca)
        return measure_entries(ENTRIES_ROWS[row], server, self.with_entries[name], work)

    def holds(self) -> int:
        """Return the number of times that Ottla's event loops were blocked for more than 20 ms
        since the servers started."""
        return sum(pair[OURS].long_holds() for pair in (self.plain, self.with_entries))


def run_security(
    jars: Path, work: SecurityWork, *, rounds: int, timeout_s: float, progress: Progress
) -> SecurityReport:
    """Start the four servers, warm them up, and compare the cost of security to them. Returns the
    report.

    Raises RefusedError if a server does not start, or no round is complete in time.
    """
    turns = MeasurementRounds(timeout_s, progress)
    with open_pairs(jars) as pairs:

        def measure(row: str, name: str) -> Mapping[str, float]:
            return pairs.measured(row, name, work)

        prepare(pairs, work)
        rows = list(ROWS)
        turns.take(rows, 1, measure)
        holds, before = pairs.holds(), load_average()
        taken: list[Measured] = []
        for number in range(rounds):
            step = -1 if number % 2 else 1
            taken += turns.take(rows[::step], 1, measure, servers=SERVERS[::step])
        after = load_average()
        holds = pairs.holds() - holds
    turns.require(taken, "lower the counts or raise --timeout")
    return SecurityReport(
        version=pairs.version,
        comparisons=compare(taken, IS_HIGHER_BETTER),
        costs=costs_of(taken),
        rounds=len(taken),
        holds=holds,
        load_averages=(before, after),
    )


def costs_of(rounds: Sequence[Measured]) -> dict[str, dict[str, Spread]]:
    """Return two ratios of costs: TLS relative to plain connections, and ACLs relative to a server
    without an authorizer."""
    found: dict[str, dict[str, Spread]] = {}

    def hold(what: str, row: str, figure: str, base: str, base_figure: str) -> None:
        found[what] = {
            server: spread_of(
                [one[row, server][figure] / (one[base, server][base_figure] or 1) for one in rounds]
            )
            for server in SERVERS
        }

    for row, base in PLAIN_ROWS.items():
        for figure in rounds[0][row, OURS]:
            hold(f"{row} / {base}: {figure}", row, figure, base, figure)
    for row in ENTRIES_ROWS:
        for figure in ("per_second", "cpu_us_each"):
            hold(f"{row} on / off: {figure}", row, f"{ON}_{figure}", row, f"{OFF}_{figure}")
    return found


def prepare(pairs: SecurityPairs, work: SecurityWork) -> None:
    """Create the topics and ACLs of the security benchmark on all servers."""
    for server in pairs.plain.values():
        prepare_tls(server, work)
        prepare_entries(server, work, has_authorizer=False)
    for server in pairs.with_entries.values():
        prepare_entries(server, work, has_authorizer=True)
        prepare_mix(server)


@contextmanager
def open_pairs(jars: Path) -> Iterator[SecurityPairs]:
    """Start Ottla and Kafka, each without and with an authorizer, and yield the four servers. They
    are stopped at the end of the block, also after SIGTERM."""
    with (
        ends_by_sigterm(),
        tempfile.TemporaryDirectory(prefix="ottla-bench-tls-") as name,
    ):
        certificates = Path(name)
        make_certificate(certificates)
        settings = {**EQUAL_SETTINGS, **ONE_REPLICA}
        open_ = partial(open_pair, jars, certificates, settings)
        with (
            open_(has_authorizer=False) as (version, plain),
            open_(has_authorizer=True) as (_, with_entries),
        ):
            yield SecurityPairs(version, plain, with_entries, certificates / "ca.pem")
