"""Random walk on replicated partitions with disks that have lost acknowledged records when a broker
starts.

While its broker is down, a replica's log is removed, gets a hole, or is cut below its checkpoints.
The broker detects the loss and reports it when it registers. The faults stay within the protocol's
guarantees (the fault limits): another replica has all committed records, and nothing else fails
until the damaged replica is in sync again. One action is a whole scenario: all brokers stop cleanly
in any order, the disk of one broker loses data, and all brokers start in any order.
"""

from collections.abc import Callable

from ottla.broker.replicas.follower_fetch import LEADER_LACKS_RECORDS, FollowedPartition
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.invariants.replication import require
from ottla.jepsen.world.violation import Violation, violation_in
from ottla.jepsen.world.walk.replication.broker_life import BrokerMachine
from ottla.jepsen.world.walk.replication.disk_store import DiskLoss
from ottla.jepsen.world.walk.replication.replication_walk import ReplicationWalk, WalkedCluster

STOP_ROUNDS_MAX = 8
"""Maximum number of rounds of heartbeats within which a controlled shutdown should end. If it does
not, later actions of the random walk complete it."""


class LossReplicationWalk(ReplicationWalk):
    """Search engine that tests replication by random walks with disks that lose acknowledged
    records."""

    subject = "replication-losses"
    required = (
        "a disk has lost acknowledged records",
        "a replica is gone",
        "a replica has a hole",
        "all brokers are down when a disk loses",
        "the last broker that stopped loses and starts first",
        "a lost replica is whole again",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` actions, with random choices from `chance`.
        Returns the outcome."""
        walk = LossWalk(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class LossWalk(WalkedCluster):
    """One simulated cluster with disks that lose flushed data, and its adversary."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self.figures["losses"] = 0
        self._is_healed = True

    def more_rows(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return (action, weight, is_needed) for each action that damages disks. An action with
        `is_needed` is part of every run."""
        return ((self._lose_one, 6, True), (self._lose_with_all_down, 4, True))

    def judge_all(self) -> None:
        """Check all invariants of the cluster. Also check that no leader lacks records that a
        follower knows as committed."""
        was_lossy = self.is_one_lossy
        super().judge_all()
        if was_lossy and not self.is_one_lossy:
            self.rare.sometimes("a lost replica is whole again")
        for machine in self.machines:
            for index in machine.lost if machine.is_loss_named else ():
                state = self.state(index)
                require(
                    machine.id not in state.last_known_elr, "LostIsNotLastKnown", machine.id, state
                )
            self._judge_holes(machine)
            life = machine.life
            for fetcher in () if life is None else life.fetchers.values():
                for followed in fetcher.core.followed:
                    self._judge_followed(followed)

    def _judge_holes(self, machine: BrokerMachine) -> None:
        """Check that no in-sync replica on a machine has a hole (lost records) below the high
        watermark."""
        for index in self.indexes if machine.is_loss_named else ():
            state = self.state(index)
            if machine.id in (*state.isr, *state.elr):
                hole_offset = machine.store.hole_offset_of(index)
                is_filled = hole_offset is None or hole_offset >= len(self.judge.committed[index])
                require(is_filled, "HoleIsFilled", machine.id, state)

    def _judge_followed(self, followed: FollowedPartition) -> None:
        if followed.problem is not None and LEADER_LACKS_RECORDS in followed.problem:
            raise Violation("CleanLeaderHoldsAll", f"{followed.name}: {followed.problem}")

    def _lose_one(self) -> None:
        """Stop one broker and damage its disk. Later actions of the random walk start the broker
        again."""
        machine = self.machines[self.chance.below(len(self.machines))]
        if not self._is_another_whole(machine):
            return
        if machine.life is not None and self.chance.below(2):
            self._stop(machine)
        elif machine.life is not None:
            self.end_life(machine, is_power_cut=False)
        if machine.life is None and self._is_another_whole(machine):
            self._lose_disk(machine)

    def _lose_with_all_down(self) -> None:
        """Stop all brokers in any order, damage the disk of one broker, and start all brokers in
        any order."""
        if self.is_one_behind or any(machine.life is None for machine in self.machines):
            return
        order = self._shuffled()
        for machine in order:
            machine.is_paused = False
            self._stop(machine)
        loser = self.machines[self.chance.below(len(self.machines))]
        if not all(machine.life is None for machine in self.machines):
            return
        has_lost = self._is_another_whole(loser) and self._lose_disk(loser)
        starts = self._shuffled()
        if has_lost:
            self.rare.sometimes("all brokers are down when a disk loses")
            if order[-1] is loser is starts[0]:
                self.rare.sometimes("the last broker that stopped loses and starts first")
        for machine in starts:
            self.restart(machine)
            if machine.life is not None:
                self.apply_images(machine.life)
                self.send_heartbeat(machine.life)
                self.judge_all()

    def _shuffled(self) -> list[BrokerMachine]:
        waiting = list(self.machines)
        return [waiting.pop(self.chance.below(len(waiting))) for _ in self.machines]

    def _stop(self, machine: BrokerMachine) -> None:
        """Shut a broker down as an operator does, if the controller allows it soon enough."""
        life = machine.life
        if life is None:
            return
        life.is_leaving = True
        for _ in range(STOP_ROUNDS_MAX):
            for one in self.running():
                if one.life is not None:
                    self.apply_images(one.life)
                    self.send_heartbeat(one.life)
                    self.judge_all()  # records committed here are on no other disks
            if machine.life is None:
                return

    def _lose_disk(self, machine: BrokerMachine) -> bool:
        """Damage some or all replicas on the disk of a stopped machine. Returns whether the machine
        then lacks acknowledged records."""
        is_all_replicas, has_lost = self.chance.below(3) == 0, False
        for index in self.indexes:
            if is_all_replicas or self.chance.below(2) == 0:
                how = self.chance.pick((DiskLoss.ALL, DiskLoss.TAIL, DiskLoss.HOLE))
                if machine.store.lose(index, self.chance, how):
                    machine.lost.add(index)
                    has_lost = True
                    if how is DiskLoss.ALL:
                        self.rare.sometimes("a replica is gone")
                    if how is DiskLoss.HOLE:
                        self.rare.sometimes("a replica has a hole")
        if has_lost:
            machine.is_loss_named = False
            machine.is_behind = True
            self.figures["losses"] += 1
            self.rare.sometimes("a disk has lost acknowledged records")
            self.trace.add("lose", machine.id, *sorted(machine.lost))
            for index in self.indexes:
                self.judge.check_kept(index, [one.store.held(index) for one in self.machines])
        return has_lost

    def _is_another_whole(self, machine: BrokerMachine) -> bool:
        """Return True if other machines have all records of this machine, and remain eligible to
        lead when they start."""
        if self.is_one_behind:
            return False
        others = [one for one in self.machines if one is not machine]
        if any(one.life is None and not self._has_left(one) for one in others):
            return False
        if any(one.life is not None and one.life.is_leaving for one in others):
            return False  # the ISR may shrink to a machine whose loss is not known yet
        for index in self.indexes:
            state = self.state(index)
            counted = {*state.isr, *state.elr} - {machine.id}
            if machine.id in state.replicas and not counted:
                return False
        return True

    def _has_left(self, machine: BrokerMachine) -> bool:
        """Return True if a stopped machine's last process had completed a controlled shutdown."""
        return machine.clean_epoch == self.controller.image.brokers[machine.id].epoch
