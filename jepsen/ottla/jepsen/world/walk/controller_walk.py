"""The walk on the controller's decisions: brokers live, fall silent, crash, drain and come back.

Three brokers, three partitions, against an obvious model: which process runs, and what lies in its
log.  A decision may be cut short after any record, as by a controller that dies between two
appends; the next one starts with full sessions.  What holds is judged after every single record.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.controller.decision import Decision, R, decided
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.invariants.controller import ControllerJudge
from ottla.jepsen.world.invariants.replication import require
from ottla.jepsen.world.rare import Rare
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.controller_history import ControllerHistory
from ottla.metadata import fold
from ottla.metadata.image import EMPTY, PartitionState, RecoveryState
from ottla.metadata.records import feature_level_record
from ottla.metadata.snapshot import records_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId, Offset
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest

BROKERS = (NodeId(1), NodeId(2), NodeId(3))
PARTITIONS = (0, 1, 2)
RECORDS_LEFT_MAX = 6
SETTLE_ROUND_COUNT = 3


class WatchedController(ControllerHistory):
    """A controller that is watched after every record, and may die between two of them."""

    watch: Callable[[], None] = staticmethod(lambda: None)

    def take(self, decision: Decision[R]) -> R:
        """Commit a decision record by record."""
        left, self.records_left = self.records_left, None
        if decision.is_atomic or left is None:
            left = len(decision.records)
        if decision.is_atomic and decision.records:
            self._append(decision.records)
        else:
            for record in decision.records[:left]:
                self._append((record,))
                self.watch()
        self.watch()
        if left < len(decision.records):
            self.fail_over()
            raise RefusedError(ErrorCode.NOT_CONTROLLER)
        return decision.reply


@dataclass(slots=True)
class Process:
    """A broker's process, and its disk."""

    logs: dict[int, list[int]] = field(default_factory=lambda: {one: [] for one in PARTITIONS})
    incarnation: int = 1
    previous_epoch: int = -1
    is_running: bool = True
    is_hung: bool = False
    has_lost: bool = False
    """Its disk lacks what it had, and the controller could not know yet."""
    is_draining: bool = False
    is_drained: bool = False

    @property
    def is_awake(self) -> bool:
        """Whether it runs and does not stand still."""
        return self.is_running and not self.is_hung


_CLUSTERS: dict[bool, WatchedController] = {}


def _cluster(*, has_elr: bool) -> ControllerHistory:
    """Return a fresh cluster; the first one is built, the others are forks of it."""
    found = _CLUSTERS.get(has_elr)
    if found is None:
        found = _CLUSTERS[has_elr] = WatchedController(min_insync_replicas=2)
        if not has_elr:
            off = feature_level_record("eligible.leader.replicas.version", 0)
            found.take(decided(found.image, (off,), None))
        found.start(*BROKERS)
        assignments = [
            CreatableReplicaAssignment(
                partition_index=index, broker_ids=[*BROKERS[index:], *BROKERS[:index]]
            )
            for index in PARTITIONS
        ]
        topic = CreatableTopic(
            name="a", num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        found.forward(CreateTopicsRequest(topics=[topic]))
    return found.fork()


class ControllerWalk:
    """The engine."""

    name = "walk"
    subject = "controller"
    budget = 100
    required = (
        "a decision is cut short",
        "a broker that still lives is refused a second process",
        "a leader is elected from the ELR",
        "the last known leader is elected",
        "nobody leads",
        "a broker drains while another one is down",
        "a broker stops cleanly",
        "a session ends unnoticed for a while",
        "a broker that has not seen its registration stays fenced",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Walk one schedule of at most `budget` deeds."""
        lives = Lives(chance)
        violation = violation_in(lambda: lives.go(budget))
        lives.figures["controller failovers"] = lives.controller.failover_count
        lives.figures["metadata records"] = len(lives.controller.log)
        return outcome_of(self, chance, lives, violation)


class Lives:
    """A cluster of three brokers, and what of it is real."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = Rare()
        self.figures = {"crashes": 0, "power cuts": 0, "elections": 0, "acknowledged": 0}
        self.has_elr = chance.below(4) < 3
        controller = _cluster(has_elr=self.has_elr)
        assert isinstance(controller, WatchedController)
        self.controller = controller
        self.processes = {broker: Process() for broker in BROKERS}
        self.min_isr = 2
        self.produced = 0
        self.leaving: set[NodeId] = set()
        """Who registers just now (if it crashed, it is eligible no longer), or is given up."""
        self.judge = ControllerJudge(
            controller.image, PARTITIONS, controller.config.session_timeout_ms, has_elr=self.has_elr
        )
        for broker in BROKERS:
            self.judge.on_heard(broker, controller.now_ms)
        self.before = {index: self.state(index) for index in PARTITIONS}
        controller.watch = self.watch
        self._deeds = self._draw_deeds()

    def state(self, index: int) -> PartitionState:
        """Return a partition as the controller has it."""
        return self.controller.state("a", index)

    def go(self, budget: int) -> None:
        """Do deeds until the budget or the replay ends; then all must heal."""
        for deed in actions_taken(self.chance, self._deeds, budget):
            broker = BROKERS[self.chance.below(len(BROKERS))]
            try:
                deed(broker, self.processes[broker])
            except RefusedError as error:
                self.trace.add("refused", error.code)
            self._check()
        self.check_that_it_heals()

    def _draw_deeds(self) -> list[Callable[[NodeId, Process], None]]:
        rows: tuple[tuple[Callable[[NodeId, Process], None], int, bool], ...] = (
            (self._produce, 10, True),
            (self._settle, 6, True),
            (self._start, 8, True),
            (self._recover, 3, True),
            (self._wait, 4, True),
            (self._beat_once, 2, True),
            (self._beat_blindly, 2, False),
            (self._join, 2, True),
            (self._lag, 2, False),
            (self._doze, 2, False),
            (self._fence, 2, False),
            (self._kill, 2, False),
            (self._lose_power, 2, False),
            (self._hang, 2, False),
            (self._stop, 4, False),
            (self._drain, 2, False),
            (self._undrain, 2, False),
            (self._elect, 1, False),
            (self._unregister, 1, False),
            (self._fail_over, 1, False),
            (self._tear, 2, False),
            (self._set_min_isr, 1, False),
        )
        return drawn_actions(self.chance, rows)

    # --- the controller -------------------------------------------------------------------------

    def _tear(self, broker: NodeId, process: Process) -> None:
        self.controller.records_left = self.chance.below(RECORDS_LEFT_MAX)

    def _fail_over(self, broker: NodeId, process: Process) -> None:
        self.controller.fail_over()

    def _elect(self, broker: NodeId, process: Process) -> None:
        self.controller.forward(ElectLeadersRequest(election_type=0))

    def _unregister(self, broker: NodeId, process: Process) -> None:
        if not process.is_running and broker in self.controller.image.brokers:
            self.leaving = {broker}  # whoever orders this gives up what it alone may have
            try:
                self.controller.forward(UnregisterBrokerRequest(broker_id=broker))
            finally:
                self.leaving = set()

    def _set_min_isr(self, broker: NodeId, process: Process) -> None:
        value = 1 + self.chance.below(3)
        config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=2, resource_name="a", configs=[config])
        self.controller.forward(IncrementalAlterConfigsRequest(resources=[resource]))
        self.min_isr = value

    # --- time -----------------------------------------------------------------------------------

    def _doze(self, broker: NodeId, process: Process) -> None:
        """Sessions end, and the controller is slow to see it."""
        self.rare.sometimes("a session ends unnoticed for a while")
        self.controller.now_ms += self.controller.config.session_timeout_ms

    def _wait(self, broker: NodeId, process: Process) -> None:
        self.wait()

    def wait(self) -> None:
        """Let a session's time go by; who runs is heard of."""
        controller = self.controller
        controller.now_ms += controller.config.session_timeout_ms
        for broker, process in self.processes.items():
            known = controller.image.brokers.get(broker)
            if process.is_awake and known is not None:
                controller.sessions.touch(broker, known.epoch, Offset(-1), controller.now_ms)
                self.judge.on_heard(broker, controller.now_ms)
        self._fence_expired()

    def _fence_expired(self) -> None:
        before = self.controller.image
        failover_count = self.controller.failover_count
        fenced = self.controller.fence_expired()
        self.judge.check_fenced(
            before, fenced, self.controller.now_ms, is_new=self._is_new(failover_count)
        )

    def _is_new(self, failover_count: int) -> bool:
        return self.controller.failover_count != failover_count

    # --- processes ------------------------------------------------------------------------------

    def _hang(self, broker: NodeId, process: Process) -> None:
        process.is_hung = process.is_running

    def _kill(self, broker: NodeId, process: Process) -> None:
        if process.is_running:
            self.figures["crashes"] += 1
            self._end(process)

    def _end(self, process: Process) -> None:
        process.is_running = False
        process.previous_epoch = -1

    def _lose_power(self, broker: NodeId, process: Process) -> None:
        if not process.is_running:
            return
        self.figures["power cuts"] += 1
        self._end(process)
        if self.has_elr:
            process.has_lost = True
            kept = self.chance.below(6)
            for log in process.logs.values():
                del log[kept:]

    def _drain(self, broker: NodeId, process: Process) -> None:
        if process.is_running:
            process.is_draining = True
            if not all(one.is_running for one in self.processes.values()):
                self.rare.sometimes("a broker drains while another one is down")

    def _undrain(self, broker: NodeId, process: Process) -> None:
        process.is_draining = process.is_drained = False

    def _is_heard(self, broker: NodeId, process: Process) -> bool:
        process.is_hung = process.is_hung and not process.is_running
        return process.is_running and broker in self.controller.image.brokers

    def _beat_once(self, broker: NodeId, process: Process) -> None:
        if self._is_heard(broker, process):
            self.beat(broker, process)

    def _stop(self, broker: NodeId, process: Process) -> None:
        if self._is_heard(broker, process):
            self.beat(broker, process, stops=True)

    def _fence(self, broker: NodeId, process: Process) -> None:
        if self._is_heard(broker, process):
            answer = self.controller.heartbeat(broker, want_fence=True)
            self._note_heard(broker, is_goodbye=answer.should_shut_down)

    def _beat_blindly(self, broker: NodeId, process: Process) -> None:
        """Be heard before it has seen its own registration."""
        if not self._is_heard(broker, process):
            return
        known = self.controller.image.brokers[broker]
        answer = self.controller.heartbeat(broker, metadata_offset=known.epoch - 1)
        self._note_heard(broker, is_goodbye=answer.should_shut_down)
        if known.is_fenced:
            self.rare.sometimes("a broker that has not seen its registration stays fenced")
            require(
                self.controller.image.brokers[broker].is_fenced,
                "UnfencedHasSeenItself",
                f"{broker} of epoch {known.epoch}",
            )

    def _note_heard(self, broker: NodeId, *, is_goodbye: bool) -> None:
        if is_goodbye:
            self.judge.on_goodbye(broker)
        else:
            self.judge.on_heard(broker, self.controller.now_ms)

    def beat(self, broker: NodeId, process: Process, *, stops: bool = False) -> None:
        """Send a heartbeat, and do as the answer says."""
        wants_out = stops or (process.is_draining and not process.is_drained)
        epoch = self.controller.image.brokers[broker].epoch
        answer = self.controller.heartbeat(
            broker, want_shut_down=wants_out, want_fence=process.is_drained and not stops
        )
        self._note_heard(broker, is_goodbye=answer.should_shut_down)
        if stops and answer.should_shut_down:
            process.is_running, process.previous_epoch = False, epoch
            self.rare.sometimes("a broker stops cleanly")
        elif wants_out and answer.should_shut_down:
            process.is_drained = True

    def _start(self, broker: NodeId, process: Process) -> None:
        if not process.is_running:
            self.start(broker, process)

    def start(self, broker: NodeId, process: Process) -> None:
        """Register a new process."""
        process.incarnation += 1
        self.leaving = {broker}
        before = self.controller.image
        failover_count = self.controller.failover_count
        try:
            epoch = self.controller.register(
                broker, incarnation=process.incarnation, previous_epoch=process.previous_epoch
            )
        except RefusedError as error:
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self.rare.sometimes("a broker that still lives is refused a second process")
            raise
        finally:
            self.leaving = set()
        if not self._is_new(failover_count):
            self.judge.check_registered(before, broker, epoch, self.controller.now_ms)
        self.judge.on_heard(broker, self.controller.now_ms)
        process.is_running, process.is_hung, process.has_lost = True, False, False
        process.is_draining = process.is_drained = False

    # --- what is settled ------------------------------------------------------------------------

    def _settle(self, broker: NodeId, process: Process) -> None:
        self.settle()

    def settle(self) -> None:
        """Let all who run be heard, and catch up with whom they follow."""
        for broker, process in self.processes.items():
            if process.is_awake and broker in self.controller.image.brokers:
                self.beat(broker, process)
        for broker, process in self.processes.items():
            if process.is_awake:
                self.change_isr(broker, joins=True)

    def _recover(self, broker: NodeId, process: Process) -> None:
        self.recover()

    def recover(self) -> None:
        """Let all processes run and be heard."""
        for broker, process in self.processes.items():
            process.is_hung = process.is_draining = process.is_drained = False
            if not process.is_running or broker not in self.controller.image.brokers:
                self.wait()
                self.start(broker, process)
        self.wait()
        for _ in range(SETTLE_ROUND_COUNT):
            self.settle()

    # --- records --------------------------------------------------------------------------------

    def _produce(self, broker: NodeId, process: Process) -> None:
        """Let a leader replicate one more record to whoever is in sync, and acknowledge it."""
        index = self.chance.below(len(PARTITIONS))
        state = self.state(index)
        if state.leader == NO_NODE or not self.processes[state.leader].is_awake:
            return
        self.produced += 1
        log = self.processes[state.leader].logs[index]
        log.append(self.produced)
        followers = [self.processes[one] for one in state.isr]
        for follower in followers:
            if follower.is_awake:
                follower.logs[index] = list(log)
        if len(state.isr) >= self.min_isr and all(one.is_awake for one in followers):
            self.figures["acknowledged"] += 1
            self.judge.acknowledged[index].update(log)

    def _join(self, broker: NodeId, process: Process) -> None:
        self.change_isr(broker, joins=True)

    def _lag(self, broker: NodeId, process: Process) -> None:
        self.change_isr(broker, joins=False)

    def change_isr(self, broker: NodeId, *, joins: bool) -> None:
        """Have every leader take a broker into the ISR, caught up, or drop it from there."""
        for index in PARTITIONS:
            state = self.state(index)
            if state.leader in (NO_NODE, broker) or not self.processes[state.leader].is_awake:
                continue
            isr = [one for one in state.isr if one != broker]
            if joins:
                if not self.processes[broker].is_awake:
                    continue
                if broker not in self.controller.image.brokers:
                    continue
                log = self.processes[state.leader].logs[index]
                self.processes[broker].logs[index] = list(log)
                isr.append(broker)
            self.controller.alter_isr("a", index, *isr)

    # --- judging --------------------------------------------------------------------------------

    def watch(self) -> None:
        """Judge what holds after every single record."""
        before = self.before
        now = {index: self.state(index) for index in PARTITIONS}
        self.before = now
        for index, state in now.items():
            old = before[index]
            if old is state:
                continue
            self.trace.add(index, state.leader, state.leader_epoch, *state.isr, -1, *state.elr)
            self.judge.check_state(self.controller.image, index, old, state)
            if state.leader == NO_NODE:
                self.rare.sometimes("nobody leads")
            if state.leader == NO_NODE or state.leader_epoch == old.leader_epoch:
                continue
            self.figures["elections"] += 1
            if state.leader in old.elr:
                self.rare.sometimes("a leader is elected from the ELR")
            if state.recovery_state is RecoveryState.RECOVERING:
                self.rare.sometimes("the last known leader is elected")
                self.judge.take_loss(
                    index, old, self.processes[state.leader].logs[index], state, self.leaving
                )
        self.judge.check_brokers(self.controller.image)
        if self.controller.failover_count != self.judge.failover_count:
            self.judge.failover_count = self.controller.failover_count
            self.rare.sometimes("a decision is cut short")
            self.judge.on_failover(self.controller.image, self.controller.now_ms)

    def _check(self) -> None:
        for index in PARTITIONS:
            state = self.state(index)
            holders = {
                broker: process.logs[index]
                for broker, process in self.processes.items()
                if not process.has_lost
            }
            self.judge.check_partition(
                self.controller.image, index, state, holders, min_isr=self.min_isr
            )

    def check_that_it_heals(self) -> None:
        """With all processes up and left alone everything is led, and a snapshot tells it all."""
        self.controller.records_left = None
        self.recover()
        self._check()
        for index in PARTITIONS:
            state = self.state(index)
            require(state.leader != NO_NODE, "EverythingHeals", f"{state}")
        rebuilt = fold.apply_all(EMPTY, records_of(self.controller.image))
        require(rebuilt == self.controller.image, "SnapshotTellsAll", "a rebuilt image differs")
