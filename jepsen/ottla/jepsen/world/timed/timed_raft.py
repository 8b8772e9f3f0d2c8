"""Engine B on raft: real cores over real metadata logs, a network and disks with faults, in time.

Faults stay within what raft promises to bear: any number of power cuts and crashes, disks that fail
or fill up and thereby end their process, every kind of partition, clocks that drift and jump,
processes that stand still.  What was flushed is never damaged.  At the end all is healed, and
within bounded time there must be a leader that commits, and every replica must have all of it.
"""

from collections.abc import Callable
from uuid import UUID

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import Operation
from ottla.jepsen.world.engine import Outcome
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.timed.machine import DiskWeather, DriftingClock, SlowDisk, swarm_disk
from ottla.jepsen.world.timed.net import CALM, Net, swarm_weather
from ottla.jepsen.world.timed.raft_node import RaftNode
from ottla.jepsen.world.timed.raft_wire import RaftWire
from ottla.jepsen.world.timed.storming import stormed
from ottla.jepsen.world.timed.timeline import MS, SECOND, Timeline
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.limits import MIB
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects
from ottla.raft.events import (
    AppendRequested,
    Event,
    ResignRequested,
)
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.world import voter
from ottla.raft.transitions import Role
from ottla.raft.voters import QuorumIdentity, VoterSet

VOTER_COUNTS = (3, 3, 3, 5, 1)
STORM_SECONDS_MAX = 40
RECOVERY_SECONDS_MAX = 30
"""Virtual time after the healing in which everything must have come together."""

CLUSTER_ID = "b3R0bGEtd29ybGQtMDAwMQ"


class TimedRaft:
    """The engine."""

    name = "B"
    subject = "raft"
    budget = 20_000
    required = (
        "a log is cut after divergence",
        "a snapshot is installed",
        "a flush fails",
        "a disk is full",
        "a process stands still",
        "every machine loses power at once",
        "unflushed entries are lost",
        "two believe to lead at once",
        "power goes while a log is recovered",
        "a leader that is cut off resigns",
        "power goes among changes of the disk",
    )

    def run(self, chance: Chance, *, budget: int) -> Outcome:
        """Run one storm of at most `budget` events, and the calm after it."""
        storm = Storm(chance)
        return stormed(self, chance, lambda: storm, budget=budget)


def _config(chance: Chance) -> QuorumConfig:
    """Draw settings: small files and answers, so that much happens in little time."""
    return QuorumConfig(
        segment_bytes=(MIB, 2_000, 300)[chance.below(3)],
        retention_bytes_max=(100 * MIB, 400, 1)[chance.below(3)],
        fetch_bytes_max=(MIB, 200, 1)[chance.below(3)],
        fetch_snapshot_bytes_max=(MIB, 100)[chance.below(2)],
    )


class Storm:
    """One quorum in one seed's weather."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.timeline = Timeline()
        self.trace = Trace()
        self.rare = Rare()
        self.invariants = Invariants()
        self.figures = {"crashes": 0, "power cuts": 0, "disk faults": 0, "proposals": 0, "acks": 0}
        self._config = _config(chance)
        voter_count = VOTER_COUNTS[chance.below(len(VOTER_COUNTS))]
        observer_count = chance.below(2)
        self.voter_ids = tuple(NodeId(at + 1) for at in range(voter_count))
        node_ids = [*self.voter_ids, *(NodeId(101 + at) for at in range(observer_count))]
        self.net = Net(self.timeline, chance.stream("net"), node_ids, swarm_weather(chance))
        self._work_chance = chance.stream("work")
        self.nodes: dict[NodeId, RaftNode] = {}
        self._wire = RaftWire(self.timeline, self.net, self.nodes, chance.stream("codec"))
        for node_id in node_ids:
            self.nodes[node_id] = self._make_node(node_id)
        self._pending: dict[tuple[NodeId, Epoch], list[tuple[Offset, str]]] = {}
        """Proposals by who appended them: where, and what."""
        self._propose_us = (10 * MS, 50 * MS, 300 * MS)[chance.below(3)]
        self._fault_us = (100 * MS, 500 * MS, 2 * SECOND)[chance.below(3)]
        self._is_storm = True
        self._faults = self._draw_faults()

    def _make_node(self, node_id: NodeId) -> RaftNode:
        chance = self.chance
        voters = VoterSet(tuple(voter(each) for each in self.voter_ids))
        identity = QuorumIdentity(
            node_id=node_id,
            directory_id=UUID(int=1000 + node_id),
            cluster_id=CLUSTER_ID,
            voters=voters,
        )
        drift_ppm = (0, 100, -100, 50_000, -50_000)[chance.below(5)]
        return RaftNode(
            identity,
            self._config,
            self.timeline,
            DriftingClock(self.timeline, drift_ppm),
            SlowDisk(chance.stream(f"disk {node_id}"), swarm_disk(chance)),
            chance.stream(f"core {node_id}"),
            self.invariants,
            send=self._wire.send,
            on_step=self._on_step,
            on_death=self._on_death,
        )

    def _draw_faults(self) -> list[Callable[[RaftNode], None]]:
        """Return every fault as often as its weight in this storm says."""
        rows: tuple[tuple[Callable[[RaftNode], None], int], ...] = (
            (self._restart, 12),
            (self._misbehave, 4),
            (self._heal, 3),
            (self._cut_power, 3),
            (self._kill, 3),
            (self._black_out, 1),
            (self._doom, 3),
            (self._pause, 2),
            (self._resume, 4),
            (self._fail_disk, 2),
            (self._fill_disk, 1),
            (self._jump_clock, 1),
            (self._snapshot, 3),
            (self._resign, 1),
            (self._shut_down, 1),
        )
        needed = {self._restart, self._heal, self._resume}
        faults: list[Callable[[RaftNode], None]] = []
        for fault, weight in rows:
            strength = self.chance.below(4)
            if fault in needed:
                strength = 0
            faults += [fault] * (weight, weight * 3, 0, 0)[strength]
        return faults

    # --- the course of a run ------------------------------------------------------------------

    def run(self, budget: int) -> None:
        """Let it storm, then heal everything and see the quorum come together."""
        formatting = [self.timeline.spawn(node.format(), _raise) for node in self.nodes.values()]
        while not all(task.is_over for task in formatting):
            self.timeline.run_one()
        for node in self.nodes.values():
            node.disk.flush_everything()
            node.start()
        self._propose_later()
        self._fault_later()
        seconds = 5 + self.chance.below(STORM_SECONDS_MAX)
        self.timeline.run_until(
            self.timeline.now_us + seconds * SECOND,
            event_count_max=self.timeline.event_count + budget,
        )
        self._calm()
        self.invariants.check_end()

    def _calm(self) -> None:
        """Heal all; within bounded time a leader must commit, and everybody have everything."""
        self._is_storm = False
        self.net.weather = CALM
        self.net.heal()
        self.trace.add("calm", self.timeline.now_us)
        for node in self.nodes.values():
            node.disk.heal()
            node.disk.weather = DiskWeather()
            node.doom_us = None
            if node.is_paused:
                node.resume()
            self._renew(node)
        before = len(self.invariants.committed)
        deadline_us = self.timeline.now_us + RECOVERY_SECONDS_MAX * SECOND
        while self.timeline.now_us < deadline_us:
            self.timeline.run_until(self.timeline.now_us + 100 * MS)
            for node in self.nodes.values():
                if node.is_leader:
                    node.propose([f"calm {self.timeline.now_us}"])
            if len(self.invariants.committed) > before + 2 and self._is_together():
                return
        states = ", ".join(_state(node) for node in self.nodes.values())
        raise Violation("ProgressAfterHealing", f"none in {RECOVERY_SECONDS_MAX} s: {states}")

    def _renew(self, node: RaftNode) -> None:
        """Have a node that is down, or about to stop for good, run again."""
        if node.incarnation and (not node.is_up or node.is_shutting_down):
            self._stop(node, is_power_lost=True)
            node.start()

    def _is_together(self) -> bool:
        committed = len(self.invariants.committed)
        marks = [node.core.high_watermark for node in self.nodes.values() if node.core is not None]
        return len(marks) == len(self.nodes) and min(marks) >= committed - 2

    # --- the application ----------------------------------------------------------------------

    def _propose_later(self) -> None:
        delay_us = 1 + self._work_chance.below(2 * self._propose_us)
        self.timeline.later(delay_us, self._propose)

    def _propose(self) -> None:
        if not self._is_storm:
            return
        leading = [node for node in self.nodes.values() if node.is_leader]
        if len(leading) > 1:
            self.rare.sometimes("two believe to lead at once")
        for node in leading:
            self.figures["proposals"] += 1
            number = self.figures["proposals"]
            values = [f"{number}/{at}" for at in range(1 + self._work_chance.below(3))]
            node.propose(values)
        self._propose_later()

    def _on_step(self, node: RaftNode, event: Event, effects: Effects) -> None:
        """Note what a step did, and hold the leader to what it acknowledges."""
        core = node.core
        assert core is not None
        mirror = node.mirror
        self.trace.add(
            node.node_id,
            self.timeline.now_us,
            core.epoch,
            core.role.value,
            mirror.end_offset,
            mirror.flushed_offset,
            core.high_watermark,
            len(effects.replies),
            len(effects.messages),
        )
        key = (node.node_id, core.epoch)
        if isinstance(event, AppendRequested) and effects.append:
            at = Offset(mirror.end_offset - 1)
            self._pending.setdefault(key, []).append((at, mirror.entries[at].value))
        if effects.high_watermark is not None and core.is_leader:
            self._acknowledge(key, effects.high_watermark)
        if effects.truncate_to is not None:
            self.rare.sometimes("a log is cut after divergence")
        if effects.snapshot_chunk is not None and effects.snapshot_chunk.is_last:
            self.rare.sometimes("a snapshot is installed")
        if effects.role_change is not None and effects.role_change.role is Role.RESIGNED:
            self.rare.sometimes("a leader that is cut off resigns")

    def _acknowledge(self, key: tuple[NodeId, Epoch], high_watermark: Offset) -> None:
        committed = self.invariants.committed
        waiting = self._pending.get(key, [])
        for offset, value in waiting:
            if offset < high_watermark:
                self.figures["acks"] += 1
                if committed[offset].value != value:
                    raise Violation(
                        "AckedValueNotLost", f"{value} at {offset} is {committed[offset]}"
                    )
        self._pending[key] = [each for each in waiting if each[0] >= high_watermark]

    # --- faults -------------------------------------------------------------------------------

    def _fault_later(self) -> None:
        delay_us = 1 + self._work_chance.below(2 * self._fault_us)
        self.timeline.later(delay_us, self._do_fault)

    def _do_fault(self) -> None:
        if not self._is_storm:
            return
        nodes = list(self.nodes.values())
        fault = self._faults[self.chance.below(len(self._faults))]
        node = nodes[self.chance.below(len(nodes))]
        self.trace.add(fault.__name__, node.node_id)
        fault(node)
        self._fault_later()

    def _stop(self, node: RaftNode, *, is_power_lost: bool) -> None:
        if node.incarnation and not node.is_up and is_power_lost and node.is_starting:
            self.rare.sometimes("power goes while a log is recovered")
        flushed, end = node.mirror.flushed_offset, node.mirror.end_offset
        node.stop(is_power_lost=is_power_lost)
        if is_power_lost and end > flushed:
            self.rare.sometimes("unflushed entries are lost")

    def _on_death(self, node: RaftNode, error: Exception) -> None:
        """A process whose disk failed ends; its machine restarts with the next start."""
        self.trace.add("dies", node.node_id, type(error).__name__)
        is_power_lost = "power" in str(error)
        if is_power_lost:
            self.rare.sometimes("power goes among changes of the disk")
        self.figures["power cuts" if is_power_lost else "crashes"] += 1
        self._stop(node, is_power_lost=True)
        if not self._is_storm:
            node.start()

    def _restart(self, node: RaftNode) -> None:
        for each in self.nodes.values():
            if not each.is_up and not each.is_starting:
                each.start()

    def _cut_power(self, node: RaftNode) -> None:
        if node.is_up or node.is_starting:
            self.figures["power cuts"] += 1
            self._stop(node, is_power_lost=True)

    def _kill(self, node: RaftNode) -> None:
        if node.is_up or node.is_starting:
            self.figures["crashes"] += 1
            self._stop(node, is_power_lost=False)

    def _doom(self, node: RaftNode) -> None:
        """Have the power go in the midst of its next truncation or snapshot from the leader."""
        node.doom_us = 10 ** self.chance.below(6)

    def _black_out(self, node: RaftNode) -> None:
        self.rare.sometimes("every machine loses power at once")
        for each in self.nodes.values():
            self._cut_power(each)

    def _misbehave(self, node: RaftNode) -> None:
        self.trace.add(self.net.misbehave(self.chance))

    def _heal(self, node: RaftNode) -> None:
        self.net.heal()

    def _pause(self, node: RaftNode) -> None:
        if node.is_up:
            self.rare.sometimes("a process stands still")
            node.pause()

    def _resume(self, node: RaftNode) -> None:
        for each in self.nodes.values():
            if each.is_paused:
                each.resume()

    def _fail_disk(self, node: RaftNode) -> None:
        kind = (Operation.FSYNC, Operation.WRITE, Operation.NAME)[self.chance.below(3)]
        self.figures["disk faults"] += 1
        if kind is Operation.FSYNC:
            self.rare.sometimes("a flush fails")
        node.disk.fail(kind, skip_count=self.chance.below(4))

    def _fill_disk(self, node: RaftNode) -> None:
        """Leave little room; the next call, or the calm, makes room again."""
        if node.disk.capacity_bytes is None:
            self.rare.sometimes("a disk is full")
            self.figures["disk faults"] += 1
            node.disk.capacity_bytes = node.disk.used_bytes + self.chance.below(500)
        else:
            node.disk.capacity_bytes = None

    def _jump_clock(self, node: RaftNode) -> None:
        jump_ms = (-90_000, 3_600_000, -5_000)[self.chance.below(3)]
        node.clock.wall_offset_ms += jump_ms

    def _snapshot(self, node: RaftNode) -> None:
        for each in self.nodes.values():
            each.write_snapshot()

    def _resign(self, node: RaftNode) -> None:
        if node.core is not None and node.is_leader:
            node.ask(ResignRequested(epoch=node.core.epoch))

    def _shut_down(self, node: RaftNode) -> None:
        node.shut_down()

    # --- figures ------------------------------------------------------------------------------

    def all_figures(self) -> dict[str, int]:
        """Return what this run counts."""
        figures = dict(self.figures)
        figures["commits"] = len(self.invariants.committed)
        figures["elections"] = len(self.invariants.leaders)
        figures["messages"] = self.net.figures["messages"]
        figures["fsyncs"] = sum(node.disk.fsync_count for node in self.nodes.values())
        figures["snapshots"] = sum(node.snapshot_count for node in self.nodes.values())
        return figures


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


def _state(node: RaftNode) -> str:
    core = node.core
    if core is None:
        return f"{node.node_id} down"
    return f"{node.node_id} {core.role.value} {core.epoch} at {core.high_watermark}"
