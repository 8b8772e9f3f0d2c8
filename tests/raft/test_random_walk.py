"""Random walks of whole quorums: bad networks, bad disks, crashes; the invariants after each step.

A failing seed is a bug: it gets a test in the file of the rule it breaks, and stays here.
"""

import pytest

from ottla.model.ids import NodeId
from ottla.raft.events import ResignRequested
from ottla.raft.testing.seeded_rng import SeededRng
from ottla.raft.testing.world import Weather, World

WALK_MS = 60_000
CALM_MS = 12_000
"""Time after the storm in which everything must come together: several elections' worth."""


class Walk:
    """One quorum under one seed's storm."""

    def __init__(self, seed: int, voter_count: int) -> None:
        self.chance = SeededRng(seed)
        self.voter_ids = tuple(range(1, voter_count + 1))
        weather = Weather(
            drop=self.chance.random() * 0.2,
            repeat=self.chance.random() * 0.2,
            latency_ms_max=1 + self.chance.below(60),
            flush_ms_max=(0, 30, 400)[self.chance.below(3)],
            crash_between_duties=self.chance.random() * 0.001,
        )
        self.world = World(
            self.chance, voter_ids=self.voter_ids, observer_ids=(101,), weather=weather
        )
        self.proposed_count = 0

    def storm(self) -> None:
        self.world.start()
        while self.world.now_ms < WALK_MS:
            self.world.run_until(self.world.now_ms + 1 + self.chance.below(120))
            self._mischief()

    def calm(self) -> None:
        """Everything works again: a leader, new commits, and equal logs must follow."""
        self.world.heal()
        self.world.weather = Weather()
        for member in self.world.members.values():
            member.flushes_at_once = True
        for node_id in self._stopped():
            self.world.start(node_id)
        self.world.run_until(self.world.now_ms + CALM_MS)
        assert self.world.propose("after the storm")
        self.world.run_until(self.world.now_ms + 2_000)

    def _cut_the_power(self) -> None:
        """Crash everybody at once: what nobody has flushed is gone everywhere."""
        for node_id, member in self.world.members.items():
            if member.core is not None:
                self.world.crash(node_id, survivor_count=self.chance.below(2))

    def _stopped(self) -> list[NodeId]:
        return [node for node, member in self.world.members.items() if member.core is None]

    def _mischief(self) -> None:
        world, chance = self.world, self.chance
        nodes = list(world.members)
        node_id = nodes[chance.below(len(nodes))]
        member = world.members[node_id]
        kind = chance.below(100)
        if kind < 60:
            if world.propose(f"value {self.proposed_count}"):
                self.proposed_count += 1
        elif kind < 66 and member.core is not None:
            world.crash(node_id, survivor_count=chance.below(4))
        elif kind < 68:
            self._cut_the_power()
        elif kind < 82:
            for stopped in self._stopped():
                if chance.below(2):
                    world.start(stopped)
        elif kind < 86:
            cut = 1 + chance.below(len(nodes))
            order = sorted(nodes, key=lambda _: chance.random())
            world.part(tuple(order[:cut]), tuple(order[cut:]))
        elif kind < 88:
            world.cut = {
                (sender, receiver)
                for sender in nodes
                for receiver in nodes
                if sender != receiver and chance.below(4) == 0
            }
        elif kind < 93:
            world.heal()
        elif kind < 96 and member.core is not None:
            offset = min(member.core.high_watermark, member.log.flushed_offset)
            if offset > member.log.start_offset:
                member.log.snapshot_at(offset, keeps_log=chance.below(2) == 0)
        elif kind < 98 and member.is_leader:
            world.step(node_id, ResignRequested(epoch=member.running.epoch))


@pytest.mark.parametrize(
    ("voter_count", "seeds"),
    [(1, range(4)), (3, range(100, 116)), (5, range(500, 508)), (2, range(200, 203))],
    ids=["one", "three", "five", "two"],
)
def test_no_storm_breaks_an_invariant_and_calm_brings_the_quorum_together(
    voter_count: int, seeds: range
) -> None:
    for seed in seeds:
        walk = Walk(seed, voter_count)
        walk.storm()

        walk.calm()

        world = walk.world
        ends = {member.log.end_offset for member in world.members.values()}
        watermarks = {member.running.high_watermark for member in world.members.values()}
        assert ends == watermarks == {len(world.invariants.committed)}, f"seed {seed}"
        assert world.invariants.committed[-1].value == "after the storm"
        assert len(world.invariants.leaders) >= 1


def test_the_walk_is_rough_enough_to_mean_something() -> None:
    walk = Walk(104, 3)

    walk.storm()
    walk.calm()

    assert len(walk.world.invariants.leaders) >= 5
    assert walk.world.crash_count >= 5
    assert walk.proposed_count >= 100


def test_one_seed_is_one_history() -> None:
    walks = [Walk(7, 3), Walk(7, 3)]

    for walk in walks:
        walk.storm()

    first, second = walks
    assert first.world.invariants.committed == second.world.invariants.committed
    assert first.world.step_count == second.world.step_count
