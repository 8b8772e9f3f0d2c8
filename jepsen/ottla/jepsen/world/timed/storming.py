"""One run of engine B, whatever it is on: a storm, with the points where buggify may strike."""

from collections.abc import Callable
from typing import Protocol

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import Named, Outcome
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.timed.timeline import MS, Timeline
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_of
from ottla.model.buggify import buggified

BOLDNESS = (0.0, 0.01, 0.1)
"""How often a point strikes; drawn for each run."""


class Storm(Protocol):
    """What is run, and what it leaves behind however it ended."""

    timeline: Timeline
    trace: Trace
    rare: Rare

    def run(self, budget: int) -> None:
        """Let it storm for at most `budget` events, and then see all come together."""
        ...

    def all_figures(self) -> dict[str, int]:
        """Return what the run counted."""
        ...


def stormed(engine: Named, chance: Chance, make: Callable[[], Storm], *, budget: int) -> Outcome:
    """Run one storm; what breaks in it is part of the outcome, what breaks in `make` is raised."""
    storm: Storm | None = None
    violation: Violation | None = None
    dice = chance.stream("buggify")
    boldness = BOLDNESS[chance.below(len(BOLDNESS))]
    try:
        with buggified(lambda name: dice.chance(boldness)):
            storm = make()
            storm.run(budget)
    except Exception as error:
        if storm is None:
            raise
        violation = violation_of(error)
    return Outcome(
        engine.name,
        engine.subject,
        chance.seed,
        storm.timeline.event_count,
        storm.timeline.now_us // MS,
        storm.all_figures(),
        storm.rare.counts,
        storm.trace.hash,
        violation,
        tuple(chance.decisions),
    )
