"""The cluster of timed worlds while nothing is done to it: controllers, brokers, and their calls.

Each controller is a voter of the real quorum, each broker an observer of it that applies what is
committed to its real partitions.  What brokers and clients say goes through the world's network; a
call is answered once or its time is up.  A process that stands still hears it all later.
"""

import math
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.controller import brokers, partitions
from ottla.controller.rehearsal import IDENTITY, registration
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.timed.controller_seat import CommittedHistory, ControllerSeat
from ottla.jepsen.world.timed.machine import DriftingClock, SlowDisk, swarm_disk
from ottla.jepsen.world.timed.net import Net, swarm_weather
from ottla.jepsen.world.timed.raft_node import RaftNode
from ottla.jepsen.world.timed.raft_wire import RaftWire
from ottla.jepsen.world.timed.timeline import MS, Timeline
from ottla.jepsen.world.walk.broker_life import LAG_MS, LeaderFetcher, Life, Machine, Store
from ottla.jepsen.world.walk.replication_clients import Clients, Produced
from ottla.jepsen.world.walk.replication_cluster import Shape
from ottla.jepsen.world.walk.replication_talk import (
    AlterAsked,
    AlterTold,
    FetchAsked,
    FetchTold,
    Packet,
    TalkingCluster,
    ToClient,
)
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.quorum import QuorumConfig
from ottla.proto import controller_pb2 as pb
from ottla.raft.effects import Effects
from ottla.raft.events import Event
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.world import voter
from ottla.raft.voters import QuorumIdentity, VoterSet

CONTROLLER_IDS = (NodeId(101), NodeId(102), NodeId(103))
CLIENT = NodeId(0)
CLUSTER_ID = "b3R0bGEtd29ybGQtMDAwMQ"

TICK_MS = 50
"""How often a broker looks for what it should have begun already."""

HEARTBEAT_MS = 2_000
CALL_MS = 3_000
"""How long anybody waits for an answer."""

LAG_CHECK_MS = LAG_MS // 2

WAITING_MAX = 30
"""Requests that may wait at one broker; clients send no more then, as theirs would be full."""


class BrokerHost:
    """A broker's machine: its observer of the quorum, and how far its process has got."""

    __slots__ = ("beat_at_ms", "epoch", "flushing", "is_calling", "lag_at_ms", "machine", "node")

    def __init__(self, machine: Machine, node: RaftNode) -> None:
        self.machine = machine
        self.node = node
        self.flushing: set[Partition | LeaderFetcher] = set()
        self.begin()

    def begin(self) -> None:
        """Forget what the process before knew."""
        self.epoch: int | None = None
        self.is_calling = False
        self.beat_at_ms = 0
        self.lag_at_ms = 0
        self.flushing.clear()


class TimedClients(Clients):
    """Clients whose batches go through the network."""

    def __init__(self, cluster: "HostedCluster") -> None:
        super().__init__(cluster)
        self._hosted = cluster

    def carry(self, packet: Produced) -> None:
        """Send a batch to its leader; only what is idempotent may arrive twice."""
        has_arrived = False

        def arrive() -> None:
            nonlocal has_arrived
            is_crowded = packet.leader.purgatory.waiting_count >= WAITING_MAX
            if not is_crowded and (not has_arrived or packet.producer.id >= 0):
                has_arrived = True
                self.serve_produce(packet)
                self._hosted.judge_all()
                self._hosted.go_on(packet.leader)

        self._hosted.carry(CLIENT, packet.leader.machine.id, arrive)

    carry_again = carry


class HostedCluster(TalkingCluster):
    """All of it on one timeline."""

    _is_ready = False

    def __init__(
        self,
        chance: Chance,
        shape: Shape,
        make_store: Callable[[Chance], Store],
        quorum: QuorumConfig,
    ) -> None:
        super().__init__(chance, shape, make_store)
        self._is_ready = True
        self.timeline = Timeline()
        self.invariants = Invariants()
        self.history = CommittedHistory(self.controller)
        self.controller = self.history
        self._judged_count = len(self.history.images)
        self.figures.update(
            {"calls": 0, "calls without answer": 0, "disk faults": 0, "commits of the quorum": 0}
        )
        broker_ids = [machine.id for machine in self.machines]
        node_ids = [*CONTROLLER_IDS, *broker_ids]
        self.net = Net(
            self.timeline, chance.stream("net"), [*node_ids, CLIENT], swarm_weather(chance)
        )
        self.nodes: dict[NodeId, RaftNode] = {}
        self._wire = RaftWire(self.timeline, self.net, self.nodes, chance.stream("codec"))
        self._quorum_config = quorum
        for node_id in node_ids:
            self.nodes[node_id] = self._make_node(node_id)
        self.seats = {
            node_id: ControllerSeat(self.nodes[node_id], self.history, self.history.config)
            for node_id in CONTROLLER_IDS
        }
        self.hosts = {
            machine.id: BrokerHost(machine, self.nodes[machine.id]) for machine in self.machines
        }
        self.clients = TimedClients(self)
        self.are_decisions_torn = False
        """Whether controllers append record by record."""
        self._held: dict[NodeId, list[Callable[[], None]]] = {}
        self._flush_chance = chance.stream("flushes")
        self._calls = count()

    def _make_node(self, node_id: NodeId) -> RaftNode:
        chance = self.chance
        identity = QuorumIdentity(
            node_id=node_id,
            directory_id=UUID(int=1000 + node_id),
            cluster_id=CLUSTER_ID,
            voters=VoterSet(tuple(voter(each) for each in CONTROLLER_IDS)),
        )
        drift_ppm = (0, 100, -100, 50_000, -50_000)[chance.below(5)]
        return RaftNode(
            identity,
            self._quorum_config,
            self.timeline,
            DriftingClock(self.timeline, drift_ppm),
            SlowDisk(chance.stream(f"disk {node_id}"), swarm_disk(chance)),
            chance.stream(f"core {node_id}"),
            self.invariants,
            send=self._wire.send,
            on_step=self._on_step,
            on_death=self.on_death,
        )

    # --- time ---------------------------------------------------------------------------------

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something after a while, when everybody's clock shows it."""

        def act() -> None:
            self.set_time()
            action()

        self.timeline.later(delay_us, act)

    def set_time(self) -> None:
        """Have the brokers' clock show what time it is."""
        self.now_ms = 100_000 + self.timeline.now_us // MS

    def wait_for_set_aside(self) -> None:
        """Let time pass: it does so by itself."""

    # --- who is there -------------------------------------------------------------------------

    def begin_life(self, machine: Machine, epoch: int, image_at: int | None = None) -> None:
        """Start a process; before the run begins, all have been stopped cleanly."""
        if self._is_ready:
            super().begin_life(machine, epoch, image_at)
        else:
            machine.clean_epoch = epoch

    def start_node(self, node: RaftNode) -> None:
        """Start a process on a machine that has none."""
        node.start()
        host = self.hosts.get(node.node_id)
        if host is not None:
            host.begin()

    def stop_node(self, node: RaftNode, *, is_power_lost: bool, is_remounted: bool = False) -> None:
        """End a process, or the machine; `is_remounted`: its metadata's disk lost its cache."""
        node.stop(is_power_lost=is_power_lost or is_remounted)
        self._held.pop(node.node_id, None)
        seat = self.seats.get(node.node_id)
        if seat is not None:
            seat.drop()
            self.figures["power cuts" if is_power_lost else "crashes"] += 1
            return
        machine = self.hosts[node.node_id].machine
        if machine.life is not None or is_power_lost:
            self.end_life(machine, is_power_cut=is_power_lost)

    def on_death(self, node: RaftNode, error: Exception) -> None:
        """A process whose disk failed ends; its machine is well."""
        self.trace.add("dies", node.node_id, type(error).__name__)
        self.rare.sometimes("a disk that fails ends a process")
        self.set_time()
        self.stop_node(node, is_power_lost=False, is_remounted=True)

    # --- the quorum ---------------------------------------------------------------------------

    def _on_step(self, node: RaftNode, event: Event, effects: Effects) -> None:
        self.set_time()
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
        )
        if self.history.follow(self.invariants.committed, self._judge_image):
            self.judge_all()
        seat = self.seats.get(node.node_id)
        if seat is not None:
            seat.on_step(event, effects)
        elif effects.high_watermark is not None:
            self._hear(self.hosts[node.node_id])

    def _judge_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Judge one batch that was committed: its like is a decision, or a part of one."""
        unclean = None
        for machine in self.machines:
            epoch = before.brokers[machine.id].epoch
            has_come = now.brokers[machine.id].epoch != epoch
            if self.are_decisions_torn and machine.life is None:
                has_come |= self._has_left(machine.id, before, now)
            if has_come and epoch != machine.clean_epoch:
                unclean = machine.id
        self._judge_states(unclean)

    def _has_left(self, node_id: NodeId, before: MetadataImage, now: MetadataImage) -> bool:
        """Say whether a partition's leadership has just become out of reach for a broker."""
        for key in self.keys:
            old, new = before.partition(key), now.partition(key)
            assert old is not None
            assert new is not None
            if node_id in (*old.isr, *old.elr) and node_id not in (*new.isr, *new.elr):
                return True
        return False

    def judge_led(self) -> None:
        """Judge whether everybody leads who could; a part of a decision need not see to that."""
        if not self.are_decisions_torn:
            super().judge_led()

    def _hear(self, host: BrokerHost) -> None:
        life = host.machine.life
        if life is None:
            return
        at = self.history.index_at(host.node.applied_end_offset)
        if at > life.seen:
            self.publish(life, at)
            self.judge_all()
            self.go_on(life)

    # --- calls --------------------------------------------------------------------------------

    def carry(self, sender: NodeId, receiver: NodeId, action: Callable[[], None]) -> None:
        """Have something happen at a process once a message arrives there."""
        self.net.send(sender, receiver, lambda: self._arrive_at(receiver, action))

    def _arrive_at(self, receiver: NodeId, action: Callable[[], None]) -> None:
        node = self.nodes.get(receiver)
        if node is not None and node.is_paused:
            self._held.setdefault(receiver, []).append(action)
            return
        self.set_time()
        action()

    def wake(self, node: RaftNode) -> None:
        """Let a process go on that stood still."""
        host = self.hosts.get(node.node_id)
        if host is not None:
            host.machine.is_paused = False
        node.resume()
        for action in self._held.pop(node.node_id, []):
            self.later(0, action)

    def call(
        self,
        host: BrokerHost,
        serve: Callable[
            [ControllerSeat, Callable[[Any], None], Callable[[RefusedError], None]], None
        ],
        on_answer: Callable[[Any], None],
        on_failure: Callable[[], None],
    ) -> None:
        """Call the controller that a broker believes to be active; it hears exactly once."""
        node = host.node
        assert node.core is not None
        leader_id = node.core.leader_id
        seat = self.seats[CONTROLLER_IDS[next(self._calls) % 3] if leader_id is None else leader_id]
        incarnation, controller_incarnation = node.incarnation, seat.node.incarnation
        is_settled = has_arrived = False
        self.figures["calls"] += 1

        def settle(action: Callable[[], None]) -> None:
            nonlocal is_settled
            if not is_settled:
                is_settled = True
                if node.incarnation == incarnation:
                    action()

        def back(action: Callable[[], None]) -> None:
            self.carry(seat.node.node_id, node.node_id, lambda: settle(action))

        def arrive() -> None:
            nonlocal has_arrived
            if has_arrived:
                return
            has_arrived = True
            if not seat.node.is_up or seat.node.incarnation != controller_incarnation:
                back(on_failure)
                return
            serve(seat, lambda reply: back(lambda: on_answer(reply)), lambda _: back(on_failure))

        def time_out() -> None:
            if not is_settled:
                self.figures["calls without answer"] += 1
                settle(on_failure)

        self.carry(node.node_id, seat.node.node_id, arrive)
        self.later(CALL_MS * MS, time_out)

    # --- a broker's process -------------------------------------------------------------------

    def tick(self, host: BrokerHost) -> None:
        """Do what a broker's tasks do when their time has come."""
        self.later(TICK_MS * MS, lambda: self.tick(host))
        if not host.node.is_up or host.node.is_paused:
            return
        life = host.machine.life
        if life is None:
            self._begin(host)
            return
        if self.now_ms >= host.beat_at_ms:
            self._beat(host, life)
        life.keeper._end_pauses(self.now_ms)
        if self.now_ms >= host.lag_at_ms:
            host.lag_at_ms = self.now_ms + LAG_CHECK_MS
            life.keeper._look_for_lag(self.now_ms)
        life.purgatory.expire(self.now_ms)
        self.go_on(life)

    def _begin(self, host: BrokerHost) -> None:
        """Register, and take part once its own metadata says that it is registered."""
        applied = host.node.applied_end_offset
        at = self.history.index_at(applied)
        if host.epoch is not None:
            if applied > host.epoch:
                self.trace.add("start", host.machine.id, host.epoch)
                self.begin_life(host.machine, host.epoch, at)
            return
        if at < 0 or host.is_calling:
            return
        machine = host.machine
        request = registration(
            machine.id, incarnation=machine.life_count + 1, previous_epoch=machine.clean_epoch
        )

        def serve(seat: ControllerSeat, reply: Any, refuse: Any) -> None:
            seat.decide(
                lambda image, next_offset: brokers.register(
                    image,
                    self.history.config,
                    seat.sessions,
                    request,
                    identity=IDENTITY,
                    next_offset=next_offset,
                    now_ms=seat.session_time_ms(),
                ),
                reply,
                refuse,
            )

        def take(answer: pb.RegisterResponse) -> None:
            if machine.clean_epoch >= 0 and machine.life_count > 1:
                self.rare.sometimes("a broker starts cleanly")
            host.is_calling = False
            host.epoch = answer.broker_epoch

        host.is_calling = True
        self.call(host, serve, take, lambda: self._end_call(host))

    def _end_call(self, host: BrokerHost) -> None:
        host.is_calling = False

    def _beat(self, host: BrokerHost, life: Life) -> None:
        if host.is_calling:
            return
        host.is_calling = True
        host.beat_at_ms = self.now_ms + HEARTBEAT_MS
        request = pb.HeartbeatRequest(
            broker_id=host.machine.id,
            broker_epoch=life.epoch,
            current_metadata_offset=host.node.applied_end_offset - 1,
            want_shut_down=life.is_leaving,
        )

        def serve(seat: ControllerSeat, reply: Any, refuse: Any) -> None:
            def refused(error: RefusedError) -> None:
                if error.code is ErrorCode.STALE_BROKER_EPOCH:
                    reply(None)
                else:
                    refuse(error)

            seat.heartbeat(request, reply, refused)

        def take(answer: pb.HeartbeatResponse | None) -> None:
            host.is_calling = False
            if host.machine.life is not life:
                return
            if answer is None:
                self.rare.sometimes("a broker learns that it is registered anew")
                self.stop_node(host.node, is_power_lost=False)
            elif life.is_leaving:
                host.beat_at_ms = self.now_ms + 2 * TICK_MS
                if answer.should_shut_down:
                    self._leave(host, life)

        self.call(host, serve, take, lambda: self._end_call(host))

    def _leave(self, host: BrokerHost, life: Life) -> None:
        machine = host.machine
        machine.store.stop_cleanly()
        machine.life = None
        machine.clean_epoch = life.epoch
        host.node.stop(is_power_lost=False)
        self.rare.sometimes("a broker stops cleanly")
        self.trace.add("stopped", machine.id)

    def go_on(self, life: Life) -> None:
        """Have a broker begin whatever it can."""
        if not self.is_here(life):
            return
        host = self.hosts[life.machine.id]
        for fetcher in list(life.fetchers.values()):
            if fetcher.places:
                if self._may_talk(host, fetcher):
                    self.find_place(life, fetcher)
            elif fetcher.is_idle:
                self.ask(life, fetcher)
            if fetcher.flushing and fetcher not in host.flushing:
                self._flush_followed(host, life, fetcher)
        for partition in list(life.flush_due):
            if partition not in host.flushing:
                self._flush_led(host, life, partition)
        if life.altering is None:
            self.ask_controller(life)

    def _may_talk(self, host: BrokerHost, fetcher: LeaderFetcher) -> bool:
        here, there = host.machine.id, fetcher.core.leader_id
        return self.net.may_reach(here, there) and self.net.may_reach(there, here)

    # --- flushes, which take their time -------------------------------------------------------

    def _flush_us(self, host: BrokerHost) -> int:
        weather = host.node.disk.weather
        delay_us = -weather.fsync_us_mean * math.log(1.0 - self._flush_chance.random())
        if weather.stall and self._flush_chance.chance(weather.stall):
            delay_us *= 100
        return 1 + int(delay_us)

    def _flush_followed(self, host: BrokerHost, life: Life, fetcher: LeaderFetcher) -> None:
        host.flushing.add(fetcher)

        def end() -> None:
            if life.machine.life is life:
                host.flushing.discard(fetcher)
                life.flush_replica(fetcher)
                self.judge_all()
                self.go_on(life)

        self.later(self._flush_us(host), lambda: self._arrive_at(life.machine.id, end))

    def _flush_led(self, host: BrokerHost, life: Life, partition: Partition) -> None:
        host.flushing.add(partition)
        log = partition.log
        begun_at = 0 if log is None else log.end_offset

        def end() -> None:
            if life.machine.life is life:
                host.flushing.discard(partition)
                log = partition.log
                left = 0 if log is None else max(0, log.end_offset - begun_at)
                if left:
                    self.rare.sometimes("records come while a flush is under way")
                life.flush_led(partition, left, self.now_ms)
                self.judge_all()
                self.go_on(life)

        self.later(self._flush_us(host), lambda: self._arrive_at(life.machine.id, end))

    # --- messages -----------------------------------------------------------------------------

    def send(self, packet: Packet) -> None:
        """Put a message on its way."""
        if isinstance(packet, FetchAsked):
            here, there = packet.asker.machine.id, packet.leader.machine.id
            self.carry(here, there, lambda: self._arrive(packet, packet.leader))
            self.later(CALL_MS * MS, lambda: self.give_up(packet))
        elif isinstance(packet, FetchTold):
            here, there = packet.asked.leader.machine.id, packet.asked.asker.machine.id
            self.carry(here, there, lambda: self._arrive(packet, packet.asked.asker))
        elif isinstance(packet, AlterAsked):
            self._send_alter(packet)
        elif isinstance(packet, ToClient):
            self.carry(CLIENT, CLIENT, packet.arrive)

    def _arrive(self, packet: Packet, life: Life) -> None:
        self.arrive(packet)
        self.judge_all()
        self.go_on(life)

    def _send_alter(self, asked: AlterAsked) -> None:
        def serve(seat: ControllerSeat, reply: Any, refuse: Any) -> None:
            seat.decide(
                lambda image, _: partitions.alter_partition(
                    image, self.history.config, asked.request
                ),
                reply,
                refuse,
            )

        def take(answer: pb.AlterPartitionResponse) -> None:
            self.figures["ISR changes"] += 1
            self._arrive(AlterTold(asked, answer), asked.asker)

        host = self.hosts[asked.asker.machine.id]
        self.call(host, serve, take, lambda: self.give_up(asked))
