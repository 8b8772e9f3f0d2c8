"""Random walk on raft: the real raft code without a clock, and an adversary that chooses the next
event.

Every replica has a separate clock, which only its own timers advance, so that any timer may fire
before any message is delivered. Messages are delivered in any order, repeatedly, or never. Fsyncs
end when the adversary decides, and the power fails at any boundary between two effects. The
frequency of each event is drawn for every seed (swarm testing), so that events that are rare in one
run are common in another.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.jepsen.quorum.invariants import Invariants
from ottla.jepsen.quorum.member import MemoryMember
from ottla.jepsen.quorum.world import identity
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.forgeries import FOREIGN_CLUSTER, Forger
from ottla.model.ids import Epoch
from ottla.model.limits import INT32_MAX
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, OutgoingRequest
from ottla.raft.events import (
    Event,
    LeaderRefused,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    Tick,
)
from ottla.raft.messages import EndQuorumEpochRequest, FetchRequest, Request, Response
from ottla.raft.transitions import Role
from ottla.raft.voters import QuorumIdentity

VOTER_COUNTS = (3, 3, 3, 3, 5, 1)
"""Possible numbers of quorum voters. Each run chooses one at random. Three voters reveal nearly
every bug, and sooner than five."""

CONFIG = QuorumConfig(fetch_bytes_max=2, fetch_snapshot_bytes_max=3)
"""Configuration of the simulated quorum. A fetch response has few entries, so that logs and
snapshots are sent in parts."""

CONVERSATION_MAX = 12
"""Maximum number of messages that two replicas exchange while all others wait. It is enough for an
election."""

PACKETS_MAX = 30
"""Largest number of messages between replicas in flight. If it is exceeded, the oldest message is
lost."""

SLEEP_MS = 10_000
"""Time in ms by which a replica's clock is advanced to pass every deadline."""

JUMP_MAX = 1 << 24
"""Largest amount by which one forged message raises a replica's epoch."""

INSISTED_COUNT = 200
"""Number of consecutive forged messages that each raise a replica's epoch."""

STRETCH_MS = 400
"""Time in ms by which a replica's clock is advanced to pass the shorter deadlines only."""


class _Request(NamedTuple):
    """A raft request in flight between two replicas."""

    sender: int
    receiver: int
    life: int
    """Process number of the sender when it sent the request. A later process of the sender does not
    receive the response."""
    outgoing: OutgoingRequest


class _Answer(NamedTuple):
    """A raft response in flight between two replicas."""

    sender: int
    receiver: int
    life: int
    """Process number of the replica that may receive the response. A later process of this replica
    does not receive it."""
    request_id: int
    response: Response


_Packet = _Request | _Answer

_IDENTITIES: dict[tuple[int, int, bool], QuorumIdentity] = {}


def _identity(node_id: int, voter_count: int, is_wiped: bool = False) -> QuorumIdentity:
    """Return the quorum identity of a node among `voter_count` voters. The result is cached,
    because runs are short."""
    key = (node_id, voter_count, is_wiped)
    if key not in _IDENTITIES:
        voters = tuple(range(1, voter_count + 1))
        _IDENTITIES[key] = identity(node_id, voters, is_wiped=is_wiped)
    return _IDENTITIES[key]


class RaftWalk:
    """Search engine that tests raft by random walks (runs of randomly chosen events)."""

    name = "walk"
    subject = "raft"
    budget = 120
    required: tuple[str, ...] = (
        "a log is cut after divergence",
        "a snapshot is installed",
        "power goes between two effects",
        "two believe to lead at once",
        "a leader restarts in its own epoch",
        "a message arrives twice",
        "an election is lost",
        "unflushed entries are lost",
        "an entry is committed by a later epoch",
        "a wiped voter comes back",
    )

    has_forger = False

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` actions, with random choices from `chance`.
        Returns the outcome."""
        walk = self.make_walk(chance)
        violation = violation_in(lambda: walk.go(budget))
        walk.figures["commits"] = len(walk.invariants.committed)
        walk.figures["elections"] = len(walk.invariants.leaders)
        return outcome_of(self, chance, walk, violation)

    def make_walk(self, chance: Chance) -> "WalkedQuorum":
        """Return a simulated quorum, and the adversary that chooses its events from the seed."""
        return WalkedQuorum(chance, has_forger=self.has_forger)


class ForgedRaftWalk(RaftWalk):
    """Search engine that tests raft by random walks with forged messages."""

    subject = "raft-forged"
    required = (
        *RaftWalk.required,
        "a forged request is answered",
        "a forged answer arrives",
        "a forger says the same again and again",
        "a leader's address refuses",
    )
    has_forger = True


class WalkedQuorum:
    """One simulated quorum, and the adversary that chooses its events from one seed."""

    voter_counts: tuple[int, ...] = VOTER_COUNTS

    def __init__(self, chance: Chance, *, has_forger: bool = False) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {"power cuts": 0, "black-outs": 0, "proposals": 0}
        self.invariants = Invariants()
        self.voter_count = self.voter_counts[chance.below(len(self.voter_counts))]
        self._rng = chance.stream("cores")
        node_count = self.voter_count + self.observer_count()
        self.members = [self.make_member(self.identity_of(at)) for at in range(node_count)]
        self._clocks = [0] * node_count
        self._wakes: list[int | None] = [None] * node_count
        self._packets: list[_Packet] = []
        self._routes: dict[int, _Request] = {}
        """Requests between replicas that wait for a response, by the token that identifies the
        request."""
        self._forged: dict[int, None] = {}
        """Tokens that identify forged requests, in the order of sending. Responses to them are
        dropped."""
        self._token = 0
        self._forger = Forger(chance, self.members[0].identity)
        self._has_forger = has_forger
        self._blocked: set[tuple[int, int]] = set()
        self._wiped: set[int] = set()
        self._leaving: set[int] = set()
        """Indexes of the replicas whose shutdown was requested."""
        self._order = chance.below(3)
        """Order in which this run delivers messages in flight. 0: oldest first; 1: random; 2:
        newest first."""
        self._is_quiet = chance.below(4) > 0
        """True if this run drops fetches of replicas that search for a leader. Most of these
        fetches have no effect."""
        self._survivors_max = 1 + chance.below(3)
        for member in self.members:
            member.flushes_at_once = False
            member.is_lied_to = has_forger
        for at in range(node_count):
            self._start(at)
        self._actions = self._draw_actions()

    def observer_count(self) -> int:
        """Return the number of replicas that are not voters of the quorum at the start."""
        return int(self.chance.chance(0.1))

    def identity_of(self, at: int, *, is_wiped: bool = False) -> QuorumIdentity:
        """Return the quorum identity of the replica with index `at`. If `is_wiped`, the replica has
        a new disk, otherwise its first disk."""
        return _identity(at + 1, self.voter_count, is_wiped)

    def make_member(self, whoami: QuorumIdentity) -> MemoryMember:
        """Return a new replica of the quorum without any data."""
        return MemoryMember(CONFIG, whoami, self._rng, self.invariants)

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the quorum. A replayed run may end earlier.
        Then check the end state."""
        self.walk(budget)
        self.invariants.check_end()

    def walk(self, budget: int) -> None:
        """Perform at most `budget` random actions on the quorum. A replayed run may end earlier."""
        for action in actions_taken(self.chance, self._actions, budget):
            action()

    def _draw_actions(self) -> list[Callable[[], None]]:
        """Return the actions of the adversary. The list contains each action as often as its weight
        in this random walk."""
        rows: tuple[tuple[Callable[[], None], int, bool], ...] = (
            (self._deliver, 30, True),
            (self._converse, 8, True),
            (self._campaign, 4, True),
            (self._flush, 12, True),
            (self._fire, 8, True),
            (self._propose, 8, True),
            (self._repeat, 4, False),
            (self._lose, 4, False),
            (self._crash, 3, False),
            (self._restart, 6, True),
            (self._doom, 3, False),
            (self._part, 2, False),
            (self._heal, 2, True),
            (self._snapshot, 2, False),
            (self._resign, 1, False),
            (self._black_out, 1, False),
            (self._wipe, 1, False),
            *self.more_actions(),
        )
        return drawn_actions(self.chance, rows)

    def more_actions(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return the actions that a subclass adds to the adversary, in the form that
        `drawn_actions` expects."""
        if not self._has_forger:
            return ()
        return (
            (self._forge, 6, True),
            (self._insist, 2, False),
            (self._refuse, 3, False),
        )

    # --- messages -----------------------------------------------------------------------------

    def _choose_packet(self) -> int:
        """Return the index of the message in flight to deliver next. Usually only a few messages
        are in flight."""
        count = len(self._packets)
        if self._order == 0:
            return 0
        at = self.chance.below(count)
        return at if self._order == 1 else count - 1 - at // 2

    def _deliver(self) -> None:
        if not self._packets:
            self._fire()
            return
        self._arrive(self._packets.pop(self._choose_packet()))

    def _converse(self) -> None:
        """Deliver messages between two random replicas and flush their logs, while all other
        replicas wait."""
        first, second = self._pair()
        self._let_talk(first, second, 1 + self.chance.below(CONVERSATION_MAX))

    def _campaign(self) -> None:
        """Start an election by a replica that exchanges messages with one voter only. Half of all
        bugs need many elections."""
        first, second = self._pair()
        for at in (second, first):
            if self.members[at].core is None:
                self._start(at)
            else:
                self._sleep(at, SLEEP_MS)
            if self.members[at].core is None:
                return
        self._let_talk(first, second, self.chance.below(CONVERSATION_MAX))

    def _pair(self) -> tuple[int, int]:
        count = len(self.members)
        first = self.chance.below(count)
        return first, (first + 1 + self.chance.below(max(1, count - 1))) % count

    def _let_talk(self, first: int, second: int, count: int) -> None:
        """Deliver up to `count` messages between two replicas. If no message is in flight between
        them, flush their logs."""
        ways = ((first, second), (second, first))
        packets = self._packets
        for _ in range(count):
            for place, packet in enumerate(packets):
                if (packet[0], packet[1]) in ways:
                    self._arrive(packets.pop(place))
                    break
            else:
                waiting = [at for at in (first, second) if self.members[at].wants_flush]
                if not waiting:
                    return
                self._finish_flush(waiting[0], 0)

    def _repeat(self) -> None:
        if self._packets:
            self.rare.sometimes("a message arrives twice")
            self._arrive(self._packets[self._choose_packet()])

    def _lose(self) -> None:
        if not self._packets:
            return
        packet = self._packets.pop(self._choose_packet())
        if isinstance(packet, _Request) and self.chance.below(2):
            self._fail(packet)

    def _arrive(self, packet: _Packet) -> None:
        receiver = packet.receiver
        if receiver >= len(self.members):
            # A forged message may name a leader outside the voter set. Nothing listens at its
            # address.
            if isinstance(packet, _Request):
                self.rare.sometimes("a leader's address refuses")
                self._fail(packet)
            return
        member = self.members[receiver]
        if (packet.sender, receiver) in self._blocked:
            return
        if isinstance(packet, _Request):
            if member.core is None or not self.is_reached(receiver, packet.outgoing):
                self._fail(packet)
                return
            self._token += 1
            self._routes[self._token] = packet
            self._step(
                receiver, RequestReceived(token=self._token, request=packet.outgoing.request)
            )
        elif member.core is not None and member.incarnation == packet.life:
            self._step(
                receiver,
                ResponseReceived(request_id=packet.request_id, response=packet.response),
            )

    def is_reached(self, receiver: int, outgoing: OutgoingRequest) -> bool:
        """Return whether a raft request's endpoints include the address of its receiver."""
        return True

    def _fail(self, packet: _Request) -> None:
        """Report to the replica that sent a request that no response will arrive."""
        member = self.members[packet.sender]
        if member.core is not None and member.incarnation == packet.life:
            self._step(packet.sender, RequestFailed(request_id=packet.outgoing.request_id))

    def _part(self) -> None:
        """Cut some network links between replicas: either all links of one replica, or random
        links."""
        count = len(self.members)
        lonely = self.chance.below(count)
        kind = self.chance.below(3)
        ways = [(lonely, other) for other in range(count) if other != lonely]
        back = [(b, a) for a, b in ways]
        self._blocked = set((ways + back, ways, back)[kind])

    def _heal(self) -> None:
        self._blocked = set()

    def _forge(self) -> None:
        """Send a forged request to a replica, or replace a response by a forged one."""
        at = self.chance.below(len(self.members))
        answers = [place for place, one in enumerate(self._packets) if isinstance(one, _Answer)]
        if answers and self.chance.below(3) == 2:
            packet = self._packets.pop(answers[self.chance.below(len(answers))])
            assert isinstance(packet, _Answer)
            self.rare.sometimes("a forged answer arrives")
            self._arrive(packet._replace(response=self._forger.response(packet.response)))
        else:
            self._send_forged(at)

    def _insist(self) -> None:
        """Raise a replica's epoch repeatedly by forged messages, each time as far as the replica
        accepts, up to a limit of messages."""
        at = self.chance.below(len(self.members))
        step = 1 << (1 + self.chance.below(25))
        sender = self.members[self.chance.below(self.voter_count)].identity
        self.rare.sometimes("a forger says the same again and again")
        for _ in range(INSISTED_COUNT):
            core = self.members[at].core
            if core is None:
                return
            goodbye = EndQuorumEpochRequest(
                cluster_id=sender.cluster_id,
                leader_id=sender.node_id,
                leader_epoch=Epoch(min(INT32_MAX, core.epoch + step)),
            )
            self._take_forged(at, goodbye)
            if core.epoch > INT32_MAX // 2:
                raise Violation("EpochsKeepRoom", f"replica {at} is in epoch {core.epoch}")

    def _refuse(self) -> None:
        """Report to a replica that its leader refuses connections. This may happen although the
        leader is running."""
        at = self.chance.below(len(self.members))
        core = self.members[at].core
        if core is None or core.leader_id is None or core.is_leader:
            return
        self.rare.sometimes("a leader's address refuses")
        self._step(at, LeaderRefused(leader_id=core.leader_id, epoch=core.epoch))

    def _send_forged(self, at: int) -> None:
        core = self.members[at].core
        if core is None:
            return
        node = self.members[at].identity.node_id
        self._take_forged(at, self._forger.request(node, core.epoch))

    def _take_forged(self, at: int, request: Request) -> None:
        self._token += 1
        self._forged[self._token] = None
        core = self.members[at].core
        assert core is not None
        epoch = core.epoch
        self._step(at, RequestReceived(token=self._token, request=request))
        core = self.members[at].core
        if core is None:
            return
        if core.epoch - epoch > JUMP_MAX:
            raise Violation("ForgedEpochsAreRefused", f"{epoch} became {core.epoch} by {request}")
        if core.epoch != epoch and request.cluster_id == FOREIGN_CLUSTER:
            raise Violation("StrangersChangeNothing", f"{epoch} became {core.epoch} by {request}")

    # --- time and disks -----------------------------------------------------------------------

    def _fire(self) -> None:
        """Advance a replica's clock to its next timer, or beyond several timers."""
        at = self.chance.below(len(self.members))
        if self.members[at].core is None:
            return
        wake_ms = self._wakes[at]
        now_ms = self._clocks[at]
        kind = self.chance.below(3)
        if kind == 0 and wake_ms is not None:
            self._sleep(at, max(0, wake_ms - now_ms))
        else:
            self._sleep(at, SLEEP_MS if kind == 2 else STRETCH_MS)

    def _sleep(self, at: int, duration_ms: int) -> None:
        self._clocks[at] += duration_ms
        self._step(at, Tick())

    def _flush(self) -> None:
        """End the fsync of a random replica's log. The fsync may cover all written entries or only
        a part of them."""
        waiting = [at for at, member in enumerate(self.members) if member.wants_flush]
        if not waiting:
            self._deliver()
            return
        at = waiting[self.chance.below(len(waiting))]
        log = self.members[at].log
        left = self.chance.below(2) if log.end_offset - log.flushed_offset > 1 else 0
        self._finish_flush(at, left)

    def _finish_flush(self, at: int, left: int) -> None:
        """End an fsync of the replica with index `at`. The fsync began before the last `left`
        entries were written."""
        member = self.members[at]
        log = member.log
        end_offset = member.flush(left)
        if member.is_cut:
            self._stop(at)
            return
        member.wants_flush = log.end_offset > end_offset
        self._step(at, LogFlushed(end_offset=end_offset))

    def _snapshot(self) -> None:
        self._snapshot_of(self.chance.below(len(self.members)))

    def _snapshot_of(self, at: int) -> None:
        member = self.members[at]
        if member.core is None:
            return
        log = member.log
        offset = min(member.core.high_watermark, log.flushed_offset)
        latest = log.latest_snapshot_id
        if offset > log.start_offset and (latest is None or latest.offset < offset):
            member.snapshot_at(offset, keeps_log=self.chance.below(2) == 1)
            if member.is_cut:
                self._stop(at)

    # --- crashes ------------------------------------------------------------------------------

    def _crash(self) -> None:
        at = self.chance.below(len(self.members))
        if self.members[at].core is not None:
            self._stop(at)

    def _doom(self) -> None:
        """Schedule a power cut of a replica within its next effects (disk writes and messages)."""
        at = self.chance.below(len(self.members))
        self.members[at].cut_power_after(self.chance.below(5))

    def _black_out(self) -> None:
        """Cut the power of all replicas at once. Entries that no replica has flushed are lost."""
        self.figures["black-outs"] += 1
        for at, member in enumerate(self.members):
            if member.core is not None:
                self._stop(at)

    def _stop(self, at: int) -> None:
        member = self.members[at]
        self.figures["power cuts"] += 1
        end_offset = member.log.end_offset
        member.stop(self.chance.below(self._survivors_max))
        if member.log.end_offset < end_offset:
            self.rare.sometimes("unflushed entries are lost")
        self._wakes[at] = None
        self.trace.add("stop", at, member.log.end_offset)

    def _restart(self) -> None:
        down = [at for at, member in enumerate(self.members) if member.core is None]
        if down:
            self._start(down[self.chance.below(len(down))])
        else:
            self._deliver()

    def _start(self, at: int) -> None:
        member = self.members[at]
        self._leaving.discard(at)
        member.start(self._clocks[at])
        if member.running.role is Role.RESIGNED:
            self.rare.sometimes("a leader restarts in its own epoch")
        self._step(at, Tick())

    def _wipe(self) -> None:
        """Replace the disk of a stopped voter. The replica on the new disk has the same id, but is
        not a voter (KIP-853)."""
        down = [at for at in range(self.voter_count) if self.members[at].core is None]
        if not down or self._wiped or self.voter_count < 3:
            return
        at = down[self.chance.below(len(down))]
        self._wiped.add(at)
        self.rare.sometimes("a wiped voter comes back")
        whoami = self.identity_of(at, is_wiped=True)
        member = self.make_member(whoami)
        member.flushes_at_once = False
        member.is_lied_to = self._has_forger
        member.incarnation = self.members[at].incarnation
        self.members[at] = member
        self.trace.add("wipe", at)
        self._start(at)

    # --- the application ----------------------------------------------------------------------

    def _propose(self) -> None:
        leading = [at for at, member in enumerate(self.members) if member.is_leader]
        if not leading:
            self._deliver()
            return
        if len(leading) > 1:
            self.rare.sometimes("two believe to lead at once")
        at = leading[self.chance.below(len(leading))]
        self.figures["proposals"] += 1
        done = self.members[at].propose(f"v{self.figures['proposals']}", self._clocks[at])
        assert done is not None
        self._after(at, *done)

    def _resign(self) -> None:
        leading = [at for at, member in enumerate(self.members) if member.is_leader]
        if not leading:
            return
        at = leading[self.chance.below(len(leading))]
        epoch = self.members[at].running.epoch
        if self.chance.below(4) == 3:
            self._leaving.add(at)
            self._step(at, ShutdownRequested())
        else:
            self._step(at, ResignRequested(epoch=epoch))

    # --- steps --------------------------------------------------------------------------------

    def _step(self, at: int, event: Event) -> None:
        self._after(at, *self.members[at].step(event, self._clocks[at]))

    def _after(self, at: int, answers: list[tuple[int, Response]], effects: Effects) -> None:
        """Put the messages that a replica has just produced into the simulated network, and count
        the rare states that the replica has reached."""
        member = self.members[at]
        core = member.core
        assert core is not None
        log = member.log
        packets = self._packets
        self._wakes[at] = effects.next_wake_ms
        for token, response in answers:
            if token not in self._routes:
                self.note_answer(token, response)
                continue
            asked = self._routes.pop(token)
            packets.append(
                _Answer(at, asked.sender, asked.life, asked.outgoing.request_id, response)
            )
        for outgoing in effects.messages:
            request = outgoing.request
            if self._is_quiet and isinstance(request, FetchRequest) and not request.wait_ms_max:
                continue
            packets.append(_Request(at, outgoing.to - 1, member.incarnation, outgoing))
        while len(packets) > PACKETS_MAX:
            packets.pop(0)
        self.trace.add(
            at, core.epoch, log.end_offset, core.high_watermark, len(answers), len(effects.messages)
        )
        if effects.truncate_to is not None:
            self.rare.sometimes("a log is cut after divergence")
        if effects.snapshot_chunk is not None and effects.snapshot_chunk.is_last:
            self.rare.sometimes("a snapshot is installed")
        if effects.role_change is not None:
            self._note_role(effects)
        if effects.high_watermark is not None and core.is_leader:
            self._note_commit(core.epoch)
        if member.is_cut:
            self.rare.sometimes("power goes between two effects")
            self._stop(at)

    def note_answer(self, token: int, response: Response) -> None:
        """Record the response to a request that the adversary, not a replica, has sent. `token`
        identifies the request."""
        del self._forged[token]
        self.rare.sometimes("a forged request is answered")

    def _note_role(self, effects: Effects) -> None:
        change = effects.role_change
        assert change is not None
        self.trace.add(change.role.value, change.leader_id or 0)
        if change.role is Role.PROSPECTIVE and change.epoch > 1:
            self.rare.sometimes("an election is lost")

    def _note_commit(self, epoch: int) -> None:
        if any(entry.epoch < epoch for entry in self.invariants.committed[-3:]):
            self.rare.sometimes("an entry is committed by a later epoch")
