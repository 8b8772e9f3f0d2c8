"""Whatever brokers do and suffer, and whenever controllers die, nothing acknowledged is lost.

Random lives of a cluster of three against an obvious model: which process runs, and what lies in
its log.  A decision may be cut short after any record, as by a controller that dies between two
appends; the next one starts with full sessions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.controller.decision import Decision, R
from ottla.controller.elections import elect_where_nobody_leads
from ottla.controller.rehearsal import Rehearsal
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
DEEDS = [
    "nothing",  # what hypothesis makes of the deeds that a failure does not need
    *["produce"] * 5,
    *["settle"] * 4,
    *["start"] * 4,
    "recover",
    "recover",
    "wait",
    "wait",
    "beat",
    "join",
    "doze",
    "fence",
    "lag",
    "kill",
    "lose power",
    "hang",
    "stop",
    "stop",
    "drain",
    "undrain",
    "elect",
    "unregister",
    "fail over",
    "tear",
    "min isr",
]


class TornRehearsal(Rehearsal):
    """A controller that may die between two records of a decision that is not atomic."""

    records_left: int | None = None
    watch: Callable[[], None] = staticmethod(lambda: None)

    def take(self, decision: Decision[R]) -> R:
        left, self.records_left = self.records_left, None
        if decision.is_atomic or left is None:
            left = len(decision.records)
        for record in decision.records[:left]:
            super().take(Decision((record,), None))
            if not decision.is_atomic:
                self.watch()
        self.watch()
        if left < len(decision.records):
            self.fail_over()
            raise RefusedError(ErrorCode.NOT_CONTROLLER)
        return decision.reply

    def fail_over(self) -> None:
        self.sessions.reset(self.image, self.now_ms)
        self.take(Decision(elect_where_nobody_leads(self.image, self.config), None))


@dataclass
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
        return self.is_running and not self.is_hung


class Life:
    """A cluster of three brokers, and what of it is real."""

    def __init__(self, *, has_elr: bool) -> None:
        self.cluster = TornRehearsal(min_insync_replicas=2)
        self.has_elr = has_elr
        if not has_elr:
            off = feature_level_record("eligible.leader.replicas.version", 0)
            self.cluster.take(Decision((off,), None))
        self.cluster.start(*BROKERS)
        assignments = [
            CreatableReplicaAssignment(
                partition_index=index, broker_ids=[*BROKERS[index:], *BROKERS[:index]]
            )
            for index in PARTITIONS
        ]
        topic = CreatableTopic(
            name="a", num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        self.cluster.forward(CreateTopicsRequest(topics=[topic]))
        self.processes = {broker: Process() for broker in BROKERS}
        self.acknowledged: dict[int, set[int]] = {one: set() for one in PARTITIONS}
        self.min_isr = 2
        self.produced = 0
        self.starting: set[NodeId] = set()
        """Who registers just now: if it crashed, it is eligible no more."""
        self.before = dict(self.states())
        self.cluster.watch = self.watch

    def do(self, deed: str, broker: NodeId, number: int) -> None:
        process = self.processes[broker]
        if deed == "tear":
            self.cluster.records_left = number
        elif deed == "fail over":
            self.cluster.fail_over()
        elif deed == "wait":
            self.wait()
        elif deed == "settle":
            self.settle()
        elif deed == "recover":
            self.recover()
        elif deed == "doze":
            # Sessions end, and the controller is slow to see it.
            self.cluster.now_ms += self.cluster.config.session_timeout_ms
        elif deed == "produce":
            self.produce(number % len(PARTITIONS))
        elif deed in ("join", "lag"):
            self.change_isr(broker, joins=deed == "join")
        elif deed == "elect":
            self.cluster.forward(ElectLeadersRequest(election_type=0))
        elif deed == "min isr":
            self.set_min_isr(1 + number % 3)
        elif process.is_running:
            self.do_running(deed, broker, process, number)
        elif deed == "start":
            self.start(broker, process)
        elif deed == "unregister" and broker in self.cluster.image.brokers:
            self.cluster.forward(UnregisterBrokerRequest(broker_id=broker))

    def do_running(self, deed: str, broker: NodeId, process: Process, number: int) -> None:
        if deed == "hang":
            process.is_hung = True
        elif deed in ("kill", "lose power"):
            process.is_running = False
            process.previous_epoch = -1
            if deed == "lose power" and self.has_elr:
                process.has_lost = True
                for log in process.logs.values():
                    del log[number:]
        elif deed == "drain":
            process.is_draining = True
        elif deed == "undrain":
            process.is_draining = process.is_drained = False
        elif deed in ("beat", "fence", "stop") and broker in self.cluster.image.brokers:
            process.is_hung = False
            if deed == "fence":
                self.cluster.heartbeat(broker, want_fence=True)
            else:
                self.beat(broker, process, stops=deed == "stop")

    def beat(self, broker: NodeId, process: Process, *, stops: bool = False) -> None:
        wants_out = stops or (process.is_draining and not process.is_drained)
        epoch = self.cluster.image.brokers[broker].epoch
        answer = self.cluster.heartbeat(
            broker, want_shut_down=wants_out, want_fence=process.is_drained and not stops
        )
        if stops and answer.should_shut_down:
            process.is_running, process.previous_epoch = False, epoch
        elif wants_out and answer.should_shut_down:
            process.is_drained = True

    def start(self, broker: NodeId, process: Process) -> None:
        process.incarnation += 1
        self.starting = {broker}
        try:
            self.cluster.register(
                broker, incarnation=process.incarnation, previous_epoch=process.previous_epoch
            )
        finally:
            self.starting = set()
        process.is_running, process.is_hung, process.has_lost = True, False, False
        process.is_draining = process.is_drained = False

    def wait(self) -> None:
        """Let a session's time go by."""
        self.cluster.now_ms += self.cluster.config.session_timeout_ms
        for broker, process in self.processes.items():
            known = self.cluster.image.brokers.get(broker)
            if process.is_awake and known is not None:
                now_ms = self.cluster.now_ms
                self.cluster.sessions.touch(broker, known.epoch, Offset(-1), now_ms)
        self.cluster.fence_expired()

    def settle(self) -> None:
        """Let all who run be heard, and catch up with whom they follow."""
        for broker, process in self.processes.items():
            if process.is_awake and broker in self.cluster.image.brokers:
                self.beat(broker, process)
        for broker, process in self.processes.items():
            if process.is_awake:
                self.change_isr(broker, joins=True)

    def recover(self) -> None:
        """Let all processes run and be heard."""
        for broker, process in self.processes.items():
            process.is_hung = process.is_draining = process.is_drained = False
            if not process.is_running or broker not in self.cluster.image.brokers:
                self.wait()
                self.start(broker, process)
        self.wait()
        for _ in range(3):
            self.settle()

    def produce(self, partition: int) -> None:
        """Let the leader replicate one more record to whoever is in sync, and acknowledge it."""
        state = self.cluster.state("a", partition)
        if state.leader == NO_NODE or not self.processes[state.leader].is_awake:
            return
        self.produced += 1
        log = self.processes[state.leader].logs[partition]
        log.append(self.produced)
        followers = [self.processes[one] for one in state.isr]
        for follower in followers:
            if follower.is_awake:
                follower.logs[partition] = list(log)
        if len(state.isr) >= self.min_isr and all(one.is_awake for one in followers):
            self.acknowledged[partition].update(log)

    def change_isr(self, broker: NodeId, *, joins: bool) -> None:
        for partition in PARTITIONS:
            state = self.cluster.state("a", partition)
            if state.leader in (NO_NODE, broker) or not self.processes[state.leader].is_awake:
                continue
            isr = [one for one in state.isr if one != broker]
            if joins:
                if not self.processes[broker].is_awake:
                    continue
                log = self.processes[state.leader].logs[partition]
                self.processes[broker].logs[partition] = list(log)
                isr.append(broker)
            self.cluster.alter_isr("a", partition, *isr)

    def set_min_isr(self, value: int) -> None:
        config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=2, resource_name="a", configs=[config])
        self.cluster.forward(IncrementalAlterConfigsRequest(resources=[resource]))
        self.min_isr = value

    # --- what must hold --------------------------------------------------------------------

    def states(self) -> Iterator[tuple[int, PartitionState]]:
        for partition in PARTITIONS:
            yield partition, self.cluster.state("a", partition)

    def watch(self) -> None:
        """See what holds after every single record."""
        before, self.before = self.before, dict(self.states())
        for partition, state in self.states():
            if state.leader == NO_NODE:
                continue
            # LeadersAreActive, and with them all who are in sync.
            assert all(self.cluster.image.is_active(one) for one in (state.leader, *state.isr))
            if state.leader_epoch == before[partition].leader_epoch:
                continue
            was_clean = before[partition].elr and not set(before[partition].elr) <= self.starting
            if state.recovery_state is RecoveryState.RECOVERING and not was_clean:
                # Said openly: this leader may lack records.  Nobody else could lead.
                assert state.leader in (*before[partition].last_known_elr, *before[partition].elr)
                self.acknowledged[partition] &= set(self.processes[state.leader].logs[partition])

    def check(self) -> None:
        for partition, state in self.states():
            acknowledged = self.acknowledged[partition]
            for holder in {*state.isr, *state.elr}:
                if not self.processes[holder].has_lost:
                    assert acknowledged <= set(self.processes[holder].logs[partition])
            assert not state.elr or len(state.isr) < self.min_isr
            if state.leader == NO_NODE:
                # Nobody in sync or eligible lives: else the partition would be led.
                live = filter(self.cluster.image.is_active, {*state.isr, *state.elr})
                assert not list(live)

    def check_that_it_heals(self) -> None:
        """With all processes up and left alone everything is led."""
        self.recover()
        self.check()
        for _, state in self.states():
            assert state.leader != NO_NODE


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(DEEDS), st.sampled_from(BROKERS), st.integers(0, 5)),
        min_size=60,
        max_size=100,
    ),
    st.booleans(),
)
def test_nothing_acknowledged_is_lost_and_whoever_can_lead_does(
    deeds: list[tuple[str, NodeId, int]], has_elr: bool
) -> None:
    life = Life(has_elr=has_elr)
    for deed, broker, number in deeds:
        try:
            life.do(deed, broker, number)
        except RefusedError:
            continue
        finally:
            life.check()
    life.cluster.records_left = None
    life.check_that_it_heals()
    rebuilt = fold.apply_all(EMPTY, records_of(life.cluster.image))
    assert rebuilt == life.cluster.image
