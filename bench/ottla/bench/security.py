"""What security costs a broker, beside Apache Kafka: TLS, handshakes, and access control entries.

Four servers run all the time, so that those which are not measured are idle: Ottla and Kafka
without an authorizer, and both with one and its entries.  Rows are measured in alternating rounds
after one that warms up; a cost is the median of the rounds' own ratios.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.bench.beside_kafka import EQUAL_SETTINGS, ends_by_sigterm
from ottla.bench.comparison import (
    OURS,
    SERVERS,
    FigureComparison,
    Measured,
    Spread,
    as_table,
    compare,
    shown,
    spread_of,
    take_rounds,
)
from ottla.bench.load import Progress
from ottla.bench.security_rows import (
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
from ottla.bench.security_servers import SecurityServer, make_certificate, open_pair
from ottla.model.errors import ErrorCode, RefusedError

ROWS = (*TLS_ROWS, *ENTRIES_ROWS)
PLAIN_ROWS = {
    f"{what}-tls1{minor}": f"{what}-plain" for what in ("produce", "fetch") for minor in (3, 2)
}
"""What each row of bytes over TLS is held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityReport:
    """The comparisons of Ottla with Kafka, what security costs each, and how that was measured."""

    version: str
    comparisons: list[FigureComparison]
    costs: dict[str, dict[str, Spread]]
    """Ratios by what is compared, and server."""
    rounds: int
    holds: int
    """How often Ottla's loop was held for more than 20 ms during the rounds."""
    load_averages: tuple[float, float]

    def figures(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
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
        """Return the report as tables."""
        lines = [as_table(self.comparisons), "", "ratios, the median of each round's own:"]
        width = max(map(len, self.costs))
        for what, spreads in self.costs.items():
            both = ", ".join(f"{one} {shown(spread)}" for one, spread in spreads.items())
            lines.append(f"{what:{width}}  {both}")
        before, after = self.load_averages
        lines += [
            "",
            f"Kafka {self.version}; {self.rounds} rounds; load of the machine {before:g} before, "
            f"{after:g} after; Ottla's loop was held above 20 ms {self.holds} times",
        ]
        return "\n".join(lines)


class SecurityPairs(NamedTuple):
    """The four servers."""

    version: str
    plain: Mapping[str, SecurityServer]
    with_entries: Mapping[str, SecurityServer]
    ca: Path

    def measured(self, row: str, name: str, work: SecurityWork) -> Mapping[str, float]:
        """Measure a row on the servers of one kind."""
        server = self.plain[name]
        if row in TLS_ROWS:
            return TLS_ROWS[row](server, work, self.ca)
        return measure_entries(ENTRIES_ROWS[row], server, self.with_entries[name], work)

    def holds(self) -> int:
        """Return how often Ottla's loops were held for more than 20 ms since they started."""
        return sum(pair[OURS].long_holds() for pair in (self.plain, self.with_entries))


def run_security(
    jars: Path, work: SecurityWork, *, rounds: int, timeout_s: float, progress: Progress
) -> SecurityReport:
    """Start the servers, warm them up, and compare them.

    Raises RefusedError if a server does not start, or no round is complete in time.
    """
    deadline = time.monotonic() + timeout_s
    done = 0
    with open_pairs(jars) as pairs:

        def measure(row: str, name: str) -> Mapping[str, float]:
            nonlocal done
            found = pairs.measured(row, name, work)
            done += 1
            progress(done)
            return found

        prepare(pairs, work)
        take = partial(take_rounds, measure=measure, is_late=lambda: time.monotonic() > deadline)
        rows = list(ROWS)
        take(rows, 1)
        holds, before = pairs.holds(), os.getloadavg()[0]
        taken: list[Measured] = []
        for number in range(rounds):
            step = -1 if number % 2 else 1
            taken += take(rows[::step], 1, servers=SERVERS[::step])
        after = os.getloadavg()[0]
        holds = pairs.holds() - holds
    if not taken:
        reason = f"no round was complete in {timeout_s:g} s; lower the counts or raise --timeout"
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason)
    return SecurityReport(
        version=pairs.version,
        comparisons=compare(taken, IS_HIGHER_BETTER),
        costs=costs_of(taken),
        rounds=len(taken),
        holds=holds,
        load_averages=(round(before, 2), round(after, 2)),
    )


def costs_of(rounds: Sequence[Measured]) -> dict[str, dict[str, Spread]]:
    """Return what TLS costs by what plain connections do, and entries by what is without."""
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
    """Make topics and entries on all servers."""
    for server in pairs.plain.values():
        prepare_tls(server, work)
        prepare_entries(server, work, has_authorizer=False)
    for server in pairs.with_entries.values():
        prepare_entries(server, work, has_authorizer=True)


@contextmanager
def open_pairs(jars: Path) -> Iterator[SecurityPairs]:
    """Start all four servers; stop them afterwards, also by SIGTERM."""
    with (
        ends_by_sigterm(),
        tempfile.TemporaryDirectory(prefix="ottla-bench-tls-") as name,
    ):
        certificates = Path(name)
        make_certificate(certificates)
        open_ = partial(open_pair, jars, certificates, EQUAL_SETTINGS)
        with (
            open_(has_authorizer=False) as (version, plain),
            open_(has_authorizer=True) as (_, with_entries),
        ):
            yield SecurityPairs(version, plain, with_entries, certificates / "ca.pem")
