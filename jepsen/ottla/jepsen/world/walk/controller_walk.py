"""Random walk on a simulated controller: brokers run, fall silent, crash, shut down and restart.

The controller is the shipped one, in a simulated process (`controller_host`). Three brokers and
three partitions are represented by a simple model: the running processes, and the content of their
logs. The controller may lose power after any step of the event loop, and its tasks may run late.
Invariants are checked after every committed record.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import trio

from ottla.jepsen.in_memory_controller import registration
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.invariants.controller import ControllerJudge
from ottla.jepsen.world.invariants.replication import require
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import violation_of
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.controller_host import (
    ControllerHost,
    open_controller_host,
    single_appends,
)
from ottla.jepsen.world.whole.cluster import quiet_nodes
from ottla.jepsen.world.whole.loop import Loop, run_in_virtual_time
from ottla.metadata import fold
from ottla.metadata.image import EMPTY, MetadataImage, PartitionState, RecoveryState
from ottla.metadata.snapshot import records_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_methods import ALTER_PARTITION, HEARTBEAT, REGISTER, UNREGISTER
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
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

BROKERS = (NodeId(1), NodeId(2), NodeId(3))
PARTITIONS = (0, 1, 2)
STRIKE_STEPS_MAX = 30
"""Maximum number of event-loop steps from the start of a call to the controller to its power cut. A
call with six records needs about this number of steps."""

SETTLE_ROUND_COUNT = 3
SESSION_MS = 9_000
MIN_ISR = 2
TOPIC = (2, "a")
"""Key under which a metadata image stores the test topic's settings."""

SLACK_MS = 50
"""Tolerance in ms of virtual time for checks of broker sessions, because a heartbeat is recorded
some ms late."""

SETTINGS = {
    "metadata.max.idle.interval.ms": "0",
    "broker.session.timeout.ms": str(SESSION_MS),
    "min.insync.replicas": str(MIN_ISR),
    "leader.imbalance.check.interval.seconds": "86400",
    "unclean.leader.election.interval.ms": "300000",
}


Deed = Callable[[NodeId, "Process"], Awaitable[None]]


@dataclass(slots=True)
class Process:
    """The process of a simulated broker, and the content of its disk."""

    logs: dict[int, list[int]] = field(default_factory=lambda: {one: [] for one in PARTITIONS})
    incarnation: int = 1
    previous_epoch: int = -1
    is_running: bool = True
    is_hung: bool = False
    has_lost: bool = False
    """True if the broker's disk has lost records and the controller does not know it yet."""
    is_draining: bool = False
    is_drained: bool = False

    @property
    def is_awake(self) -> bool:
        """True if the broker's process runs and is not paused."""
        return self.is_running and not self.is_hung


class ControllerWalk:
    """Search engine that tests the shipped controller by random walks."""

    name = "walk"
    subject = "controller"
    budget = 100
    required = (
        "the controller loses power within a call",
        "a broker that still lives is refused a second process",
        "a leader is elected from the ELR",
        "the last known leader is elected",
        "a partition has no leader",
        "a broker drains while another one is down",
        "a broker stops cleanly",
        "a session ends unnoticed for a while",
        "a broker that has not seen its registration stays fenced",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Do one random walk of at most `budget` actions, in a new simulation. Returns the
        outcome."""

        async def main(loop: Loop) -> RunOutcome:
            async with _open_cluster(loop, chance) as host:
                return await self._play(host, chance, budget)

        with quiet_nodes(), single_appends():
            return run_in_virtual_time(main, seed=chance.stream("loop").below(1 << 62))

    async def _play(self, host: ControllerHost, chance: Chance, budget: int) -> RunOutcome:
        lives = BrokerProcesses(chance, host)
        violation = None
        try:
            await lives.go(budget)
        except Exception as error:
            violation = violation_of(error)
        lives.figures["controller failovers"] = host.failover_count
        lives.figures["metadata records"] = int(host.end_offset)
        return outcome_of(self, chance, lives, violation, sim_ms=host.now_ms)


class BrokerProcesses:
    """A cluster of three simulated brokers, with the true state of their processes and logs."""

    def __init__(self, chance: Chance, host: ControllerHost) -> None:
        self.chance = chance
        self.host = host
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {"crashes": 0, "power cuts": 0, "elections": 0, "acknowledged": 0}
        self.has_elr = chance.below(4) < 3
        self.is_late = False
        """True if the next action of the random walk runs before the controller's delayed tasks."""
        self.processes = {broker: Process() for broker in BROKERS}
        self.min_isr = MIN_ISR
        self.produced = 0
        self.leaving: set[NodeId] = set()
        """Broker that the current call to the controller registers or removes, as a set of at most
        one element. A broker that is registered after a crash is not eligible to lead."""
        self.moving: NodeId | None = None
        """Broker that the current call to the controller fences, shuts down, registers or removes.
        None if the call changes no broker's state."""
        self.owed_from_ms = host.now_ms
        """Virtual time in ms from which the active controller can measure the silence of
        brokers."""
        self.judge = ControllerJudge(host.image, PARTITIONS, SESSION_MS, has_elr=self.has_elr)
        for broker in BROKERS:
            self.judge.on_heard(broker, 0)
        self.image = host.image
        self.before = {index: self.state(index) for index in PARTITIONS}
        host.on_image = self.watch
        host.on_failover = self._on_failover
        host.on_strike = lambda: self.rare.sometimes("the controller loses power within a call")
        self._deeds = self._draw_deeds()

    def state(self, index: int) -> PartitionState:
        """Return the state of a partition in the controller's committed metadata."""
        topic = self.host.image.topic("a")
        assert topic is not None
        return topic.partitions[index]

    async def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the cluster. A replayed run may end earlier.
        Then check that the cluster recovers."""
        if not self.has_elr:
            update = FeatureUpdateKey(
                feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=3
            )
            await self.host.forward(UpdateFeaturesRequest(feature_updates=[update]))
        for deed in actions_taken(self.chance, self._deeds, budget):
            broker = BROKERS[self.chance.below(len(BROKERS))]
            await self._do(deed(broker, self.processes[broker]))
        await self.check_that_it_heals()

    async def _do(self, deed: Awaitable[None]) -> None:
        """Do one action of the random walk. Then wait until the controller is idle again and check
        the invariants, unless the action leaves tasks of the controller delayed."""
        self.trace.add(self.host.now_ms)
        self.is_late = False
        try:
            await deed
        except RefusedError as error:
            self.trace.add("refused", error.code)
        if not self.is_late:
            await self.host.settle()
            self._check()

    def _draw_deeds(self) -> list[Deed]:
        rows: tuple[tuple[Deed, int, bool], ...] = (
            (self._produce, 10, True),
            (self._settle, 6, True),
            (self._start, 8, True),
            (self._recover, 3, True),
            (self._wait, 4, True),
            (self._send_heartbeat_once, 2, True),
            (self._send_heartbeat_blindly, 2, False),
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

    async def _tear(self, broker: NodeId, process: Process) -> None:
        self.host.strike_after_steps = 1 + self.chance.below(STRIKE_STEPS_MAX)

    async def _fail_over(self, broker: NodeId, process: Process) -> None:
        await self.host.fail_over(is_power_cut=self.chance.below(2) == 1)

    async def _elect(self, broker: NodeId, process: Process) -> None:
        await self.host.forward(ElectLeadersRequest(election_type=0))

    async def _unregister(self, broker: NodeId, process: Process) -> None:
        if not process.is_running and broker in self.host.image.brokers:
            # This request gives up records that only the broker may have.
            async with self._moves(broker, leaves=True):
                await self.host.call(UNREGISTER, pb.UnregisterRequest(broker_id=broker))

    async def _set_min_isr(self, broker: NodeId, process: Process) -> None:
        value = 1 + self.chance.below(3)
        config = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=2, resource_name="a", configs=[config])
        await self.host.forward(IncrementalAlterConfigsRequest(resources=[resource]))

    @asynccontextmanager
    async def _moves(self, broker: NodeId, *, leaves: bool = False) -> AsyncIterator[None]:
        """Record that a broker's state changes during the `with` block: its id is in `moving`, and
        with `leaves` also in `leaving`. At the end, wait until the controller is idle."""
        self.moving = broker
        self.leaving = {broker} if leaves else set()
        try:
            yield
        finally:
            await self.host.settle()
            self.moving, self.leaving = None, set()

    def _on_failover(self, image: MetadataImage) -> None:
        self.owed_from_ms = self.host.now_ms
        self.judge.on_failover(image, self.host.now_ms)

    # --- time -----------------------------------------------------------------------------------

    async def _doze(self, broker: NodeId, process: Process) -> None:
        """Wait for a session timeout while tasks of the controller are delayed, so that the
        controller does not notice expired sessions."""
        self.rare.sometimes("a session ends unnoticed for a while")
        await self.host.sleep_late(SESSION_MS / 1_000, self.chance)
        self.owed_from_ms = self.host.now_ms
        self.is_late = True

    async def _wait(self, broker: NodeId, process: Process) -> None:
        await self.wait()

    async def wait(self) -> None:
        """Advance the virtual time by a session timeout, while all running brokers send
        heartbeats."""
        for _ in range(2):
            await trio.sleep(SESSION_MS / 2_000)
            for broker, process in self.processes.items():
                if process.is_awake and broker in self.host.image.brokers:
                    is_fenced = self.host.image.brokers[broker].is_fenced
                    await self._heartbeat(broker, want_fence=is_fenced)

    # --- processes ------------------------------------------------------------------------------

    async def _hang(self, broker: NodeId, process: Process) -> None:
        process.is_hung = process.is_running

    async def _kill(self, broker: NodeId, process: Process) -> None:
        if process.is_running:
            self.figures["crashes"] += 1
            self._end(process)

    def _end(self, process: Process) -> None:
        process.is_running = False
        process.previous_epoch = -1

    async def _lose_power(self, broker: NodeId, process: Process) -> None:
        if not process.is_running:
            return
        self.figures["power cuts"] += 1
        self._end(process)
        if self.has_elr:
            process.has_lost = True
            kept = self.chance.below(6)
            for log in process.logs.values():
                del log[kept:]

    async def _drain(self, broker: NodeId, process: Process) -> None:
        if process.is_running:
            process.is_draining = True
            if not all(one.is_running for one in self.processes.values()):
                self.rare.sometimes("a broker drains while another one is down")

    async def _undrain(self, broker: NodeId, process: Process) -> None:
        process.is_draining = process.is_drained = False

    def _is_heard(self, broker: NodeId, process: Process) -> bool:
        process.is_hung = process.is_hung and not process.is_running
        return process.is_running and broker in self.host.image.brokers

    async def _send_heartbeat_once(self, broker: NodeId, process: Process) -> None:
        if self._is_heard(broker, process):
            await self.send_heartbeat(broker, process)

    async def _stop(self, broker: NodeId, process: Process) -> None:
        if self._is_heard(broker, process):
            await self.send_heartbeat(broker, process, stops=True)

    async def _fence(self, broker: NodeId, process: Process) -> None:
        if self._is_heard(broker, process):
            await self._heartbeat(broker, want_fence=True)

    async def _send_heartbeat_blindly(self, broker: NodeId, process: Process) -> None:
        """Send a heartbeat before the broker has seen its own registration."""
        if not self._is_heard(broker, process):
            return
        known = self.host.image.brokers[broker]
        await self._heartbeat(broker, metadata_offset=known.epoch - 1)
        if known.is_fenced:
            self.rare.sometimes("a broker that has not seen its registration stays fenced")
            require(
                self.host.image.brokers[broker].is_fenced,
                "UnfencedHasSeenItself",
                f"{broker} of epoch {known.epoch}",
            )

    async def _heartbeat(
        self,
        broker: NodeId,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        metadata_offset: int | None = None,
    ) -> bool:
        """Send a heartbeat of a broker. `want_fence` and `want_shut_down` are the flags of the
        request; `metadata_offset` defaults to the newest metadata offset. Returns whether the
        broker may shut down."""
        host = self.host
        asked_ms, failover_count = host.now_ms, host.failover_count
        request = pb.HeartbeatRequest(
            broker_id=broker,
            broker_epoch=host.image.brokers[broker].epoch,
            current_metadata_offset=(
                host.end_offset - 1 if metadata_offset is None else metadata_offset
            ),
            want_fence=want_fence,
            want_shut_down=want_shut_down,
        )
        if want_fence or want_shut_down:
            async with self._moves(broker):
                answer = await host.call(HEARTBEAT, request)
        else:
            answer = await host.call(HEARTBEAT, request)
        if answer.should_shut_down:
            self.judge.on_goodbye(broker)
        elif host.failover_count == failover_count:
            self.judge.on_heard(broker, asked_ms)
        return answer.should_shut_down

    async def send_heartbeat(
        self, broker: NodeId, process: Process, *, stops: bool = False
    ) -> None:
        """Send a heartbeat of a broker to the controller, and act on the response. If `stops` is
        True, the heartbeat requests a controlled shutdown."""
        wants_out = stops or (process.is_draining and not process.is_drained)
        epoch = self.host.image.brokers[broker].epoch
        may_shut_down = await self._heartbeat(
            broker, want_shut_down=wants_out, want_fence=process.is_drained and not stops
        )
        if stops and may_shut_down:
            process.is_running, process.previous_epoch = False, epoch
            self.rare.sometimes("a broker stops cleanly")
        elif wants_out and may_shut_down:
            process.is_drained = True

    async def _start(self, broker: NodeId, process: Process) -> None:
        if not process.is_running:
            await self.start(broker, process)

    async def start(self, broker: NodeId, process: Process) -> None:
        """Start a broker: register a new process with the controller."""
        process.incarnation += 1
        before = self.host.image
        asked_ms = self.host.now_ms
        failover_count = self.host.failover_count
        request = registration(
            broker, incarnation=process.incarnation, previous_epoch=process.previous_epoch
        )
        request.cluster_id = self.host.cluster_id
        try:
            async with self._moves(broker, leaves=True):
                answer = await self.host.call(REGISTER, request)
        except RefusedError as error:
            if error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self.rare.sometimes("a broker that still lives is refused a second process")
            raise
        if self.host.failover_count == failover_count:
            self.judge.check_registered(before, broker, answer.broker_epoch, asked_ms)
            self.judge.on_heard(broker, asked_ms)
        process.is_running, process.is_hung, process.has_lost = True, False, False
        process.is_draining = process.is_drained = False

    # --- catching up ----------------------------------------------------------------------------

    async def _settle(self, broker: NodeId, process: Process) -> None:
        await self.settle()

    async def settle(self) -> None:
        """Send a heartbeat of every running broker. Then bring all running brokers up to date with
        the leaders, and add them to the ISRs."""
        for broker, process in self.processes.items():
            if process.is_awake and broker in self.host.image.brokers:
                await self.send_heartbeat(broker, process)
        for broker, process in self.processes.items():
            if process.is_awake:
                await self.change_isr(broker, joins=True)

    async def _recover(self, broker: NodeId, process: Process) -> None:
        await self.recover()

    async def recover(self) -> None:
        """Resume all paused broker processes and start the missing ones. Then run several rounds of
        heartbeats and ISR changes."""
        for process in self.processes.values():
            process.is_hung = process.is_draining = process.is_drained = False
        away = [
            broker
            for broker, process in self.processes.items()
            if not process.is_running or broker not in self.host.image.brokers
        ]
        if away:
            await self.wait()
        for broker in away:
            await self.start(broker, self.processes[broker])
        await self.wait()
        for _ in range(SETTLE_ROUND_COUNT):
            await self.settle()

    # --- records --------------------------------------------------------------------------------

    async def _produce(self, broker: NodeId, process: Process) -> None:
        """Append one record to a random partition, and copy the log to all running in-sync
        replicas. The record is acknowledged if every in-sync replica has it and the ISR is large
        enough."""
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

    async def _join(self, broker: NodeId, process: Process) -> None:
        await self.change_isr(broker, joins=True)

    async def _lag(self, broker: NodeId, process: Process) -> None:
        await self.change_isr(broker, joins=False)

    async def change_isr(self, broker: NodeId, *, joins: bool) -> None:
        """Copy the log of every partition leader to a broker, and propose the broker for the ISR.
        If `joins` is False, propose ISRs without the broker instead."""
        proposals: dict[NodeId, list[pb.AlterPartitionProposal]] = {}
        for index in PARTITIONS:
            state = self.state(index)
            if state.leader in (NO_NODE, broker) or not self.processes[state.leader].is_awake:
                continue
            isr = [one for one in state.isr if one != broker]
            if joins:
                if not self.processes[broker].is_awake:
                    continue
                if broker not in self.host.image.brokers:
                    continue
                log = self.processes[state.leader].logs[index]
                self.processes[broker].logs[index] = list(log)
                isr.append(broker)
            if set(isr) != set(state.isr):
                proposals.setdefault(state.leader, []).append(self._proposal(index, state, isr))
        for leader, partitions in proposals.items():
            await self._propose(leader, partitions)

    def _proposal(
        self, index: int, state: PartitionState, isr: Sequence[NodeId]
    ) -> pb.AlterPartitionProposal:
        brokers = self.host.image.brokers
        return pb.AlterPartitionProposal(
            partition_id=index,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=[pb.BrokerState(broker_id=one, broker_epoch=brokers[one].epoch) for one in isr],
        )

    async def _propose(
        self, leader: NodeId, partitions: Sequence[pb.AlterPartitionProposal]
    ) -> None:
        topic = self.host.image.topic("a")
        assert topic is not None
        request = pb.AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.host.image.brokers[leader].epoch,
            topics=[pb.AlterPartitionTopic(topic_id=topic.id.bytes, partitions=partitions)],
        )
        await self.host.call(ALTER_PARTITION, request)

    # --- invariants -----------------------------------------------------------------------------

    def watch(self, image: MetadataImage) -> None:
        """Check the invariants that a metadata image must satisfy after every single record."""
        earlier, self.image = self.image, image
        before = self.before
        now = {index: self.state(index) for index in PARTITIONS}
        self.before = now
        for index, state in now.items():
            old = before[index]
            if old == state:
                continue
            self.trace.add(index, state.leader, state.leader_epoch, *state.isr, -1, *state.elr)
            self.judge.check_state(image, index, old, state)
            if state.leader == NO_NODE:
                self.rare.sometimes("a partition has no leader")
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
        self.judge.check_brokers(image)
        self._watch_sessions(earlier, image)
        settings = image.configs.get(TOPIC)
        value = None if settings is None else settings.get("min.insync.replicas")
        self.min_isr = MIN_ISR if value is None else int(value)

    def _watch_sessions(self, before: MetadataImage, image: MetadataImage) -> None:
        fenced = [
            broker.id
            for broker in before.brokers.values()
            if not (broker.is_fenced or broker.in_controlled_shutdown)
            and broker.id != self.moving
            and broker.id in image.brokers
            and image.brokers[broker.id].is_fenced
        ]
        self.judge.check_kept(fenced, self.host.now_ms + SLACK_MS)

    def _check(self) -> None:
        image = self.host.image
        self.judge.check_silent(image, self.owed_from_ms, self.host.now_ms - SLACK_MS)
        for index in PARTITIONS:
            state = self.state(index)
            holders = {
                broker: process.logs[index]
                for broker, process in self.processes.items()
                if not process.has_lost
            }
            self.judge.check_partition(image, index, state, holders, min_isr=self.min_isr)

    async def check_that_it_heals(self) -> None:
        """Check that every partition gets a leader after all faults end, and that a snapshot of the
        metadata is complete."""
        self.host.strike_after_steps = 0
        await self.host.settle()
        await self.recover()
        await self.host.settle()
        self._check()
        for index in PARTITIONS:
            state = self.state(index)
            require(state.leader != NO_NODE, "EverythingHeals", f"{state}")
        image = self.host.image
        rebuilt = fold.apply_all(EMPTY, records_of(image))
        require(
            replace(rebuilt, provenance=image.provenance) == image,
            "SnapshotTellsAll",
            "a rebuilt image differs",
        )


@asynccontextmanager
async def _open_cluster(loop: Loop, chance: Chance) -> AsyncIterator[ControllerHost]:
    """Start a controller, register three brokers, and create a topic of three partitions. Yields
    the controller's host."""
    async with open_controller_host(loop, chance, SETTINGS) as host:
        for broker in BROKERS:
            request = registration(broker)
            request.cluster_id = host.cluster_id
            epoch = (await host.call(REGISTER, request)).broker_epoch
            await host.call(
                HEARTBEAT,
                pb.HeartbeatRequest(
                    broker_id=broker, broker_epoch=epoch, current_metadata_offset=epoch
                ),
            )
        assignments = [
            CreatableReplicaAssignment(
                partition_index=index, broker_ids=[*BROKERS[index:], *BROKERS[:index]]
            )
            for index in PARTITIONS
        ]
        topic = CreatableTopic(
            name="a", num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        await host.forward(CreateTopicsRequest(topics=[topic]))
        await host.settle()
        yield host
