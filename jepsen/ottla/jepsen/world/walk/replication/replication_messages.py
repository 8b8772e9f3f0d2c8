"""Messages in flight between brokers, their controller and their clients.

The random walk decides when a message is delivered, if at all. A request may still be delivered
after its sender has stopped waiting. It reaches only the process to which it was sent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.replicas.follower_fetch import Truncate, TruncateFully
from ottla.broker.replicas.isr_changes import request_of
from ottla.broker.replicas.isr_keeper import Changes
from ottla.controller.replication import partitions
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_waits import bytes_of
from ottla.jepsen.world.invariants.replication import JudgedLog
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.replication.broker_life import BrokerLife, WalkedFetcher
from ottla.jepsen.world.walk.replication.replication_cluster import (
    TOPIC,
    ClusterShape,
    ReplicationCluster,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.proto import controller_pb2 as pb
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

CONVERSATION_MAX = 8
PACKETS_MAX = 30
HEALING_ROUND_COUNT = 60


class FetchCall(NamedTuple):
    """A fetch request in flight from a follower to its leader."""

    sender: BrokerLife
    fetcher: WalkedFetcher
    leader: BrokerLife
    request: FetchRequest


class FetchReply(NamedTuple):
    """A leader's response in flight to a follower's fetch, with its records as bytes."""

    asked: FetchCall
    response: FetchResponse


class AlterCall(NamedTuple):
    """A leader's AlterPartition request in flight to the controller."""

    sender: BrokerLife
    changes: Changes
    request: pb.AlterPartitionRequest


class AlterReply(NamedTuple):
    """A controller's response in flight to an AlterPartition request."""

    asked: AlterCall
    answer: pb.AlterPartitionResponse


class ToClient(NamedTuple):
    """A message in flight between a client and a leader, in either direction."""

    arrive: Callable[[], None]


Packet = FetchCall | FetchReply | AlterCall | AlterReply | ToClient


class MessagingCluster(ReplicationCluster):
    """A simulated cluster, and the messages in flight between its nodes."""

    def __init__(self, chance: Chance, shape: ClusterShape) -> None:
        self.packets: list[Packet] = []
        self.is_news_late = False
        """True if the random walk delivers metadata to brokers only by separate actions, never as
        part of a repair."""
        super().__init__(chance, shape)

    def send(self, packet: Packet) -> None:
        """Add a message to the messages in flight. If too many messages are then in flight, the
        oldest one is lost."""
        self.packets.append(packet)
        if len(self.packets) > PACKETS_MAX:
            self.drop(0)

    def drop(self, at: int) -> None:
        """Remove the message with index `at` from the messages in flight, so that it is never
        delivered."""
        self.give_up(self.packets.pop(at))

    def give_up(self, packet: Packet) -> None:
        """Report to the sender of a request in flight that there will be no response."""
        if isinstance(packet, FetchReply | AlterReply):
            self.give_up(packet.asked)
        elif isinstance(packet, FetchCall):
            if packet.fetcher.asked is packet:
                packet.fetcher.asked = None
                packet.fetcher.core.session.reset()
        elif isinstance(packet, AlterCall) and packet.sender.altering is packet:
            packet.sender.altering = None

    def arrive(self, packet: Packet) -> None:
        """Deliver a message in flight to the process to which it was sent."""
        if isinstance(packet, FetchCall):
            self.serve_fetch(packet)
        elif isinstance(packet, FetchReply):
            self.take_fetched(packet)
        elif isinstance(packet, AlterCall):
            self.decide(packet)
        elif isinstance(packet, AlterReply):
            self.take_altered(packet)
        else:
            packet.arrive()

    # --- followers ------------------------------------------------------------------------------

    def talk(self, life: BrokerLife, fetcher: WalkedFetcher) -> bool:
        """Perform one step of a follower's fetches from one leader. Returns False if no step is
        due."""
        asked = fetcher.asked
        for at, packet in enumerate(self.packets):
            if packet is asked or (isinstance(packet, FetchReply) and packet.asked is asked):
                if asked is None:
                    continue
                leader = self.machines[fetcher.core.leader_id - 1]
                if packet is asked and (leader.life is None or leader.is_paused):
                    return False
                self.arrive(self.packets.pop(at))
                self.judge_all()
                return True
        if fetcher.flushing:
            life.flush_replica(fetcher)
            return True
        return fetcher.is_idle and self.ask(life, fetcher)

    def ask(self, life: BrokerLife, fetcher: WalkedFetcher) -> bool:
        """Send the next request of a follower's fetcher. Returns False if the fetcher has no
        request to send."""
        leader = self.machines[fetcher.core.leader_id - 1].life
        if leader is None:
            fetcher.core.session.reset()
            return False
        request = fetcher.core.request(self.now_ms, life.epoch)
        if request is None:
            self.wait_for_failed()
            return False
        asked = FetchCall(life, fetcher, leader, request)
        fetcher.asked = asked
        self.send(asked)
        return True

    def wait_for_failed(self) -> None:
        """Advance the virtual time, by at most one second, until no followed partition is waiting
        to be fetched again after an error."""
        self.now_ms += 1_000

    def serve_fetch(self, asked: FetchCall) -> None:
        """Deliver a follower's fetch request to its leader."""
        leader = asked.leader
        if not self.is_here(leader):
            self.give_up(asked)
            return
        has_waited = False

        def answer(response: FetchResponse) -> None:
            for topic in response.responses:
                for data in topic.partitions:
                    records: Any = data.records
                    if records:
                        data.records = memoryview(bytes_of(records))
            if has_waited:
                self.rare.sometimes("a fetch waits and is answered by an append")
            self.send(FetchReply(asked, response))

        leader.fetch(asked.request, self.now_ms, answer)
        has_waited = True
        self.trace.add("fetch", leader.machine.id, asked.sender.machine.id)

    def take_fetched(self, reply: FetchReply) -> None:
        """Deliver a leader's response to the follower that fetched."""
        asked = reply.asked
        life = asked.sender
        if not self.is_here(life) or asked.fetcher.asked is not asked:
            return
        if reply.response.error_code:
            self.rare.sometimes("a fetch session is lost")
        duties = life.take_fetched(asked.fetcher, reply.response, self.now_ms)
        for duty in duties:
            if isinstance(duty, TruncateFully):
                self.rare.sometimes("a follower truncates unconfirmed records")
            if isinstance(duty, Truncate):
                self.rare.sometimes("a follower cuts its log")
        self.trace.add("fetched", life.machine.id, len(duties))

    def find_place(self, life: BrokerLife, fetcher: WalkedFetcher) -> None:
        """Request the start and end offset of the leader's log for a follower. Then truncate or
        restart the follower's log, so that it continues the leader's log."""
        followed = fetcher.places[0]
        if fetcher.core.find(followed.key) is not followed:  # the follower has another leader now
            fetcher.places.remove(followed)
            return
        leader = self.machines[fetcher.core.leader_id - 1]
        place = None
        if leader.life is not None and not leader.is_paused:
            try:
                partition = leader.life.table.find(TOPIC, followed.key.partition)
                log = partition.leader_log(followed.leader_epoch)
                place = (log.log_start_offset, log.end_offset)
            except RefusedError as error:
                fetcher.places.remove(followed)
                fetcher.core.mark_failed(followed, error, self.now_ms)
                return
        if place is None:
            fetcher.places.remove(followed)
            fetcher.core.done(followed)
            fetcher.core.session.reset()
            return
        self.rare.sometimes("a follower looks for its place")
        if place[0] > followed.log.end_offset:
            self.rare.sometimes("a follower begins again at its leader's start")
        life.find_place(fetcher, followed, place)

    # --- in-sync replicas -----------------------------------------------------------------------

    def ask_controller(self, life: BrokerLife) -> bool:
        """Send an AlterPartition request with a leader's pending ISR changes to the controller.
        Returns False if no changes are pending."""
        again = {id(change) for change in life.keeper.unanswered.values()}
        changes = life.changes()
        if not changes:
            return False
        if any(id(change) in again for change in changes.values()):
            self.rare.sometimes("an ISR change is asked for again")
        request = request_of(life.machine.id, life.epoch, changes.values())
        asked = AlterCall(life, changes, request)
        life.altering = asked
        self.send(asked)
        return True

    def decide(self, asked: AlterCall) -> None:
        """Deliver a leader's AlterPartition request to the controller."""
        controller = self.controller
        try:
            answer = controller.take(
                partitions.alter_partition(controller.image, controller.config, asked.request)
            )
        except RefusedError:
            self.give_up(asked)
            return
        self.figures["ISR changes"] += 1
        self.send(AlterReply(asked, answer))

    def take_altered(self, reply: AlterReply) -> None:
        """Deliver the controller's response to the leader that sent an AlterPartition request."""
        life = reply.asked.sender
        if not self.is_here(life) or life.altering is not reply.asked:
            return
        life.altering = None
        for topic in reply.answer.topics:
            for result in topic.partitions:
                if result.error_code == ErrorCode.INELIGIBLE_REPLICA:
                    self.rare.sometimes("an ISR change is rejected")
                elif result.error_code == ErrorCode.INVALID_UPDATE_VERSION:
                    self.rare.sometimes("an ISR change is overtaken")
        life.take_altered(reply.asked.changes, reply.answer)
        self.trace.add("altered", life.machine.id)

    # --- repair ---------------------------------------------------------------------------------

    def settle_one(self, life: BrokerLife) -> None:
        """Apply all metadata images to a broker, send its heartbeat, and deliver the responses to
        its ISR changes."""
        if not self.is_news_late:
            self.apply_images(life)
        self.send_heartbeat(life)
        if life.machine.life is not life:
            return
        life.keeper.end_pauses(self.now_ms)
        if life.altering is not None or self.ask_controller(life):
            self.answer(life)

    def answer(self, life: BrokerLife) -> None:
        """Deliver a leader's AlterPartition request to the controller at once, and then the
        response to the leader."""
        for _ in range(2):
            for at, packet in enumerate(self.packets):
                is_asked = packet is life.altering
                if is_asked or (isinstance(packet, AlterReply) and packet.asked is life.altering):
                    self.arrive(self.packets.pop(at))
                    self.judge_all()
                    break

    def catch_up(self) -> None:
        """Bring all running brokers up to date: apply all metadata images, send heartbeats, fetch
        from the leaders, and add the brokers to the ISR."""
        for _ in range(2):
            for machine in self.machines:
                life = machine.life
                if life is None or machine.is_paused:
                    continue
                if not self.is_news_late:
                    self.apply_images(life)
                for fetcher in list(life.fetchers.values()):
                    for _ in range(CONVERSATION_MAX):
                        is_left = fetcher.core.leader_id not in life.fetchers
                        if is_left or not self.talk(life, fetcher):
                            break
                self.settle_one(life)
                self.judge_all()

    def heal(self) -> None:
        """End all faults, and check that all partitions become fully in sync (invariant
        EverythingHeals)."""
        for machine in self.machines:
            machine.is_paused = False
        for _ in range(HEALING_ROUND_COUNT):
            self.now_ms += 1_000
            self.controller.now_ms = self.now_ms
            while self.packets:
                self.drop(0)
            for machine in self.machines:
                if machine.life is not None and machine.life.is_leaving:
                    machine.life.is_leaving = False
                if machine.life is None:
                    self.restart(machine)
                life = machine.life
                if life is not None:
                    self._heal_one(life)
            self.judge_all()
            if self._is_whole():
                return
        found = [
            (self.state(index), [_shown(held) for held in self.machine_logs(index)])
            for index in self.indexes
        ]
        raise Violation("EverythingHeals", f"{found}")

    def _heal_one(self, life: BrokerLife) -> None:
        self.apply_images(life)
        for fetcher in life.fetchers.values():
            if fetcher.asked is not None:
                fetcher.asked = None
                fetcher.core.session.reset()
        if self.controller.image.brokers[life.machine.id].epoch != life.epoch:
            self.end_life(life.machine, is_power_cut=False)
            return
        for fetcher in list(life.fetchers.values()):
            if fetcher.places:
                self.find_place(life, fetcher)
            self._talk_out(life, fetcher)
            leader = self.machines[fetcher.core.leader_id - 1].life
            if fetcher.asked is not None and leader is not None:
                # A delayed fetch returns the high watermark and the log start at its end.
                self.now_ms += life.machine.config.replica_fetch_wait_ms_max
                leader.purgatory.expire(self.now_ms)
                self._talk_out(life, fetcher)
        while life.flush_due:
            self.flush_led(life, 0)
        life.altering = None
        self.settle_one(life)

    def _talk_out(self, life: BrokerLife, fetcher: WalkedFetcher) -> None:
        for _ in range(PACKETS_MAX):
            if fetcher.core.leader_id not in life.fetchers or not self.talk(life, fetcher):
                return

    def flush_led(self, life: BrokerLife, left_count: int) -> None:
        """End a flush of the partitions that a broker leads. The flush began before the last
        `left_count` records were appended."""
        partition = next(iter(life.flush_due))
        life.flush_led(partition, left_count, self.now_ms)

    def _is_whole(self) -> bool:
        for index in self.indexes:
            state = self.state(index)
            if set(state.isr) != set(state.replicas) or state.adding or state.removing:
                return False
            logs = [self.machines[one - 1].store.held(index) for one in state.replicas]
            leader = self.machines[state.leader - 1].store.held(index)
            if leader is None or leader.high_watermark < len(leader.records):
                return False
            if any(log is None or not _agree(log, leader) for log in logs):
                return False
        return True


def _agree(log: JudgedLog, leader: JudgedLog) -> bool:
    """Return whether a follower's log has the same content as its leader's."""
    start = log.log_start_offset
    return start >= leader.log_start_offset and log.records[start:] == leader.records[start:]


def _shown(held: JudgedLog | None) -> str:
    if held is None:
        return "nothing"
    start, end = held.log_start_offset, len(held.records)
    return f"from {start} to {end}, {held.high_watermark} are committed"
