"""Engine B on a cluster: the real quorum, real decisions, brokers' real replication, in time.

Three controllers, three or four brokers, one topic, and clients, on a network and disks with
faults.  The run begins with a cluster that was stopped cleanly.  Faults stay within the atlas: what
is not flushed may be lost by all machines where flushes are demanded, elsewhere by one at a time,
and nothing else fails until that one is in sync again.  At the end all is healed, and within
bounded time records must be acknowledged, every replica be in sync and everybody's metadata equal.
"""

from collections.abc import Callable
from functools import partial

from ottla.controller import forward
from ottla.controller.decision import Context, QuorumStatus
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import Operation
from ottla.jepsen.world.engine import Outcome
from ottla.jepsen.world.timed.cluster_hosts import (
    CLIENT,
    BrokerHost,
    HostedCluster,
)
from ottla.jepsen.world.timed.controller_seat import ControllerSeat
from ottla.jepsen.world.timed.machine import DiskWeather
from ottla.jepsen.world.timed.net import CALM, swarm_weather
from ottla.jepsen.world.timed.raft_node import RaftNode
from ottla.jepsen.world.timed.storming import stormed
from ottla.jepsen.world.timed.timeline import MS, SECOND
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.broker_life import Store
from ottla.jepsen.world.walk.model_log import ModelStore
from ottla.jepsen.world.walk.replication_cluster import TOPIC, Shape
from ottla.model.ids import NO_NODE
from ottla.model.limits import MIB
from ottla.model.settings.quorum import QuorumConfig
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

BROKER_COUNTS = (3, 3, 3, 4)
MIN_ISRS = (2, 2, 2, 1, 3)
FOUNDING_SECONDS_MAX = 60
STORM_SECONDS_MAX = 60
RECOVERY_SECONDS_MAX = 120
"""Virtual time after the healing in which everything must have come together."""

CALM_ACKS = 5
"""Records that must be acknowledged after the healing."""

SWIZZLE_US = 300 * MS
"""What a swizzle-clog waits, more or less, between one way and the next."""

Fault = Callable[[RaftNode], None]


class TimedCluster:
    """The engine."""

    name = "B"
    subject = "cluster"
    budget = 30_000
    required = (
        "a follower cuts its log",
        "a leader is elected from the ELR",
        "the ISR is one",
        "nobody leads",
        "an ISR change is overtaken",
        "two believe to lead at once",
        "two believe to be the controller at once",
        "a decision is lost with its controller",
        "a duplicate is found after a failover",
        "a fetch waits and is answered by an append",
        "a broker starts cleanly",
        "a broker stops cleanly",
        "a broker loses the tail of its log",
        "power is cut for all",
        "a reassignment ends",
        "a consumer reads from a deposed leader",
        "a disk that fails ends a process",
        "a process stands still",
        "ways are clogged one after the other",
        "records come while a flush is under way",
    )

    def make_store(self, chance: Chance) -> Store:
        """Return what a machine keeps its logs in."""
        return ModelStore()

    def run(self, chance: Chance, *, budget: int) -> Outcome:
        """Run one storm of at most `budget` events, and the calm after it."""
        return stormed(self, chance, lambda: Storm(chance, self.make_store), budget=budget)


def _shape(chance: Chance) -> Shape:
    return Shape(
        BROKER_COUNTS[chance.below(len(BROKER_COUNTS))],
        1 + (chance.below(4) == 3),
        MIN_ISRS[chance.below(len(MIN_ISRS))],
        chance.below(2) == 1,
    )


def _quorum_config(chance: Chance) -> QuorumConfig:
    return QuorumConfig(
        segment_bytes=(MIB, 20_000)[chance.below(2)],
        retention_bytes_max=(100 * MIB, 4_000)[chance.below(2)],
        fetch_bytes_max=(MIB, 2_000)[chance.below(2)],
    )


class Storm(HostedCluster):
    """One cluster in one seed's weather."""

    def __init__(self, chance: Chance, make_store: Callable[[Chance], Store]) -> None:
        super().__init__(chance, _shape(chance), make_store, _quorum_config(chance))
        self._work_chance = chance.stream("work")
        self._work_us = (10 * MS, 40 * MS, 200 * MS)[chance.below(3)]
        self._fault_us = (200 * MS, SECOND, 4 * SECOND)[chance.below(3)]
        self._is_storm = True
        self._is_working = True
        self._weather = self.net.weather
        self._faults = self._draw_faults()

    def _draw_faults(self) -> list[Fault]:
        """Return every fault as often as its weight in this storm says."""
        rows: tuple[tuple[Fault, int], ...] = (
            (self._restart, 12),
            (self._misbehave, 5),
            (self._swizzle, 2),
            (self._isolate_leader, 2),
            (self._heal, 5),
            (self._change_weather, 1),
            (self._cut_power, 3),
            (self._black_out, 1),
            (self._kill, 3),
            (self._kill_leader, 2),
            (self._pause, 3),
            (self._resume, 5),
            (self._drain, 2),
            (self._reassign, 2),
            (self._rebalance, 1),
            (self._tear, 1),
            (self._fail_disk, 2),
            (self._fill_disk, 1),
            (self._jump_clock, 1),
            (self._snapshot, 2),
        )
        needed = {self._restart, self._heal, self._resume}
        faults: list[Fault] = []
        for fault, weight in rows:
            strength = self.chance.below(4)
            if fault in needed:
                strength = 0
            faults += [fault] * (weight, weight * 3, 0, 0)[strength]
        return faults

    # --- the course of a run ------------------------------------------------------------------

    def run(self, budget: int) -> None:
        """Start all, let it storm, then heal everything and see the cluster come together."""
        self._found()
        self.net.weather = self._weather
        self._work_later()
        self._fault_later()
        seconds = 10 + self.chance.below(STORM_SECONDS_MAX)
        self.timeline.run_until(
            self.timeline.now_us + seconds * SECOND,
            event_count_max=self.timeline.event_count + budget,
        )
        self._calm()
        self.invariants.check_end()

    def _found(self) -> None:
        """Start a cluster that was stopped cleanly; all must be there within bounded time."""
        self.net.weather = CALM
        formatting = [self.timeline.spawn(node.format(), _raise) for node in self.nodes.values()]
        while not all(task.is_over for task in formatting):
            self.timeline.run_one()
        for node in self.nodes.values():
            node.disk.flush_everything()
            self.start_node(node)
        for seat in self.seats.values():
            self._look_later(seat)
        for host in self.hosts.values():
            self.later(1 + self._flush_us(host), partial(self.tick, host))
        self._until(FOUNDING_SECONDS_MAX, self._is_whole_and_led, "StartsWithinBoundedTime")

    def _calm(self) -> None:
        """Heal all; within bounded time everything must work and be everywhere."""
        self._is_storm = False
        self.trace.add("calm", self.timeline.now_us)
        self._quieten()
        for node in self.nodes.values():
            node.disk.heal()
            node.disk.weather = DiskWeather()
        for seat in self.seats.values():
            seat.records_max = 10_000
        for host in self.hosts.values():
            if host.machine.life is not None:
                host.machine.life.is_leaving = False
        wanted = self.figures["acknowledged"] + CALM_ACKS
        self._until(
            RECOVERY_SECONDS_MAX,
            lambda: self._renew() and self.figures["acknowledged"] >= wanted,
            "ProgressAfterHealing",
        )
        self._is_working = False
        self._until(
            RECOVERY_SECONDS_MAX,
            lambda: self._renew() and self._is_whole_and_led(),
            "EverythingHeals",
        )

    def _until(self, seconds: int, is_reached: Callable[[], bool], invariant: str) -> None:
        deadline_us = self.timeline.now_us + seconds * SECOND
        while self.timeline.now_us < deadline_us:
            self.timeline.run_until(self.timeline.now_us + 100 * MS)
            self.set_time()
            if is_reached():
                return
        raise Violation(invariant, f"not in {seconds} s: {self._told()}")

    def _quieten(self) -> None:
        """Have the network and processes do what they should."""
        self.net.weather = CALM
        self.net.heal()
        for node in self.nodes.values():
            if node.is_paused:
                self.wake(node)

    def _renew(self) -> bool:
        for node in self.nodes.values():
            if not node.is_up and not node.is_starting:
                self.start_node(node)
        return True

    def _is_whole_and_led(self) -> bool:
        last = len(self.history.images) - 1
        image = self.history.image
        for machine in self.machines:
            life = machine.life
            if life is None or life.seen != last or not image.is_active(machine.id):
                return False
        if any(self.state(index).leader == NO_NODE for index in self.indexes):
            return False
        return self._is_whole()

    def _told(self) -> str:
        nodes = [
            f"{node.node_id} {'down' if node.core is None else node.core.role.value}"
            f" at {node.applied_end_offset}"
            for node in self.nodes.values()
        ]
        lives = [
            f"{machine.id} "
            + ("down" if machine.life is None else f"{machine.life.epoch} at {machine.life.seen}")
            for machine in self.machines
        ]
        held = [
            [None if one is None else (len(one.records), one.high_watermark) for one in found]
            for found in (list(self.everybody(index)) for index in self.indexes)
        ]
        states = [self.state(index) for index in self.indexes]
        return f"{nodes}, {lives} of {len(self.history.images)}, {held}, {states}"

    # --- controllers --------------------------------------------------------------------------

    def _look_later(self, seat: ControllerSeat) -> None:
        delay_us = seat.sessions.look_interval_ms * MS
        self.later(delay_us, lambda: self._look(seat))

    def _look(self, seat: ControllerSeat) -> None:
        self._look_later(seat)
        if seat.node.is_up and not seat.node.is_paused:
            seat.look()
        active = [one for one in self.seats.values() if one.epoch is not None]
        if len(active) > 1:
            self.rare.sometimes("two believe to be the controller at once")

    def _active(self) -> ControllerSeat | None:
        active = [
            seat
            for seat in self.seats.values()
            if seat.epoch is not None and not seat.node.is_paused
        ]
        return max(active, key=lambda seat: seat.epoch or 0) if active else None

    # --- clients ------------------------------------------------------------------------------

    def _work_later(self) -> None:
        delay_us = 1 + self._work_chance.below(2 * self._work_us)
        self.later(delay_us, self._work)

    def _work(self) -> None:
        if not self._is_working:
            return
        kind = self._work_chance.below(8)
        if kind < 5:
            self.clients.produce()
        elif kind < 6:
            self.clients.retry()
        else:
            self.clients.consume()
        self._work_later()

    # --- faults -------------------------------------------------------------------------------

    def _fault_later(self) -> None:
        delay_us = 1 + self._work_chance.below(2 * self._fault_us)
        self.later(delay_us, self._do_fault)

    def _do_fault(self) -> None:
        if not self._is_storm:
            return
        nodes = list(self.nodes.values())
        fault = self._faults[self.chance.below(len(self._faults))]
        node = nodes[self.chance.below(len(nodes))]
        if not self.is_one_behind:
            self.trace.add(fault.__name__, node.node_id)
            fault(node)
        else:
            self._restart(node)
        self._fault_later()

    def _restart(self, node: RaftNode) -> None:
        for each in self.nodes.values():
            if not each.is_up and not each.is_starting:
                self.start_node(each)

    def _cut_power(self, node: RaftNode) -> None:
        """Cut one machine's power, if the fault atlas allows what that may lose."""
        host = self.hosts.get(node.node_id)
        if host is None or self.shape.is_flush_demanded:
            if node.is_up or node.is_starting:
                self._stop(node, is_power_lost=True)
            return
        machine = host.machine
        if machine.life is None or not self.net.is_whole or not self._may_lose(host):
            return
        self._quieten()
        machine.has_lost_tail = machine.is_behind = True
        node.stop(is_power_lost=True)
        if self.end_life(machine, is_power_cut=True):
            self.rare.sometimes("a broker loses the tail of its log")

    def _may_lose(self, host: BrokerHost) -> bool:
        image = self.history.image
        is_all_active = all(image.is_active(one.id) for one in self.machines)
        is_settled = all(
            len(self.state(index).isr) == len(self.state(index).replicas) for index in self.indexes
        )
        return is_all_active and is_settled and self.may_lose(host.machine)

    def _stop(self, node: RaftNode, *, is_power_lost: bool) -> None:
        seat = self.seats.get(node.node_id)
        if seat is not None and seat.epoch is not None and seat.has_open_decisions:
            self.rare.sometimes("a decision is lost with its controller")
        self.stop_node(node, is_power_lost=is_power_lost)

    def _black_out(self, node: RaftNode) -> None:
        """Cut everybody's power."""
        if self.shape.is_flush_demanded:
            self.rare.sometimes("power is cut for all")
            for each in self.nodes.values():
                if each.is_up or each.is_starting:
                    self._stop(each, is_power_lost=True)

    def _kill(self, node: RaftNode) -> None:
        if node.is_up or node.is_starting:
            self._stop(node, is_power_lost=False)

    def _leader(self) -> RaftNode | None:
        """Return who matters most: the active controller or some partition's leader."""
        index = self.chance.below(len(self.indexes) + 1)
        if index < len(self.indexes):
            return self.nodes.get(self.state(index).leader)
        seat = self._active()
        return None if seat is None else seat.node

    def _kill_leader(self, node: RaftNode) -> None:
        leader = self._leader()
        if leader is not None:
            self._kill(leader)

    def _isolate_leader(self, node: RaftNode) -> None:
        leader = self._leader()
        if leader is not None:
            others = [one for one in (*self.nodes, CLIENT) if one != leader.node_id]
            self.net.part([leader.node_id], others)

    def _misbehave(self, node: RaftNode) -> None:
        self.trace.add(self.net.misbehave(self.chance))

    def _swizzle(self, node: RaftNode) -> None:
        """Clog some nodes' ways one after the other, and let them go in another order."""
        self.rare.sometimes("ways are clogged one after the other")
        chosen = [one for one in self.nodes if self.chance.below(2)]
        ways = [(one, other) for one in chosen for other in self.nodes if other != one]
        at_us = 0
        for sender, receiver in ways:
            at_us += 1 + self._work_chance.below(SWIZZLE_US // len(self.nodes))
            self.later(at_us, partial(self._clog, sender, receiver))
        while ways:
            sender, receiver = ways.pop(self._work_chance.below(len(ways)))
            at_us += 1 + self._work_chance.below(SWIZZLE_US // len(self.nodes))
            self.later(at_us, partial(self.net.unclog_one, sender, receiver))

    def _clog(self, sender: object, receiver: object) -> None:
        if self._is_storm and not self.is_one_behind:
            self.net.clog(sender, receiver)

    def _heal(self, node: RaftNode) -> None:
        self.net.heal()

    def _change_weather(self, node: RaftNode) -> None:
        self.net.weather = swarm_weather(self.chance)

    def _pause(self, node: RaftNode) -> None:
        if node.is_up and not node.is_paused:
            self.rare.sometimes("a process stands still")
            node.pause()
            host = self.hosts.get(node.node_id)
            if host is not None:
                host.machine.is_paused = True

    def _resume(self, node: RaftNode) -> None:
        for each in self.nodes.values():
            if each.is_paused:
                self.wake(each)

    def _drain(self, node: RaftNode) -> None:
        host = self.hosts.get(node.node_id)
        if host is not None and host.machine.life is not None:
            host.machine.life.is_leaving = True

    def _reassign(self, node: RaftNode) -> None:
        """Move a replica, resize the set, or call a move under way off."""
        ids = [machine.id for machine in self.machines]
        start = self.chance.below(len(ids))
        replicas: list[int] | None = None
        if self.chance.below(4) != 3:
            replicas = [int(one) for one in (ids[start:] + ids[:start])[: 2 + self.chance.below(2)]]
        seat = self._active()
        if seat is None:
            return
        index = self.chance.below(len(self.indexes))
        asked = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=TOPIC, partitions=[asked])]
        )
        context = Context(config=self.history.config, rng=self.rng, quorum_status=_no_status)
        seat.attempt(
            lambda image, _: forward.decide(
                image, request.API_KEY, request.VERSIONS[-1], request, context
            )
        )

    def _rebalance(self, node: RaftNode) -> None:
        seat = self._active()
        if seat is not None:
            seat.rebalance()

    def _tear(self, node: RaftNode) -> None:
        """Have controllers append record by record: one that dies leaves decisions half done."""
        self.are_decisions_torn = True
        for seat in self.seats.values():
            seat.records_max = 1 + self.chance.below(3)

    def _fail_disk(self, node: RaftNode) -> None:
        kind = (Operation.FSYNC, Operation.WRITE, Operation.NAME)[self.chance.below(3)]
        self.figures["disk faults"] += 1
        node.disk.fail(kind, skip_count=self.chance.below(4))

    def _fill_disk(self, node: RaftNode) -> None:
        """Leave little room; the next call, or the calm, makes room again."""
        if node.disk.capacity_bytes is None:
            self.figures["disk faults"] += 1
            node.disk.capacity_bytes = node.disk.used_bytes + self.chance.below(500)
        else:
            node.disk.capacity_bytes = None

    def _jump_clock(self, node: RaftNode) -> None:
        node.clock.wall_offset_ms += (-90_000, 3_600_000, -5_000)[self.chance.below(3)]

    def _snapshot(self, node: RaftNode) -> None:
        for each in self.nodes.values():
            each.write_snapshot()

    # --- figures ------------------------------------------------------------------------------

    def all_figures(self) -> dict[str, int]:
        """Return what this run counts."""
        figures = dict(self.figures)
        figures["commits of the quorum"] = len(self.invariants.committed)
        figures["controller elections"] = len(self.invariants.leaders)
        figures["decisions"] = sum(seat.decision_count for seat in self.seats.values())
        figures["messages"] = self.net.figures["messages"]
        figures["sent"] = len(self.sent)
        figures["fsyncs of metadata"] = sum(one.disk.fsync_count for one in self.nodes.values())
        figures["snapshots"] = sum(node.snapshot_count for node in self.nodes.values())
        return figures


def _no_status() -> QuorumStatus:
    raise AssertionError("nobody asks")


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error
