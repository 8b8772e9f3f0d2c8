"""Engine D on one partition: two or three brokers, few records and failures, every course.

Leadership, the ISR and the ELR, on the cores of brokers and controller that the walk drives too.
Messages arrive in any order or not at all; metadata reaches each broker one image at a time.  A
state is reached by taking its actions again from the start: what brokers are made of is not copied.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import Outcome
from ottla.jepsen.world.exhaustive.search import Search, figures_of, follow, search
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.walk.broker_life import Life, Machine
from ottla.jepsen.world.walk.model_log import ModelStore
from ottla.jepsen.world.walk.replication_clients import Clients, Produced, Producer
from ottla.jepsen.world.walk.replication_cluster import Shape
from ottla.jepsen.world.walk.replication_talk import (
    AlterAsked,
    AlterTold,
    FetchAsked,
    FetchTold,
    Packet,
    TalkingCluster,
)

DEPTH_MAX = 40
"""Actions of one course; no budget reaches as far."""


class Case(NamedTuple):
    """How much of each there is."""

    broker_count: int
    min_isr: int
    records: int
    fencings: int
    crashes: int
    packets: int
    """Messages under way at once."""


CASES = (
    Case(2, 1, records=2, fencings=1, crashes=0, packets=2),
    Case(2, 2, records=1, fencings=1, crashes=1, packets=1),
    Case(3, 2, records=1, fencings=2, crashes=0, packets=1),
    Case(3, 2, records=1, fencings=1, crashes=1, packets=1),
)
"""Chosen by the seed, one after the other."""


class PartitionCases:
    """The engine."""

    name = "D"
    subject = "replication"
    budget = 4_000
    required: tuple[str, ...] = ()
    case_count = len(CASES)

    def run(self, chance: Chance, *, budget: int) -> Outcome:
        """Search the seed's case, in at most `budget` steps; or follow one course of it."""
        trace = Trace()
        start = CaseState(CASES[chance.seed % len(CASES)], ())
        if chance.is_replay:
            violation = follow(start, chance, depth_max=DEPTH_MAX, trace=trace)
            found = Search(0, trace.event_count, violation, tuple(chance.decisions), 0)
        else:
            found = search(start, depth_max=DEPTH_MAX, step_count_max=budget, trace=trace)
        figures = figures_of(found)
        return Outcome(
            self.name,
            self.subject,
            chance.seed,
            found.step_count,
            0,
            figures,
            {},
            trace.hash,
            found.violation,
            found.path,
        )


class CaseState:
    """What is reached by some actions in turn."""

    __slots__ = ("_actions", "_case", "_key", "_path")

    def __init__(self, case: Case, path: tuple[str, ...]) -> None:
        self._case = case
        self._path = path
        course = _Course(case)
        for action in path:
            course.do(action)
        self._actions = course.actions()
        self._key = course.key()

    def key(self) -> Hashable:
        """Return what makes this state this one."""
        return self._key

    def actions(self) -> Sequence[str]:
        """Return what may happen next."""
        return self._actions

    def take(self, action: str) -> "CaseState":
        """Return the state after an action."""
        return CaseState(self._case, (*self._path, action))


class _Course:
    """One course of events, from the start on."""

    def __init__(self, case: Case) -> None:
        self._case = case
        shape = Shape(case.broker_count, 1, case.min_isr, is_flush_demanded=False)
        no_chance = Chance(0, replay=())
        self._cluster = TalkingCluster(no_chance, shape, lambda chance: ModelStore())
        self._clients = Clients(self._cluster)
        self._producer = Producer(-1, 0)
        self._fencing_count = 0
        self._crash_count = 0

    def do(self, action: str) -> None:
        """Take one action, and judge all there is."""
        kind, _, place = action.partition(" ")
        deeds: dict[str, Callable[[int], None]] = {
            "arrive": self._arrive,
            "ask": self._ask,
            "alter": self._alter,
            "hear": self._hear,
            "beat": self._beat,
            "produce": self._produce,
            "fence": self._fence,
            "crash": self._crash,
            "start": self._start,
        }
        deeds[kind](int(place))
        self._cluster.judge_all()

    def actions(self) -> list[str]:
        """Return what may happen next, in a fixed order."""
        cluster, case = self._cluster, self._case
        names = [f"arrive {at}" for at in range(len(cluster.packets))]
        has_room = len(cluster.packets) < case.packets
        for at, machine in enumerate(cluster.machines):
            life = machine.life
            if life is None:
                names.append(f"start {at}")
                continue
            if has_room and any(one.is_idle for one in life.fetchers.values()):
                names.append(f"ask {at}")
            partition = life.partitions.get(0)
            if partition is not None and partition.is_leader:
                if len(cluster.sent) < case.records:
                    names.append(f"produce {at}")
                if has_room and life.altering is None:
                    names.append(f"alter {at}")
            if life.seen < len(cluster.controller.images) - 1:
                names.append(f"hear {at}")
            broker = cluster.controller.image.brokers[machine.id]
            if broker.is_fenced:
                names.append(f"beat {at}")
            elif self._fencing_count < case.fencings:
                names.append(f"fence {at}")
            if self._crash_count < case.crashes:
                names.append(f"crash {at}")
        return names

    def key(self) -> Hashable:
        """Return what makes this state this one."""
        cluster = self._cluster
        image = cluster.controller.image
        return (
            cluster.state(0),
            tuple(broker.is_fenced for broker in image.brokers.values()),
            tuple(self._machine_key(machine) for machine in cluster.machines),
            tuple(_packet_key(packet) for packet in cluster.packets),
            self._fencing_count,
            self._crash_count,
            len(cluster.sent),
            tuple(cluster.judge.committed[0]),
        )

    def _machine_key(self, machine: Machine) -> Hashable:
        held = machine.store.held(0)
        log = None if held is None else (tuple(held.records), held.high_watermark)
        life = machine.life
        if life is None:
            return log
        partition = life.partitions.get(0)
        if partition is None:
            return log, life.seen
        change = partition.pending_change
        return (
            log,
            life.seen,
            life.epoch,
            partition.isr,
            None if change is None else (change.isr, change.partition_epoch),
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(
                (one, follower.end_offset, follower.broker_epoch)
                for one, follower in sorted(partition.followers.items())
            ),
            life.altering is None,
            tuple(
                (one, fetcher.asked is None, fetcher.core.next_retry_ms is None)
                for one, fetcher in sorted(life.fetchers.items())
            ),
        )

    # --- actions --------------------------------------------------------------------------------

    def _life(self, at: int) -> Life:
        life = self._cluster.machines[at].life
        assert life is not None
        return life

    def _arrive(self, at: int) -> None:
        self._cluster.arrive(self._cluster.packets.pop(at))

    def _ask(self, at: int) -> None:
        life = self._life(at)
        fetcher = next(one for one in life.fetchers.values() if one.is_idle)
        self._cluster.ask(life, fetcher)

    def _alter(self, at: int) -> None:
        self._cluster.ask_controller(self._life(at))

    def _hear(self, at: int) -> None:
        life = self._life(at)
        self._cluster.publish(life, life.seen + 1)

    def _beat(self, at: int) -> None:
        self._cluster.beat(self._life(at))

    def _produce(self, at: int) -> None:
        number = len(self._cluster.sent) + 1
        self._cluster.sent[number] = (-1, -1)
        self._clients.serve_produce(Produced(self._life(at), self._producer, -1, number, -1))

    def _fence(self, at: int) -> None:
        self._fencing_count += 1
        self._cluster.fence_these(self._cluster.machines[at].id)

    def _crash(self, at: int) -> None:
        self._crash_count += 1
        self._cluster.end_life(self._cluster.machines[at], is_power_cut=False)

    def _start(self, at: int) -> None:
        self._cluster.start_anew(self._cluster.machines[at])


def _packet_key(packet: Packet) -> Hashable:
    if isinstance(packet, FetchAsked):
        asked = [one.fetch_offset for topic in packet.request.topics for one in topic.partitions]
        return ("fetch", packet.asker.epoch, packet.leader.epoch, tuple(asked))
    if isinstance(packet, FetchTold):
        told = [
            (one.error_code, one.high_watermark, bytes(one.records or b""))
            for topic in packet.response.responses
            for one in topic.partitions
            if isinstance(one.records, bytes | memoryview)
        ]
        return ("fetched", packet.asked.asker.epoch, packet.response.error_code, tuple(told))
    if isinstance(packet, AlterAsked):
        asks = [(one.isr, one.partition_epoch) for one in packet.changes.values()]
        return ("alter", packet.asker.epoch, tuple(asks))
    if isinstance(packet, AlterTold):
        return ("altered", packet.asked.asker.epoch, packet.answer.SerializeToString())
    return "told"
