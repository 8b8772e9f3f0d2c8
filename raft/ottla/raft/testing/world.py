"""Members of one quorum on virtual time, and a network that loses, repeats, delays and parts.

One seed is one history.  Nothing here sleeps or is random by itself: the caller's `Rng`
seam deals all chance, in the order of events.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ottla.model.ids import NodeId
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, Outgoing
from ottla.raft.events import (
    Event,
    Flushed,
    LeaderRefused,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from ottla.raft.messages import FetchRequest, Response
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.member import MemoryMember
from ottla.raft.testing.narrator import tell_effects, tell_request, tell_response
from ottla.raft.voters import QuorumIdentity, Voter, VoterEndpoint, VoterSet

CLUSTER_ID = "b3R0bGEtd29ybGQtMDAwMQ"


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad the network and the disks are; all are chances in `[0, 1)` or milliseconds."""

    drop: float = 0.0
    repeat: float = 0.0
    latency_ms_max: int = 5
    flush_ms_max: int = 0


def voter(node_id: int) -> Voter:
    """Return a voter with a directory id and an endpoint made from its id."""
    return Voter(
        id=NodeId(node_id),
        directory_id=UUID(int=1000 + node_id),
        endpoints=(VoterEndpoint("CONTROLLER", f"host-{node_id}", 9093),),
    )


def identity(node_id: int, voter_ids: tuple[int, ...], *, is_wiped: bool = False) -> QuorumIdentity:
    """Return who a node is among voters; a wiped one has another directory id than they know."""
    return QuorumIdentity(
        node_id=NodeId(node_id),
        directory_id=UUID(int=(9000 if is_wiped else 1000) + node_id),
        cluster_id=CLUSTER_ID,
        voters=VoterSet(tuple(voter(each) for each in voter_ids)),
    )


class World:
    """A quorum, its network and its time."""

    def __init__(
        self,
        chance: Rng,
        *,
        voter_ids: tuple[int, ...],
        observer_ids: tuple[int, ...] = (),
        config: QuorumConfig | None = None,
        weather: Weather | None = None,
    ) -> None:
        self.now_ms = 0
        self.chance = chance
        self.weather = Weather() if weather is None else weather
        self.invariants = Invariants()
        self.step_count = 0
        self.crash_count = 0
        self.parted: set[frozenset[NodeId]] = set()
        """Pairs of nodes whose packets vanish."""
        self.cut: set[tuple[NodeId, NodeId]] = set()
        """Ways (sender, receiver) on which packets vanish, while those back arrive."""
        self.refused: set[tuple[NodeId, NodeId]] = set()
        """Ways on which something between refuses connections, though the receiver may live."""
        settings = QuorumConfig() if config is None else config
        self.members = {
            NodeId(node_id): MemoryMember(
                settings, identity(node_id, voter_ids), chance, self.invariants
            )
            for node_id in (*voter_ids, *observer_ids)
        }
        self.narrate: Callable[[str], None] = _say_nothing
        """Hears every line of what happens."""
        self._token = 0
        self._routes: dict[int, tuple[NodeId, Callable[[Response | None], None]]] = {}
        """Who has each unanswered request, and where its answer goes."""
        self._sequence = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._wakes: dict[NodeId, int | None] = dict.fromkeys(self.members)

    # --- what a test does ---------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Start nodes (all without arguments) and give them their first tick."""
        for node_id in node_ids or tuple(self.members):
            member = self.members[NodeId(node_id)]
            member.flushes_at_once = self.weather.flush_ms_max == 0
            member.start(self.now_ms)
            self.step(NodeId(node_id), Tick())

    def crash(self, node_id: int, survivor_count: int = 0) -> None:
        """Cut a node's power."""
        self.crash_count += 1
        self.members[NodeId(node_id)].stop(survivor_count)
        self._wakes[NodeId(node_id)] = None

    def kill(self, node_id: int) -> None:
        """End a node's process: its files stay, and its kernel closes its connections."""
        member = self.members[NodeId(node_id)]
        self.crash(node_id, survivor_count=member.log.end_offset - member.log.flushed_offset)
        for token in [token for token, (node, _) in self._routes.items() if node == node_id]:
            self._routes.pop(token)[1](None)

    def part(self, *sides: tuple[int, ...]) -> None:
        """Cut the network between the nodes of different sides; nodes on no side are cut off."""
        side_of = {node: at for at, side in enumerate(sides) for node in side}
        ids = list(self.members)
        self.parted = {
            frozenset({a, b})
            for a in ids
            for b in ids
            if a < b and (a not in side_of or side_of.get(a) != side_of.get(b))
        }

    def heal(self) -> None:
        """Let every packet through again."""
        self.parted = set()
        self.cut = set()
        self.refused = set()

    def propose(self, value: str, at: int | None = None) -> bool:
        """Append a value on some node that believes it leads; return whether there was one."""
        leaders = [
            node for node, member in self.members.items() if member.is_leader and at in (None, node)
        ]
        if not leaders:
            return False
        node_id = leaders[self.chance.below(len(leaders))]
        done = self.members[node_id].propose(value, self.now_ms)
        assert done is not None
        self._after(node_id, *done)
        return True

    def leader_id(self) -> NodeId | None:
        """Return the running leader of the highest epoch."""
        leading = [
            (member.running.epoch, node)
            for node, member in self.members.items()
            if member.is_leader
        ]
        return max(leading)[1] if leading else None

    def run_until(self, end_ms: int) -> None:
        """Let time pass up to `end_ms`."""
        while (instant_ms := self._next_ms()) is not None and instant_ms <= end_ms:
            self.now_ms = max(self.now_ms, instant_ms)
            self._run_one()
        self.now_ms = max(self.now_ms, end_ms)

    def run_until_leader(self, patience_ms: int = 30_000) -> NodeId:
        """Let time pass until a leader has committed an entry of its epoch; return its id."""
        end_ms = self.now_ms + patience_ms
        while self.now_ms < end_ms:
            leader_id = self.leader_id()
            if leader_id is not None:
                core = self.members[leader_id].running
                assert core.epoch_start_offset is not None
                if core.high_watermark > core.epoch_start_offset:
                    return leader_id
            self.run_until(self.now_ms + 1)
        raise AssertionError(f"no leader within {patience_ms} ms")

    def step(self, node_id: NodeId, event: Event) -> None:
        """Step one running node and put what comes of it on the agenda."""
        member = self.members[node_id]
        self.step_count += 1
        self._after(node_id, *member.step(event, self.now_ms))

    # --- what comes of a step -----------------------------------------------------------------

    def _after(
        self, node_id: NodeId, answers: list[tuple[int, Response]], effects: Effects
    ) -> None:
        member = self.members[node_id]
        self._wakes[node_id] = effects.next_wake_ms
        if self.narrate is not _say_nothing:
            for line in tell_effects(effects):
                self.narrate(f"{node_id} {line}")
        if member.wants_flush:
            member.wants_flush = False
            self._schedule_flush(node_id, member)
        elif effects.flush:
            self._later(0, self._guarded(node_id, Flushed(end_offset=member.log.end_offset)))
        for token, response in answers:
            self._routes.pop(token)[1](response)
        for outgoing in effects.messages:
            self._send(node_id, outgoing)

    def _schedule_flush(self, node_id: NodeId, member: MemoryMember) -> None:
        end_offset, incarnation = member.log.end_offset, member.incarnation

        def finish() -> None:
            if member.core is not None and member.incarnation == incarnation:
                self.step(node_id, Flushed(end_offset=member.log.flush(end_offset)))

        self._later(1 + self.chance.below(self.weather.flush_ms_max), finish)

    def _guarded(self, node_id: NodeId, event: Event) -> Callable[[], None]:
        """Return a delivery that a crash in between makes void."""
        member = self.members[node_id]
        incarnation = member.incarnation

        def deliver() -> None:
            if member.core is not None and member.incarnation == incarnation:
                self.step(node_id, event)

        return deliver

    def _send(self, sender: NodeId, outgoing: Outgoing) -> None:
        receiver = outgoing.to
        if self.narrate is not _say_nothing:
            self.narrate(tell_request(sender, outgoing))
        answer_to = self._guarded_response(sender, outgoing)
        copies = 2 if self.chance.random() < self.weather.repeat else 1
        for _ in range(copies):
            self._packet(
                sender, receiver, lambda: self._arrive(sender, receiver, outgoing, answer_to)
            )

    def _guarded_response(
        self, sender: NodeId, outgoing: Outgoing
    ) -> Callable[[NodeId, Response | None], None]:
        incarnation = self.members[sender].incarnation
        member = self.members[sender]

        def deliver(receiver: NodeId, response: Response | None) -> None:
            event: Event = RequestFailed(request_id=outgoing.request_id)
            if response is not None:
                event = ResponseReceived(request_id=outgoing.request_id, response=response)
                if self.narrate is not _say_nothing:
                    self.narrate(tell_response(receiver, sender, response))

            def arrive() -> None:
                if member.core is None or member.incarnation != incarnation:
                    return
                self.step(sender, event)
                if response is None and isinstance(outgoing.request, FetchRequest):
                    self._tell_of_refusal(sender, receiver)

            self._packet(receiver, sender, arrive)

        return deliver

    def _tell_of_refusal(self, node_id: NodeId, leader_id: NodeId) -> None:
        """Have a node know that its leader's address refuses connections, as a driver finds out."""
        core = self.members[node_id].core
        if core is not None and core.leader_id == leader_id:
            self.step(node_id, LeaderRefused(leader_id=leader_id, epoch=core.epoch))

    def _arrive(
        self,
        sender: NodeId,
        receiver: NodeId,
        outgoing: Outgoing,
        answer_to: Callable[[NodeId, Response | None], None],
    ) -> None:
        if self.members[receiver].core is None or (sender, receiver) in self.refused:
            answer_to(receiver, None)  # connection refused
            return
        self._token += 1
        self._routes[self._token] = (receiver, lambda response: answer_to(receiver, response))
        self.step(receiver, RequestReceived(token=self._token, request=outgoing.request))

    def _packet(self, sender: NodeId, receiver: NodeId, arrive: Callable[[], None]) -> None:
        is_lost = self.chance.random() < self.weather.drop

        def deliver() -> None:
            is_parted = frozenset({sender, receiver}) in self.parted
            if not is_parted and (sender, receiver) not in self.cut:
                arrive()

        if not is_lost:
            self._later(1 + self.chance.below(self.weather.latency_ms_max), deliver)

    # --- time ---------------------------------------------------------------------------------

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._agenda, (self.now_ms + delay_ms, self._sequence, action))

    def _next_ms(self) -> int | None:
        instants = [wake for wake in self._wakes.values() if wake is not None]
        if self._agenda:
            instants.append(self._agenda[0][0])
        return min(instants, default=None)

    def _run_one(self) -> None:
        """Do one thing that is due: what is on the agenda first, else the first due tick."""
        if self._agenda and self._agenda[0][0] <= self.now_ms:
            heapq.heappop(self._agenda)[2]()
            return
        for node_id, wake_ms in self._wakes.items():
            if wake_ms is not None and wake_ms <= self.now_ms:
                self._tick(node_id)
                return

    def _tick(self, node_id: NodeId) -> None:
        self.step(node_id, Tick())
        wake_ms = self._wakes[node_id]
        member = self.members[node_id]
        assert member.core is None or wake_ms is None or wake_ms > self.now_ms, (
            f"{node_id} as {member.core.role} asks for another tick at once"
        )


def _say_nothing(line: str) -> None:
    """Narrate to nobody."""
