"""Engine B on raft: storms of every kind over real logs, after each of which all comes together."""

from typing import Any

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.runner import Job, run_batch
from ottla.jepsen.world.timed.timed_raft import Storm, TimedRaft
from ottla.jepsen.world.timed.timeline import sleep

STORM_COUNT = 25
JOB = Job(engine="B", subject="raft", budget=6_000)
SELDOM = {
    "two believe to lead at once",
    "a snapshot is installed",
    "power goes among changes of the disk",
}
"""What so few storms need not meet."""


def test_no_storm_breaks_an_invariant_and_calm_brings_the_quorum_together(explored: Any) -> None:
    tally = run_batch(JOB, 0, STORM_COUNT)
    explored(f"{JOB.engine} {JOB.subject}", tally)

    assert [(each.seed, str(each.violation)) for each in tally.failures] == []
    assert set(tally.missed(TimedRaft.required)) <= SELDOM
    assert tally.figures["commits"] > 20 * STORM_COUNT
    assert tally.figures["acks"] > 10 * STORM_COUNT
    assert tally.figures["power cuts"] > STORM_COUNT
    assert tally.sim_ms > 5_000 * STORM_COUNT


def test_a_storm_is_its_decisions() -> None:
    engine = TimedRaft()
    first = engine.run(Chance(3), budget=2_000)

    again = engine.run(Chance(3, replay=first.decisions), budget=2_000)

    assert again.trace_hash == first.trace_hash
    assert again.figures == first.figures


def test_a_process_that_is_ended_takes_all_its_tasks_along() -> None:
    storm = Storm(Chance(0))
    node = next(iter(storm.nodes.values()))
    outlived: list[str] = []

    async def outlive(name: str) -> None:
        if name == "outer":
            node._spawn(outlive("inner"))
        await sleep(1)
        outlived.append(name)

    node._spawn(outlive("outer"))
    node.stop(is_power_lost=False)
    storm.timeline.run_until(10)

    assert outlived == []
