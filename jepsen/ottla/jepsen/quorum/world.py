"""Members of one raft quorum in virtual time, and a network that loses, repeats, delays and
partitions messages.

The same seed results in the same history. The code never sleeps. All random numbers come from the
`Rng` that the caller passes, in the order of events.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ottla.jepsen.quorum.invariants import Invariants
from ottla.jepsen.quorum.member import MemoryMember
from ottla.jepsen.quorum.narrator import effect_lines, request_line, response_line
from ottla.model.ids import NodeId
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, OutgoingRequest
from ottla.raft.events import (
    Event,
    LeaderRefused,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    Tick,
)
from ottla.raft.messages import FetchRequest, Request, Response
from ottla.raft.voters import QuorumIdentity, Voter, VoterEndpoint, VoterSet

CLUSTER_ID = "b3R0bGEtd29ybGQtMDAwMQ"


@dataclass(slots=True, kw_only=True)
class FaultRates:
    """Fault rates of the simulated network and disks, as probabilities in `[0, 1)` or
    milliseconds."""

    drop: float = 0.0
    repeat: float = 0.0
    latency_ms_max: int = 5
    flush_ms_max: int = 0


def voter(node_id: int) -> Voter:
    """Return a quorum voter. Its directory id and its endpoint are derived from its node id."""
    return Voter(
        id=NodeId(node_id),
        directory_id=UUID(int=1000 + node_id),
        endpoints=(VoterEndpoint("CONTROLLER", f"host-{node_id}", 9093),),
    )


def controller(
    node_id: int,
    voter_ids: tuple[int, ...],
    *,
    disk: int = 1,
    joins_automatically: bool = False,
    endpoints: tuple[VoterEndpoint, ...] | None = None,
    are_voters_fixed: bool = False,
) -> QuorumIdentity:
    """Return the quorum identity of a controller that is a voter or may become one. `disk` numbers
    the directories of one node id: its first disk is 1."""
    named = voter(node_id)
    return QuorumIdentity(
        node_id=named.id,
        directory_id=UUID(int=1000 * disk + node_id),
        cluster_id=CLUSTER_ID,
        voters=VoterSet(tuple(voter(each) for each in voter_ids)),
        is_controller=True,
        endpoints=named.endpoints if endpoints is None else endpoints,
        are_voters_fixed=are_voters_fixed,
        joins_automatically=joins_automatically,
    )


def identity(node_id: int, voter_ids: tuple[int, ...], *, is_wiped: bool = False) -> QuorumIdentity:
    """Return the quorum identity of a node, with the voters of `voter_ids`. A wiped node has a
    directory id that the voters do not know."""
    return QuorumIdentity(
        node_id=NodeId(node_id),
        directory_id=UUID(int=(9000 if is_wiped else 1000) + node_id),
        cluster_id=CLUSTER_ID,
        voters=VoterSet(tuple(voter(each) for each in voter_ids)),
    )


class World:
    """Simulation of one raft quorum, with its network and its virtual time."""

    def __init__(
        self,
        chance: Rng,
        *,
        voter_ids: tuple[int, ...],
        observer_ids: tuple[int, ...] = (),
        config: QuorumConfig | None = None,
        fault_rates: FaultRates | None = None,
    ) -> None:
        self.now_ms = 0
        self.chance = chance
        self.fault_rates = FaultRates() if fault_rates is None else fault_rates
        self.invariants = Invariants()
        self.step_count = 0
        self.crash_count = 0
        self.parted: set[frozenset[NodeId]] = set()
        """Pairs of nodes between which all packets are lost, in both directions."""
        self.cut: set[tuple[NodeId, NodeId]] = set()
        """Pairs (sender, receiver) of nodes whose packets are lost in this direction only."""
        self.refused: set[tuple[NodeId, NodeId]] = set()
        """Pairs (sender, receiver) of nodes for which a middlebox refuses connections, though the
        receiver may be alive."""
        self._config = QuorumConfig() if config is None else config
        self.members = {
            NodeId(node_id): MemoryMember(
                self._config, identity(node_id, voter_ids), chance, self.invariants
            )
            for node_id in (*voter_ids, *observer_ids)
        }
        self.narrate: Callable[[str], None] = _say_nothing
        """Function that receives a line of text for each event of the simulation."""
        self._token = 0
        self._routes: dict[int, tuple[NodeId, Callable[[Response | None], None]]] = {}
        """For each unanswered request, the node that sent it and the function that accepts its
        response."""
        self._sequence = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._wakes: dict[NodeId, int | None] = dict.fromkeys(self.members)

    # --- actions of a test -------------------------------------------------------------------

    def add(self, whoami: QuorumIdentity) -> MemoryMember:
        """Add and return a replica with an empty disk, not yet started. It replaces a replica with
        the same id."""
        member = MemoryMember(self._config, whoami, self.chance, self.invariants)
        old = self.members.get(whoami.node_id)
        if old is not None:
            member.incarnation = old.incarnation
        self.members[whoami.node_id] = member
        self._wakes[whoami.node_id] = None
        return member

    def ask(self, node_id: int, request: Request, patience_ms: int = 10_000) -> Response:
        """Send a request to a node, advance the virtual time until its response arrives, and return
        the response. `patience_ms` limits the time."""
        found: list[Response | None] = []
        self._token += 1
        token = self._token
        self._routes[token] = (NodeId(node_id), found.append)
        self.step(NodeId(node_id), RequestReceived(token=token, request=request))
        end_ms = self.now_ms + patience_ms
        while not found and self.now_ms < end_ms:
            self.run_until(self.now_ms + 1)
        assert found and found[0] is not None, f"no response within {patience_ms} ms"
        return found[0]

    def start(self, *node_ids: int) -> None:
        """Start the nodes `node_ids`, or all nodes if `node_ids` is empty. Each started node
        receives the current time once."""
        for node_id in node_ids or tuple(self.members):
            member = self.members[NodeId(node_id)]
            member.flushes_at_once = self.fault_rates.flush_ms_max == 0
            member.start(self.now_ms)
            self.step(NodeId(node_id), Tick())

    def crash(self, node_id: int, survivor_count: int = 0) -> None:
        """Cut a node's power. Its log loses all unflushed entries except the first
        `survivor_count`."""
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
        """Partition the simulated network into `sides`. A node that belongs to no side is
        isolated."""
        side_of = {node: at for at, side in enumerate(sides) for node in side}
        ids = list(self.members)
        self.parted = {
            frozenset({a, b})
            for a in ids
            for b in ids
            if a < b and (a not in side_of or side_of.get(a) != side_of.get(b))
        }

    def heal(self) -> None:
        """Remove all network partitions of the simulation."""
        self.parted = set()
        self.cut = set()
        self.refused = set()

    def propose(self, value: str, at: int | None = None) -> bool:
        """Append a value to the log of the node `at`. If `at` is None, any node that considers
        itself the leader is used. Returns False if there is no such node."""
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
        """Return the id of the running leader with the highest epoch, or None if no running node
        leads."""
        leading = [
            (member.running.epoch, node)
            for node, member in self.members.items()
            if member.is_leader
        ]
        return max(leading)[1] if leading else None

    def run_until(self, end_ms: int) -> None:
        """Advance the virtual time to `end_ms`, and run all actions that are due until then."""
        while (instant_ms := self._next_ms()) is not None and instant_ms <= end_ms:
            self.now_ms = max(self.now_ms, instant_ms)
            self._run_one()
        self.now_ms = max(self.now_ms, end_ms)

    def run_until_leader(self, patience_ms: int = 30_000) -> NodeId:
        """Advance the virtual time until a leader has committed an entry of its epoch. Returns its
        id. `patience_ms` limits the time."""
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
        """Pass an event to one running node, and schedule the delivery of its messages and
        responses."""
        member = self.members[node_id]
        self.step_count += 1
        self._after(node_id, *member.step(event, self.now_ms))

    # --- consequences of a step ---------------------------------------------------------------

    def _after(
        self, node_id: NodeId, answers: list[tuple[int, Response]], effects: Effects
    ) -> None:
        member = self.members[node_id]
        self._wakes[node_id] = effects.next_wake_ms
        if self.narrate is not _say_nothing:
            for line in effect_lines(effects):
                self.narrate(f"{node_id} {line}")
        if member.wants_flush:
            member.wants_flush = False
            self._schedule_flush(node_id, member)
        elif effects.flush:
            self._later(0, self._guarded(node_id, LogFlushed(end_offset=member.log.end_offset)))
        for token, response in answers:
            self._routes.pop(token)[1](response)
        for outgoing in effects.messages:
            self._send(node_id, outgoing)

    def _schedule_flush(self, node_id: NodeId, member: MemoryMember) -> None:
        end_offset, incarnation = member.log.end_offset, member.incarnation

        def finish() -> None:
            if member.core is not None and member.incarnation == incarnation:
                self.step(node_id, LogFlushed(end_offset=member.log.flush(end_offset)))

        self._later(1 + self.chance.below(self.fault_rates.flush_ms_max), finish)

    def _guarded(self, node_id: NodeId, event: Event) -> Callable[[], None]:
        """Return a function that passes an event to a node, unless the node has crashed since this
        call."""
        member = self.members[node_id]
        incarnation = member.incarnation

        def deliver() -> None:
            if member.core is not None and member.incarnation == incarnation:
                self.step(node_id, event)

        return deliver

    def _send(self, sender: NodeId, outgoing: OutgoingRequest) -> None:
        receiver = outgoing.to
        if self.narrate is not _say_nothing:
            self.narrate(request_line(sender, outgoing))
        answer_to = self._guarded_response(sender, outgoing)
        copies = 2 if self.chance.random() < self.fault_rates.repeat else 1
        for _ in range(copies):
            self._packet(
                sender, receiver, lambda: self._arrive(sender, receiver, outgoing, answer_to)
            )

    def _guarded_response(
        self, sender: NodeId, outgoing: OutgoingRequest
    ) -> Callable[[NodeId, Response | None], None]:
        incarnation = self.members[sender].incarnation
        member = self.members[sender]

        def deliver(receiver: NodeId, response: Response | None) -> None:
            event: Event = RequestFailed(request_id=outgoing.request_id)
            if response is not None:
                event = ResponseReceived(request_id=outgoing.request_id, response=response)
                if self.narrate is not _say_nothing:
                    self.narrate(response_line(receiver, sender, response))

            def arrive() -> None:
                if member.core is None or member.incarnation != incarnation:
                    return
                self.step(sender, event)
                if response is None and isinstance(outgoing.request, FetchRequest):
                    self._report_refusal(sender, receiver)

            self._packet(receiver, sender, arrive)

        return deliver

    def _report_refusal(self, node_id: NodeId, leader_id: NodeId) -> None:
        """Inform a node that its leader's address refuses connections, as a real driver would."""
        core = self.members[node_id].core
        if core is not None and core.leader_id == leader_id:
            self.step(node_id, LeaderRefused(leader_id=leader_id, epoch=core.epoch))

    def _arrive(
        self,
        sender: NodeId,
        receiver: NodeId,
        outgoing: OutgoingRequest,
        answer_to: Callable[[NodeId, Response | None], None],
    ) -> None:
        is_absent = receiver not in self.members or self.members[receiver].core is None
        if is_absent or (sender, receiver) in self.refused:
            answer_to(receiver, None)  # connection refused
            return
        self._token += 1
        self._routes[self._token] = (receiver, lambda response: answer_to(receiver, response))
        self.step(receiver, RequestReceived(token=self._token, request=outgoing.request))

    def _packet(self, sender: NodeId, receiver: NodeId, arrive: Callable[[], None]) -> None:
        is_lost = self.chance.random() < self.fault_rates.drop

        def deliver() -> None:
            is_parted = frozenset({sender, receiver}) in self.parted
            if not is_parted and (sender, receiver) not in self.cut:
                arrive()

        if not is_lost:
            self._later(1 + self.chance.below(self.fault_rates.latency_ms_max), deliver)

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
        """Run the next due action: the first scheduled one, otherwise the first due tick of a
        node."""
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
    """Ignore a line of text about an event of the simulation."""
