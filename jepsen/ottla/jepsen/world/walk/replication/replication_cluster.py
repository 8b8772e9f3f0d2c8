"""Several brokers and a controller with one topic, all running the real code, and the invariant
checks.

This module contains the state; a random walk or a search chooses the events. Each broker may apply
each change of the controller's metadata image at a different time, by real deltas.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.replicas.partition import Partition
from ottla.controller.settings_in_force import min_insync_replicas
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.invariants.replication import JudgedLog, ReplicationJudge, require
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.walk.controller_history import ControllerHistory
from ottla.jepsen.world.walk.replication.broker_life import BrokerLife, BrokerMachine
from ottla.jepsen.world.walk.replication.disk_store import DiskStore
from ottla.metadata.image import MetadataImage, PartitionState, RecoveryState
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

TOPIC = "t"


class ClusterShape(NamedTuple):
    """Parameters of a simulated cluster, which a run draws once. All runs with the same parameters
    start from copies of the same cluster."""

    broker_count: int
    partition_count: int
    min_isr: int
    is_flush_demanded: bool


_CLUSTERS: dict[ClusterShape, ControllerHistory] = {}


def _cluster(shape: ClusterShape) -> ControllerHistory:
    """Return a new cluster with these parameters. The first cluster of each shape is built, and
    later ones are copies of it."""
    found = _CLUSTERS.get(shape)
    if found is None:
        found = _CLUSTERS[shape] = ControllerHistory(min_insync_replicas=shape.min_isr)
        ids = list(range(1, shape.broker_count + 1))
        found.start(*ids)
        assignments = [
            CreatableReplicaAssignment(
                partition_index=index, broker_ids=(ids[index:] + ids[:index])[:3]
            )
            for index in range(shape.partition_count)
        ]
        configs = []
        if shape.is_flush_demanded:
            configs.append(CreatableTopicConfig(name="flush.messages", value="1"))
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assignments,
            configs=configs,
        )
        found.forward(CreateTopicsRequest(topics=[topic]))
    return found.fork()


class ReplicationCluster:
    """Simulated brokers and a controller of one cluster, with the invariant checks that observe
    them."""

    def __init__(self, chance: Chance, shape: ClusterShape) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {
            "crashes": 0,
            "power cuts": 0,
            "elections": 0,
            "ISR changes": 0,
            "commits": 0,
            "acknowledged": 0,
            "controller failovers": 0,
        }
        self.shape = shape
        self.now_ms = 100_000
        self.controller = _cluster(self.shape)
        self.controller.now_ms = self.now_ms
        self.rng = chance.stream("cores")
        topic = self.controller.image.topic(TOPIC)
        assert topic is not None
        self.topic_id = topic.id
        self.indexes = range(self.shape.partition_count)
        self.keys = [TopicIdPartition(topic.id, index) for index in self.indexes]
        self.sent: dict[int, tuple[int, int]] = {}
        self.judge = ReplicationJudge(
            self.shape.partition_count,
            min_isr=self.min_isr,
            is_flush_demanded=self.shape.is_flush_demanded,
            sent=self.sent,
        )
        self._stated_image: MetadataImage | None = None
        self._states: list[PartitionState] = []
        self._judged_count = len(self.controller.images)
        image = self.controller.image
        for index in self.indexes:
            state = self.state(index)
            self.judge.check_state(index, state, state, (image, image), None)
        self.machines = [
            BrokerMachine(
                NodeId(at + 1),
                DiskStore(chance.stream(f"disk {at + 1}")),
                topic=TOPIC,
                topic_id=self.topic_id,
            )
            for at in range(self.shape.broker_count)
        ]
        for machine in self.machines:
            self.begin_life(machine, self.controller.image.brokers[machine.id].epoch)

    # The clock of all brokers, which use only differences of times.
    def monotonic_ms(self) -> int:
        """Return the current virtual time in ms, which is the same for all nodes."""
        return self.now_ms

    wall_ms = monotonic_ms

    # --- state ----------------------------------------------------------------------------------

    def min_isr(self, image: MetadataImage) -> int:
        """Return the test topic's min.insync.replicas in a metadata image."""
        return min_insync_replicas(image, self.controller.config, TOPIC)

    def state(self, index: int) -> PartitionState:
        """Return the state of a partition in the controller's newest metadata."""
        image = self.controller.image
        if image is not self._stated_image:
            self._stated_image = image
            topic = image.topics[self.topic_id]
            self._states = [topic.partitions[one] for one in self.indexes]
        return self._states[index]

    def running(self) -> list[BrokerMachine]:
        """Return the machines whose broker process runs and is not paused."""
        return [one for one in self.machines if one.life is not None and not one.is_paused]

    def is_here(self, life: BrokerLife) -> bool:
        """Return whether a broker process is the current one of its machine and is not paused."""
        return life.machine.life is life and not life.machine.is_paused

    @property
    def is_one_behind(self) -> bool:
        """True if a machine has lost unflushed data and its replicas are not in sync again. No
        other fault is allowed in that case."""
        return any(machine.is_behind for machine in self.machines)

    @property
    def is_one_lossy(self) -> bool:
        """True if a machine's disk has lost acknowledged records. The copies on other disks may
        then be the last ones."""
        return any(machine.lost for machine in self.machines)

    def leaders(self) -> list[Partition]:
        """Return all partitions on running brokers whose broker considers itself the leader."""
        return [
            partition
            for machine in self.running()
            if machine.life is not None
            for partition in machine.life.partitions.values()
            if partition.is_leader
        ]

    # --- broker registrations -------------------------------------------------------------------

    def begin_life(self, machine: BrokerMachine, epoch: int, image_at: int | None = None) -> None:
        """Start a broker process on a machine. The process has applied all metadata images, or only
        the images up to the index `image_at`."""
        images = self.controller.images
        at = len(images) - 1 if image_at is None else image_at
        life = BrokerLife(machine, epoch=epoch, image=images[at], clock=self, rng=self.rng)
        life.seen = machine.seen = at
        machine.life = life
        machine.life_count += 1
        machine.is_paused = False
        machine.clean_epoch = -1
        machine.has_lost_tail = False

    def restart(self, machine: BrokerMachine) -> None:
        """Register a new broker process of a machine with the controller and start it."""
        controller = self.controller
        is_clean = machine.clean_epoch == controller.image.brokers[machine.id].epoch
        is_whole = is_clean and not machine.lost
        controller.sessions.forget(machine.id)
        try:
            epoch = controller.register(
                machine.id,
                incarnation=machine.life_count + 1,
                previous_epoch=machine.clean_epoch,
                lost=[self.keys[index] for index in sorted(machine.lost)],
            )
        except RefusedError:
            # Even after a refused registration the next process has a new incarnation id.
            machine.life_count += 1
            self._judge_states(None if is_whole else machine.id)
            return
        self._judge_states(None if is_whole else machine.id)
        machine.is_loss_named = True
        if is_clean:
            self.rare.sometimes("a broker starts cleanly")
        # A broker neither leads nor follows before it has seen its own registration.
        last = len(controller.images) - 1
        first = next(at for at in range(last, -1, -1) if controller.ends[at] <= epoch) + 1
        at = first + self.chance.below(last - first + 1)
        self.begin_life(machine, epoch, at)
        self.trace.add("start", machine.id, epoch)

    def send_heartbeat(self, life: BrokerLife) -> None:
        """Send a broker's heartbeat to the controller. If the broker has requested a shutdown and
        the response allows it, the broker shuts down."""
        controller, machine = self.controller, life.machine
        if controller.image.brokers[machine.id].epoch != life.epoch:
            return
        try:
            answer = controller.heartbeat(
                machine.id,
                metadata_offset=controller.ends[life.seen] - 1,
                want_shut_down=life.is_leaving,
            )
        except RefusedError:
            return
        if life.is_leaving and answer.should_shut_down:
            machine.store.stop_cleanly()
            machine.has_stopped_cleanly = True
            machine.life = None
            machine.clean_epoch = life.epoch
            self.trace.add("stopped", machine.id)

    def end_life(self, machine: BrokerMachine, *, is_power_cut: bool) -> bool:
        """End the broker process of a machine, and cut the machine's power if `is_power_cut`.
        Returns whether a log has become shorter."""
        machine.life = None
        machine.is_paused = False
        machine.clean_epoch = -1
        is_shorter = machine.store.end_process(self.chance, is_power_cut=is_power_cut)
        self.figures["power cuts" if is_power_cut else "crashes"] += 1
        self.trace.add("end", machine.id, int(is_power_cut))
        if is_power_cut:
            for index in self.indexes:
                self.judge.check_kept(index, self.machine_logs(index))
        return is_shorter

    def may_lose(self, machine: BrokerMachine) -> bool:
        """Return whether the machine may lose unflushed data. This requires that other replicas
        have all of that data."""
        if any(
            one.life is None or one.is_paused or one.is_behind or one.life.is_leaving
            for one in self.machines
            if one is not machine
        ):
            return False
        for index in self.indexes:
            state = self.state(index)
            if machine.id in state.replicas and not {*state.isr, *state.elr} - {machine.id}:
                return False
        return True

    def fence_these(self, *ids: NodeId) -> None:
        """Expire the controller sessions of the brokers `ids`, so that the controller fences
        them."""
        try:
            self.controller.fence(*ids)
        except RefusedError:
            return
        self.trace.add("fence", *ids)

    # --- metadata -------------------------------------------------------------------------------

    def apply_images(self, life: BrokerLife) -> None:
        """Apply all metadata images that the controller has produced to a broker."""
        if life.seen < len(self.controller.images) - 1:
            self.publish(life, len(self.controller.images) - 1)

    def publish(self, life: BrokerLife, until: int) -> None:
        """Apply the controller's metadata images up to index `until` to a broker."""
        controller = self.controller
        if until > life.seen + 1:
            self.rare.sometimes("a broker hears of several decisions at once")
        delta = controller.delta(life.table.image, life.seen, until)
        image, theirs = delta.image, controller.images[until]
        require(
            image.brokers == theirs.brokers
            and all(image.partition(key) == theirs.partition(key) for key in self.keys),
            "MetadataLogMatching",
            life.machine.id,
            "at",
            until,
        )
        life.seen = life.machine.seen = until
        life.publish(delta, image)
        self.trace.add("hear", life.machine.id, until)

    # --- invariants -----------------------------------------------------------------------------

    def judge_all(self) -> None:
        """Check all invariants of the cluster. Raises Violation if one is broken."""
        judge = self.judge
        if self._judged_count < len(self.controller.images):
            self._judge_states()
        for index in self.indexes:
            state = self.state(index)
            leading: list[tuple[BrokerLife, Partition, JudgedLog]] = []
            held_by: dict[NodeId, JudgedLog | None] = {}
            for machine in self.machines:
                held = held_by[machine.id] = machine.store.held(index)
                if held is None:
                    continue
                judge.check_log(machine.id, index, held)
                life = machine.life
                if life is not None:
                    partition = life.partitions.get(index)
                    if partition is not None and partition.is_leader:
                        leading.append((life, partition, held))
            for machine in self.machines:
                if index in machine.lost and not machine.is_loss_named:
                    del held_by[machine.id]
            for life, partition, held in leading:
                self.figures["commits"] += judge.check_leader(
                    life.machine.id, partition, held, state, held_by, life.table.image
                )
            for machine in self.machines:
                if machine.has_lost_tail:
                    held_by.pop(machine.id, None)
            judge.check_candidates(index, state, held_by)
        for machine in self.machines:
            if machine.lost and machine.is_loss_named:
                machine.lost -= {
                    index for index in machine.lost if machine.id in self.state(index).isr
                }
            if machine.is_behind and not machine.has_lost_tail:
                machine.is_behind = bool(machine.lost) or not self._is_in_sync(machine)

    def machine_logs(self, index: int) -> Iterator[JudgedLog | None]:
        """Yield each machine's log of a partition, or None for a machine without a replica."""
        for machine in self.machines:
            yield machine.store.held(index)

    def _is_in_sync(self, machine: BrokerMachine) -> bool:
        for index in self.indexes:
            state = self.state(index)
            if machine.id in state.replicas and machine.id not in (*state.isr, *state.elr):
                return False
        return True

    def _judge_states(self, unclean: NodeId | None = None) -> None:
        """Check every metadata image that the controller produced since the last call. `unclean` is
        the broker that may have lost records, or None."""
        images = self.controller.images
        while self._judged_count < len(images):
            before, now = images[self._judged_count - 1], images[self._judged_count]
            self._judged_count += 1
            for index in self.indexes:
                old, state = before.partition(self.keys[index]), now.partition(self.keys[index])
                assert old is not None
                assert state is not None
                if old is not state:
                    self.judge.check_state(index, old, state, (before, now), unclean)
                    self._note_state(index, old, state)
        self.judge_led()

    def judge_led(self) -> None:
        """Check that every partition with an eligible replica has a leader. Called after all
        records of a controller decision are applied."""
        for index in self.indexes:
            self.judge.check_led(self.state(index), self.controller.image)

    def _note_state(self, index: int, old: PartitionState, state: PartitionState) -> None:
        self.trace.add(
            "state",
            index,
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
            *state.isr,
            "elr",
            *state.elr,
        )
        rare = self.rare
        if state.leader == NO_NODE:
            rare.sometimes("a partition has no leader")
        elif state.leader != old.leader:
            self.figures["elections"] += 1
            held = self.machines[state.leader - 1].store.held(index)
            if held is not None and held.high_watermark < len(self.judge.committed[index]):
                rare.sometimes("a high watermark is below what was committed when its broker leads")
            if state.recovery_state is RecoveryState.RECOVERING:
                rare.sometimes("the last known leader is elected")
            elif state.leader in old.elr:
                rare.sometimes("a leader is elected from the ELR")
        if len(state.isr) == 1 < len(old.isr):
            rare.sometimes("the ISR is one")
        if (old.adding or old.removing) and not (state.adding or state.removing):
            rare.sometimes("a reassignment ends")
        if self.controller.failover_count > self.figures["controller failovers"]:
            self.figures["controller failovers"] = self.controller.failover_count
            rare.sometimes("a controller dies between two appends")
