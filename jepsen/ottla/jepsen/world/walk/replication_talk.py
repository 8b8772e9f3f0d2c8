"""What brokers, their controller and their clients say to each other, as messages on their way.

A message arrives when somebody says so, or never; whoever waits for an answer may lose patience
before, and what it asked may still arrive.  A request reaches the process it was sent to or nobody.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.replicas.follower_fetch import BeginAnew, Truncate
from ottla.broker.replicas.isr_changes import request_of
from ottla.broker.replicas.isr_keeper import Changes
from ottla.controller import partitions
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.invariants.replication import Held
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.broker_life import BrokerLife, WalkedFetcher
from ottla.jepsen.world.walk.replication_cluster import TOPIC, ClusterShape, ReplicationCluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.proto import controller_pb2 as pb
from ottla.storage.workbench import bytes_of
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

CONVERSATION_MAX = 8
PACKETS_MAX = 30
HEALING_ROUND_COUNT = 60


class FetchAsked(NamedTuple):
    """A follower's request on its way."""

    asker: BrokerLife
    fetcher: WalkedFetcher
    leader: BrokerLife
    request: FetchRequest


class FetchTold(NamedTuple):
    """A leader's answer on its way; its records are bytes by now."""

    asked: FetchAsked
    response: FetchResponse


class AlterAsked(NamedTuple):
    """A leader's AlterPartition on its way to the controller."""

    asker: BrokerLife
    changes: Changes
    request: pb.AlterPartitionRequest


class AlterTold(NamedTuple):
    """The controller's answer on its way."""

    asked: AlterAsked
    answer: pb.AlterPartitionResponse


class ToClient(NamedTuple):
    """What a client or its leader hears once it arrives."""

    arrive: Callable[[], None]


Packet = FetchAsked | FetchTold | AlterAsked | AlterTold | ToClient


class TalkingCluster(ReplicationCluster):
    """A cluster and what is said in it."""

    def __init__(self, chance: Chance, shape: ClusterShape) -> None:
        self.packets: list[Packet] = []
        self.is_news_late = False
        """Whether metadata comes by itself alone, never along with what else is repaired."""
        super().__init__(chance, shape)

    def send(self, packet: Packet) -> None:
        """Put a message on its way; of too many the oldest is lost."""
        self.packets.append(packet)
        if len(self.packets) > PACKETS_MAX:
            self.drop(0)

    def drop(self, at: int) -> None:
        """Lose a message."""
        self.give_up(self.packets.pop(at))

    def give_up(self, packet: Packet) -> None:
        """Tell whoever waits for the answer that none will come."""
        if isinstance(packet, FetchTold | AlterTold):
            self.give_up(packet.asked)
        elif isinstance(packet, FetchAsked):
            if packet.fetcher.asked is packet:
                packet.fetcher.asked = None
                packet.fetcher.core.session.reset()
        elif isinstance(packet, AlterAsked) and packet.asker.altering is packet:
            packet.asker.altering = None

    def arrive(self, packet: Packet) -> None:
        """Let a message arrive."""
        if isinstance(packet, FetchAsked):
            self.serve_fetch(packet)
        elif isinstance(packet, FetchTold):
            self.take_fetched(packet)
        elif isinstance(packet, AlterAsked):
            self.decide(packet)
        elif isinstance(packet, AlterTold):
            self.take_altered(packet)
        else:
            packet.arrive()

    # --- followers ------------------------------------------------------------------------------

    def talk(self, life: BrokerLife, fetcher: WalkedFetcher) -> bool:
        """Take one step of a follower's conversation; return whether there was one to take."""
        asked = fetcher.asked
        for at, packet in enumerate(self.packets):
            if packet is asked or (isinstance(packet, FetchTold) and packet.asked is asked):
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
        """Send the next fetch of what follows one leader; return whether there is one."""
        leader = self.machines[fetcher.core.leader_id - 1].life
        if leader is None:
            fetcher.core.session.reset()
            return False
        request = fetcher.core.request(self.now_ms, life.epoch)
        if request is None:
            self.wait_for_set_aside()
            return False
        asked = FetchAsked(life, fetcher, leader, request)
        fetcher.asked = asked
        self.send(asked)
        return True

    def wait_for_set_aside(self) -> None:
        """Let time pass: all that is followed is set aside, for a second at most."""
        self.now_ms += 1_000

    def serve_fetch(self, asked: FetchAsked) -> None:
        """Let a fetch arrive at its leader."""
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
            self.send(FetchTold(asked, response))

        leader.fetch(asked.request, self.now_ms, answer)
        has_waited = True
        self.trace.add("fetch", leader.machine.id, asked.asker.machine.id)

    def take_fetched(self, told: FetchTold) -> None:
        """Let the answer to a fetch arrive."""
        asked = told.asked
        life = asked.asker
        if not self.is_here(life) or asked.fetcher.asked is not asked:
            return
        if told.response.error_code:
            self.rare.sometimes("a fetch session is lost")
        duties = life.take_fetched(asked.fetcher, told.response, self.now_ms)
        for duty in duties:
            if isinstance(duty, BeginAnew):
                self.rare.sometimes("a follower lets go of what nobody vouches for")
            if isinstance(duty, Truncate):
                self.rare.sometimes("a follower cuts its log")
        self.trace.add("fetched", life.machine.id, len(duties))

    def find_place(self, life: BrokerLife, fetcher: WalkedFetcher) -> None:
        """Let a follower ask where its leader ends."""
        followed = fetcher.places[0]
        if fetcher.core.find(followed.key) is not followed:  # it moved away: nothing is asked
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
                fetcher.core.set_aside(followed, error, self.now_ms)
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
        """Send what a leader wants of the controller; return whether it wants anything."""
        again = {id(change) for change in life.keeper.unanswered.values()}
        changes = life.changes()
        if not changes:
            return False
        if any(id(change) in again for change in changes.values()):
            self.rare.sometimes("an ISR change is asked for again")
        request = request_of(life.machine.id, life.epoch, changes.values())
        asked = AlterAsked(life, changes, request)
        life.altering = asked
        self.send(asked)
        return True

    def decide(self, asked: AlterAsked) -> None:
        """Let a request for ISR changes arrive at the controller."""
        controller = self.controller
        try:
            answer = controller.take(
                partitions.alter_partition(controller.image, controller.config, asked.request)
            )
        except RefusedError:
            self.give_up(asked)
            return
        self.figures["ISR changes"] += 1
        self.send(AlterTold(asked, answer))

    def take_altered(self, told: AlterTold) -> None:
        """Let the controller's answer arrive."""
        life = told.asked.asker
        if not self.is_here(life) or life.altering is not told.asked:
            return
        life.altering = None
        for topic in told.answer.topics:
            for result in topic.partitions:
                if result.error_code == ErrorCode.INELIGIBLE_REPLICA:
                    self.rare.sometimes("an ISR change is rejected")
                elif result.error_code == ErrorCode.INVALID_UPDATE_VERSION:
                    self.rare.sometimes("an ISR change is overtaken")
        life.take_altered(told.asked.changes, told.answer)
        self.trace.add("altered", life.machine.id)

    # --- repairing ------------------------------------------------------------------------------

    def settle_one(self, life: BrokerLife) -> None:
        """Let a broker hear all, be heard, and get its ISR changes answered."""
        if not self.is_news_late:
            self.hear_all(life)
        self.beat(life)
        if life.machine.life is not life:
            return
        life.keeper.end_pauses(self.now_ms)
        if life.altering is not None or self.ask_controller(life):
            self.answer(life)

    def answer(self, life: BrokerLife) -> None:
        """Let what a leader asks of the controller arrive, and the answer to it."""
        for _ in range(2):
            for at, packet in enumerate(self.packets):
                is_asked = packet is life.altering
                if is_asked or (isinstance(packet, AlterTold) and packet.asked is life.altering):
                    self.arrive(self.packets.pop(at))
                    self.judge_all()
                    break

    def mend(self) -> None:
        """Let all who run hear all, be heard, catch up, and be in sync again."""
        for _ in range(2):
            for machine in self.machines:
                life = machine.life
                if life is None or machine.is_paused:
                    continue
                if not self.is_news_late:
                    self.hear_all(life)
                for fetcher in list(life.fetchers.values()):
                    for _ in range(CONVERSATION_MAX):
                        is_left = fetcher.core.leader_id not in life.fetchers
                        if is_left or not self.talk(life, fetcher):
                            break
                self.settle_one(life)
                self.judge_all()

    def heal(self) -> None:
        """Let everything be repaired and nothing fail any more; all must come to rest in sync.

        Invariant EverythingHeals.
        """
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
                    self.start_anew(machine)
                life = machine.life
                if life is not None:
                    self._heal_one(life)
            self.judge_all()
            if self._is_whole():
                return
        found = [
            (self.state(index), [_shown(held) for held in self.everybody(index)])
            for index in self.indexes
        ]
        raise Violation("EverythingHeals", f"{found}")

    def _heal_one(self, life: BrokerLife) -> None:
        self.hear_all(life)
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
                # A fetch that waits is told of the high watermark and the log start at its end.
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
        """End a flush of what a broker leads."""
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


def _agree(log: Held, leader: Held) -> bool:
    """Return whether a follower serves what its leader does, and nothing that it does not."""
    start = log.log_start_offset
    return start >= leader.log_start_offset and log.records[start:] == leader.records[start:]


def _shown(held: Held | None) -> str:
    if held is None:
        return "nothing"
    start, end = held.log_start_offset, len(held.records)
    return f"from {start} to {end}, {held.high_watermark} are committed"
