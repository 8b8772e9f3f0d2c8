"""Engine B on a cluster: storms over quorum, controllers and brokers, all healed in time."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.timed.timed_cluster import TimedCluster

STORM_COUNT = 30
JOB = Job(engine="B", subject="cluster", budget=15_000)
SELDOM = {
    "a broker loses the tail of its log",
    "a broker starts cleanly",
    "a broker stops cleanly",
    "a decision is lost with its controller",
    "an ISR change is overtaken",
    "a reassignment ends",
    "records come while a flush is under way",
}
"""What so few storms need not meet."""


def test_no_storm_breaks_an_invariant_and_calm_brings_the_cluster_together(explored: Any) -> None:
    tally = run_batch(JOB, 0, STORM_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", tally)

    assert [(each.seed, str(each.violation)) for each in tally.failures] == []
    assert set(tally.missed(TimedCluster.required)) <= SELDOM
    assert tally.figures["commits"] > 50 * STORM_COUNT
    assert tally.figures["acknowledged"] > 50 * STORM_COUNT
    assert tally.figures["decisions"] > 5 * STORM_COUNT
    assert tally.figures["power cuts"] > STORM_COUNT
    assert tally.sim_ms > 10_000 * STORM_COUNT


def test_a_storm_is_its_decisions() -> None:
    engine = TimedCluster()
    first = engine.run(Chance(3), budget=4_000)

    again = engine.run(Chance(3, replay=first.decisions), budget=4_000)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures
