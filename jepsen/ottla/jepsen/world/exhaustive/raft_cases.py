"""Engine D on raft: three voters, a few elections, records and crashes, and every course they take.

The poor man's model checker, on the real core.  It begins where a first leader is followed by all.
Clocks jump over all timers at once; of what one replica asks another only the latest request is
under way; it may be delivered, now or later, or never.  Its answer comes at once, but for a few
that come late or never; one to what is not asked any more is nothing: the core drops it
(`requests.py`).  Those who look for a leader find none by asking around: they are told.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import Outcome
from ottla.jepsen.world.exhaustive.copies import PAST_MS, copy_of, key_of
from ottla.jepsen.world.exhaustive.search import Search, figures_of, follow, search
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import violation_of
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Effects, Outgoing
from ottla.raft.events import Event, Flushed, RequestFailed, RequestReceived, ResponseReceived, Tick
from ottla.raft.leader import _ParkedFetch
from ottla.raft.messages import FetchRequest, Response
from ottla.raft.quorum import QuorumCore
from ottla.raft.testing.invariants import Invariants
from ottla.raft.testing.member import Member
from ottla.raft.testing.world import identity

VOTER_IDS = (1, 2, 3)
CONFIG = QuorumConfig()
SKIPPED = frozenset(
    {
        "config", "identity", "rng", "_rng", "_invariants", "out", "peers", "key", "wake_ms",
        "_last_request_id", "incarnation", "flushes_at_once", "_boundary_count", "is_cut", "log",
        "_now_ms", "last_caught_up_ms", "_leader_end_at_contact", "failure_count", "_backoff_ms",
    }
)  # fmt: skip
"""What does not bear on the course of events, or is counted elsewhere in a key."""


DEPTH_MAX = 40
"""Actions of one course; no budget reaches as far."""

PAIRS = ((0, 1), (0, 2), (1, 2))
"""Who may meet; a pair's place is the sum of its two less one."""

MEETING_MESSAGES_MAX = 16


class Case(NamedTuple):
    """How much of each there is."""

    elections: int
    """Epochs after the first."""
    records: int
    """Proposals, besides what opens each epoch."""
    crashes: int
    late_answers: int
    flushes_at_once: bool
    is_fine: bool
    """Whether messages are delivered one by one, rather than all between two that meet."""


CASES = (
    Case(3, 1, 0, 0, flushes_at_once=True, is_fine=False),
    Case(1, 1, 0, 0, flushes_at_once=True, is_fine=True),
    Case(2, 1, 1, 0, flushes_at_once=False, is_fine=False),
    Case(1, 1, 0, 1, flushes_at_once=True, is_fine=True),
)
"""Chosen by the seed, one after the other."""


class RaftCases:
    """The engine."""

    name = "D"
    subject = "raft"
    budget = 30_000
    required: tuple[str, ...] = ()
    case_count = len(CASES)

    def run(self, chance: Chance, *, budget: int) -> Outcome:
        """Search the seed's case, in at most `budget` steps; or follow one course of it."""
        case = CASES[chance.seed % len(CASES)]
        trace = Trace()
        try:
            start = QuorumState(case)
        except Exception as error:
            found = Search(0, 0, violation_of(error), (), 0)
        else:
            found = _seen(start, chance, budget, trace)
        figures = figures_of(found)
        return Outcome(
            self.name,
            self.subject,
            chance.seed,
            found.step_count,
            0,
            figures,
            {},
            trace.hash,
            found.violation,
            found.path,
        )


def _seen(start: "QuorumState", chance: Chance, budget: int, trace: Trace) -> Search:
    """Search from a state on, or follow the one course that a replay names."""
    if chance.is_replay:
        violation = follow(start, chance, depth_max=DEPTH_MAX, trace=trace)
        return Search(0, trace.event_count, violation, tuple(chance.decisions), 0)
    return search(start, depth_max=DEPTH_MAX, step_count_max=budget, trace=trace)


class _NoChance:
    """An Rng without chance: what it would draw does not matter to a clock that jumps."""

    def random(self) -> float:
        return 0.0

    def below(self, bound: int) -> int:
        return 0

    def uuid(self) -> UUID:
        return UUID(int=0)


class _Request(NamedTuple):
    sender: int
    receiver: int
    outgoing: Outgoing


class _Answer(NamedTuple):
    sender: int
    receiver: int
    request_id: int
    response: Response


class QuorumState:
    """Three members, their clocks, and what is under way."""

    __slots__ = (
        "_case",
        "_clocks",
        "_crash_count",
        "_invariants",
        "_key",
        "_late_count",
        "_member_keys",
        "_members",
        "_packets",
        "_record_count",
        "_routes",
        "_token",
    )

    def __init__(self, case: Case) -> None:
        self._case = case
        self._invariants = Invariants()
        self._members = [
            Member(CONFIG, identity(each, VOTER_IDS), _NoChance(), self._invariants)
            for each in VOTER_IDS
        ]
        self._clocks = [0] * len(VOTER_IDS)
        self._member_keys: list[Hashable] = [None] * len(VOTER_IDS)
        self._packets: list[_Request | _Answer] = []
        self._routes: dict[int, _Request] = {}
        self._token = 0
        self._record_count = 0
        self._crash_count = 0
        self._late_count = 0
        self._key: Hashable = None
        for at in range(len(VOTER_IDS)):
            self._members[at].start(0)
            self._step(at, Tick())
        while self._packets:
            self._do_deliver(0)
        for member in self._members:
            member.flushes_at_once = case.flushes_at_once
        assert self._members[0].is_leader

    # --- what the search asks -----------------------------------------------------------------

    def key(self) -> Hashable:
        """Return what makes this state this one."""
        if self._key is None:
            judge = self._invariants
            self._key = (
                tuple(self._member_key(at) for at in range(len(VOTER_IDS))),
                frozenset(self._packet_key(packet) for packet in self._packets),
                self._record_count,
                self._crash_count,
                self._late_count,
                tuple(judge.committed),
                tuple(sorted(judge.leaders.items())),
            )
        return self._key

    def actions(self) -> Sequence[str]:
        """Return what may happen next: messages first, then disks, proposals, timers, crashes."""
        case = self._case
        if case.is_fine:
            names = [f"deliver {at}" for at in range(len(self._packets))]
        else:
            met = sorted({_pair_of(packet) for packet in self._packets})
            names = [f"meet {first + second - 1}" for first, second in met]
        if case.is_fine and self._late_count < case.late_answers:
            names += [
                f"half {at}"
                for at, packet in enumerate(self._packets)
                if isinstance(packet, _Request)
            ]
        for at, member in enumerate(self._members):
            if member.core is None:
                names.append(f"start {at}")
                continue
            if member.wants_flush:
                names.append(f"flush {at}")
            if member.is_leader and self._record_count < case.records:
                names.append(f"propose {at}")
            names.append(f"sleep {at}")
            if self._crash_count < case.crashes:
                names.append(f"crash {at}")
        return names

    def take(self, action: str) -> "QuorumState | None":
        """Return the state after an action; None beyond the case's last election."""
        kind, _, place = action.partition(" ")
        at = int(place)
        changing = {at}
        if kind == "meet":
            changing = set(PAIRS[at])
        elif kind in ("deliver", "half"):
            changing = {self._packets[at].sender, self._packets[at].receiver}
        following = self._copy(changing)
        getattr(following, f"_do_{kind}")(at)
        epoch_max = max(
            member.core.epoch for member in following._members if member.core is not None
        )
        if epoch_max > 1 + self._case.elections:
            return None
        following._forget_what_is_over()
        return following

    # --- actions ------------------------------------------------------------------------------

    def _do_deliver(self, at: int) -> None:
        """Deliver an answer, or a request and its answer if there is one at once."""
        packet = self._packets[at]
        self._arrive(at)
        for place, answer in enumerate(self._packets):
            is_its = isinstance(packet, _Request) and isinstance(answer, _Answer)
            if is_its and answer[:3] == _answer_of(packet):
                self._arrive(place)
                return

    def _do_meet(self, at: int) -> None:
        """Let two talk until they have nothing more to say."""
        for _ in range(MEETING_MESSAGES_MAX):
            packets = enumerate(self._packets)
            place = next((at_ for at_, each in packets if _pair_of(each) == PAIRS[at]), None)
            if place is None:
                return
            self._arrive(place)

    def _do_half(self, at: int) -> None:
        """Deliver a request; its answer may come late."""
        self._late_count += 1
        self._arrive(at)

    def _arrive(self, at: int) -> None:
        packet = self._packets.pop(at)
        if self._members[packet.receiver].core is None:
            return
        if isinstance(packet, _Request):
            self._token += 1
            self._routes[self._token] = packet
            event: Event = RequestReceived(token=self._token, request=packet.outgoing.request)
        else:
            event = ResponseReceived(request_id=packet.request_id, response=packet.response)
        self._step(packet.receiver, event)

    def _do_flush(self, at: int) -> None:
        member = self._members[at]
        member.wants_flush = False
        self._step(at, Flushed(end_offset=member.log.flush()))

    def _do_propose(self, at: int) -> None:
        self._record_count += 1
        done = self._members[at].propose(f"v{self._record_count}", self._clocks[at])
        assert done is not None
        self._after(at, *done)

    def _do_sleep(self, at: int) -> None:
        self._clocks[at] += PAST_MS
        self._step(at, Tick())

    def _do_crash(self, at: int) -> None:
        self._crash_count += 1
        self._members[at].stop()
        self._member_keys[at] = None

    def _do_start(self, at: int) -> None:
        self._members[at].start(self._clocks[at])
        self._step(at, Tick())

    def _step(self, at: int, event: Event) -> None:
        self._after(at, *self._members[at].step(event, self._clocks[at]))

    def _after(self, at: int, answers: list[tuple[int, Response]], effects: Effects) -> None:
        self._member_keys[at] = None
        for token, response in answers:
            asked = self._routes.pop(token, None)
            if asked is not None:
                request_id = asked.outgoing.request_id
                self._packets.append(_Answer(at, asked.sender, request_id, response))
        for outgoing in effects.messages:
            request = outgoing.request
            if isinstance(request, FetchRequest) and request.wait_ms_max == 0:
                # It looks for a leader.
                self._step(at, RequestFailed(request_id=outgoing.request_id))
                continue
            receiver = outgoing.to - 1
            self._packets = [
                packet
                for packet in self._packets
                if not isinstance(packet, _Request)
                or (packet.sender, packet.receiver) != (at, receiver)
            ]
            self._packets.append(_Request(at, receiver, outgoing))

    def _forget_what_is_over(self) -> None:
        """Drop answers that their asker would drop, and make the order of packets no matter."""
        asked = [_asked_by(member.core) for member in self._members]
        self._packets = [
            packet
            for packet in self._packets
            if isinstance(packet, _Request) or packet.request_id in asked[packet.receiver]
        ]
        self._packets.sort(key=_order)

    # --- copies and keys ----------------------------------------------------------------------

    def _copy(self, changing: set[int]) -> "QuorumState":
        """Return a copy, of whose members only those that will change are copies too."""
        new = QuorumState.__new__(QuorumState)
        new._case, new._token, new._key = self._case, self._token, None
        new._record_count, new._crash_count = self._record_count, self._crash_count
        new._late_count = self._late_count
        new._clocks, new._member_keys = list(self._clocks), list(self._member_keys)
        new._packets, new._routes = list(self._packets), dict(self._routes)
        # Shared, or copied first, so that whoever else knows them is led to the right one.
        copies: dict[int, Any] = {}
        for at, member in enumerate(self._members):
            copies[id(member._rng)] = member._rng
            if at not in changing:
                copies[id(member.log)] = member.log
        new._invariants = copy_of(self._invariants, copies)
        new._members = list(self._members)
        for at, member in enumerate(self._members):
            if at in changing:
                new._members[at] = copy_of(member, copies)
            else:
                # It stays as it is; but the judge it tells when it changes must be the copy's.
                twin = Member.__new__(Member)
                for name in Member.__slots__:
                    setattr(twin, name, getattr(member, name))
                twin._invariants = new._invariants
                new._members[at] = twin
        return new

    def _member_key(self, at: int) -> Hashable:
        found = self._member_keys[at]
        if found is None:
            member = self._members[at]
            clock = self._clocks[at]

            def special(thing: Any) -> Any:
                return self._special_key(thing, clock)

            log = member.log
            found = self._member_keys[at] = (
                key_of(member, clock, special, SKIPPED),
                tuple(log.read(log.start_offset, 1000)),
                log.flushed_offset,
            )
        return found

    def _special_key(self, thing: Any, now_ms: int) -> Any:
        if isinstance(thing, _ParkedFetch):
            return ("parked", thing.request, max(-PAST_MS, thing.deadline_ms - now_ms))
        if isinstance(thing, Outgoing):
            return ("asked", thing.to, thing.request)
        return NotImplemented

    def _packet_key(self, packet: _Request | _Answer) -> Hashable:
        if isinstance(packet, _Answer):
            return ("answer", packet.sender, packet.receiver, packet.response)
        core = self._members[packet.sender].core
        is_waited_for = packet.outgoing.request_id in _asked_by(core)
        return ("request", packet.sender, packet.receiver, packet.outgoing.request, is_waited_for)


def _pair_of(packet: _Request | _Answer) -> tuple[int, int]:
    first, second = sorted((packet.sender, packet.receiver))
    return first, second


def _answer_of(packet: Any) -> tuple[int, int, int]:
    return (packet.receiver, packet.sender, packet.outgoing.request_id)


def _asked_by(core: QuorumCore | None) -> set[int]:
    """Return the ids of the requests whose answers a core waits for."""
    if core is None:
        return set()
    connections = core._replica.requests._connections.values()
    return {each.in_flight.request_id for each in connections if each.in_flight is not None}


def _order(packet: _Request | _Answer) -> tuple[int, int, int, str]:
    kind = type(packet.outgoing.request) if isinstance(packet, _Request) else type(packet.response)
    return (isinstance(packet, _Answer), packet.sender, packet.receiver, kind.__name__)
