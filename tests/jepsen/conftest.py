"""Coverage of the searches of a test run, printed at its end."""

from collections import Counter
from collections.abc import Callable

import pytest

from ottla.jepsen.world.engine import RunOutcome
from ottla.jepsen.world.runner import RunTotals

EXPLORED = "explored"
Explored = Callable[[str, RunOutcome | RunTotals], None]


@pytest.fixture
def explored(record_property: Callable[[str, object], None]) -> Explored:
    """Record the work of an engine, for the sum at the end."""

    def note(engine: str, done: RunOutcome | RunTotals) -> None:
        runs = done.run_count if isinstance(done, RunTotals) else 1
        power_cuts = done.figures.get("power cuts", 0)
        record_property(EXPLORED, (engine, runs, done.event_count, done.sim_ms, power_cuts))

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of explored states or runs, by engine."""
    sums: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == EXPLORED:
                engine, runs, events, sim_ms, power_cuts = value
                done = {"runs": runs, "events": events, "ms": sim_ms, "cuts": power_cuts}
                sums.setdefault(engine, Counter()).update(done)
    if sums:
        terminalreporter.section("explored")
    for engine, done in sorted(sums.items()):
        terminalreporter.line(
            f"{engine:22}{done['runs']:8,} runs {done['events']:10,} events "
            f"{done['ms'] / 1000:10,.0f} simulated s {done['cuts']:8,} power cuts"
        )
