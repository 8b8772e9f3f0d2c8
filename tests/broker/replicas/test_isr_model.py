"""One partition on three brokers under a real controller's rules: no committed record is ever lost.

The walks of the deterministic world, longer here than where seeds are many: partitions, keepers of
the in-sync replicas, followers and the controller's decisions are the real ones, as are the logs;
network, disks and time are models. The seed alone determines each run.

It fails for, among others: a change dropped when its response is lost or when metadata of the same
partition epoch arrives again, an overtaken change treated as a rejected one, new members that do
not count before the response, a high watermark that moves below min ISR, a join before the epoch's
start.
"""

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.walk.replication.replication_walk import ReplicationWalk, WalkedCluster
from tests.search_length import length

STEP_COUNT = 2_000


@pytest.mark.parametrize("seed", range(length(15, 40)))
def test_nothing_committed_is_lost_and_nothing_else_is_committed(seed: int) -> None:
    outcome = ReplicationWalk().run(Chance(seed), budget=STEP_COUNT)
    assert outcome.violation is None


@pytest.mark.parametrize("seed", range(length(8, 20)))
def test_once_nothing_fails_any_more_all_are_in_sync_and_everything_is_committed(
    seed: int,
) -> None:
    walk = WalkedCluster(Chance(seed))
    walk.go(STEP_COUNT)
    walk.heal()
    for index in walk.indexes:
        state = walk.state(index)
        assert set(state.isr) == set(state.replicas)
        leader = walk.machines[state.leader - 1].store.held(index)
        assert leader is not None
        start = leader.log_start_offset
        assert leader.records[start:] == walk.judge.committed[index][start:]


def test_the_walks_commit_records_and_change_leaders_and_in_sync_sets() -> None:
    figures: dict[str, int] = {}
    for seed in range(length(5, 10)):
        outcome = ReplicationWalk().run(Chance(seed), budget=STEP_COUNT)
        for name, count in outcome.figures.items():
            figures[name] = figures.get(name, 0) + count
    assert figures["commits"] > 100
    assert figures["elections"] > 20
    assert figures["ISR changes"] > 30
