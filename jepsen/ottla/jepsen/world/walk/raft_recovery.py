"""Random walk on raft with changing voters. At the end of a run all faults are healed, and the
quorum must work again.

Liveness is checked as in Kafka's model of KIP-853 (kraft_kip_853_properties), with a bounded time
instead of "eventually". All replicas run, all messages arrive, and clocks advance together:

- EventuallyLeaderElected: a majority of the voters of some leader follows it.
- ValuesEventuallyAcked: that leader commits a new entry, and every replica knows that.
- ReconfigurationNotStuck: the last voter set is committed, and in force on every replica.
- LeaderResignsAlone: a leader that is cut off from all replicas that it needs resigns.

A run in which a voter set has lost a majority of its disks is not checked: no quorum can recover.
The adversary also changes the addresses of all controllers at once, as a change of DNS or of a
whole network does: the addresses in the voter set are then wrong, and the addresses in the settings
are right. In some runs one of the controllers that may be added advertises an address at which no
controller listens.
"""

from collections.abc import Callable
from dataclasses import replace

from ottla.jepsen.quorum.member import MemoryMember
from ottla.jepsen.quorum.world import voter
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.raft_membership import ChangingQuorum, MembershipRaftWalk
from ottla.jepsen.world.walk.raft_walk import WalkedQuorum
from ottla.model.ids import NodeId, Offset
from ottla.raft.effects import OutgoingRequest
from ottla.raft.messages import DescribeReplicaRequest
from ottla.raft.voters import QuorumIdentity, Voter, VoterEndpoint, VoterSet

ROUND_MS = 100
ROUNDS_MAX = 600
"""Maximum number of rounds (of 100 ms of virtual time) without faults until the quorum works: 60 s.
With more rounds, each failure takes longer to find. With fewer rounds, unlucky elections fail the
check."""

ROUNDS_ALONE = 40
"""Maximum number of rounds (of 100 ms of virtual time) for which a leader may lead without
followers: 4 s, which is more than one and a half fetch timeouts."""

DELIVERIES_MAX = 400
"""Maximum number of messages between replicas that are delivered in one round. A higher limit would
only matter in an endless exchange."""


class RecoveringRaftWalk(MembershipRaftWalk):
    """Search engine that tests raft with changing voters by random walks. Each walk ends with a
    period without faults."""

    subject = "raft-recovery"
    required = (
        "a quorum works again",
        "a leader is cut off",
        "all controllers are renamed",
        "a controller with a wrong address is to be added",
        "a voter set has lost its majority of disks",
    )

    def make_walk(self, chance: Chance) -> WalkedQuorum:
        """Return a simulated quorum that must work again after the faults of the adversary."""
        return RecoveringQuorum(chance)


class RecoveringQuorum(ChangingQuorum):
    """One simulated quorum of controllers, which must work again after all faults have ended."""

    def __init__(self, chance: Chance) -> None:
        self._rename_count = 0
        self._acknowledged: tuple[NodeId, Offset] | None = None
        """Leader of the entry that was appended after the end of all faults, and the entry's
        offset. None if no entry was appended yet."""
        self._has_wrong_address = chance.below(4) == 0
        """True if the last controller advertises an address at which no controller listens."""
        super().__init__(chance)

    def identity_of(self, at: int, *, is_wiped: bool = False) -> QuorumIdentity:
        """Return the quorum identity of a controller, with its present address. Its settings
        contain the addresses of all other controllers."""
        known = super().identity_of(at, is_wiped=is_wiped)
        if self._rename_count:
            everyone = tuple(
                Voter(id=one.id, endpoints=self._endpoints_of(one.id)) for one in self._nodes()
            )
            own = self._endpoints_of(known.node_id)
            known = replace(known, endpoints=own, configured=everyone)
        if self._has_wrong_address and at == self.voter_count + self.observer_count() - 1:
            wrong = VoterEndpoint("CONTROLLER", "nowhere", 9093)
            known = replace(known, endpoints=(wrong,))
        return known

    def _nodes(self) -> list[Voter]:
        return [Voter(id=NodeId(at + 1)) for at in range(self.voter_count + self.observer_count())]

    def _endpoints_of(self, node_id: NodeId) -> tuple[VoterEndpoint, ...]:
        count = self._rename_count
        return (
            (VoterEndpoint("CONTROLLER", f"host-{node_id}-{count}", 9093),)
            if count
            else voter(node_id).endpoints
        )

    def is_reached(self, receiver: int, outgoing: OutgoingRequest) -> bool:
        """Return whether a raft request is sent to a current address of its receiver."""
        present = self._endpoints_of(NodeId(receiver + 1))
        if not any(one in present for one in outgoing.endpoints):
            if isinstance(outgoing.request, DescribeReplicaRequest):
                self.rare.sometimes("a controller with a wrong address is to be added")
            return False
        return True

    def more_actions(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return the adversary's actions that change the voters and their addresses."""
        return (*super().more_actions(), (self._rename, 1, False))

    def _rename(self) -> None:
        """Restart all controllers with new addresses, and put the new addresses into their settings
        as well."""
        self.rare.sometimes("all controllers are renamed")
        self._rename_count += 1
        for at, member in enumerate(self.members):
            if member.core is not None:
                self._stop(at)
            member.identity = self.identity_of(at, is_wiped=at in self._wiped)
            self._start(at)

    def _wipe(self) -> None:
        """Replace the disk of a stopped voter, and sometimes the disk of a second voter as well."""
        if len(self._wiped) == 1 and self.chance.below(2):
            first, self._wiped = self._wiped, set()
            super()._wipe()
            self._wiped |= first
        else:
            super()._wipe()

    # --- the time without faults --------------------------------------------------------------

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the quorum. A replayed run may end earlier.
        Then end all faults and check that the quorum works."""
        self.walk(budget)
        self._end_faults()
        if self._has_majorities():
            self._recover()
            self.rare.sometimes("a quorum works again")
            self._cut_off_the_leader()
        else:
            self.rare.sometimes("a voter set has lost its majority of disks")
        self.invariants.check_end()

    def _end_faults(self) -> None:
        self._is_quiet = False
        self._heal()
        is_restarted = self.chance.below(2) == 1
        for at, member in enumerate(self.members):
            member.cut_power_after(-1)
            if member.core is not None and (is_restarted or at in self._leaving):
                self._stop(at)
            if member.core is None:
                self._start(at)

    def _has_majorities(self) -> bool:
        """Return whether a majority of the disks is left in each voter set that a replica knows."""
        # The core of a replica adopts the last set of its log at its next step.
        sets = (one.log.voters or one.running.identity.voters for one in self.members)
        return all(self._disk_count(voters) >= voters.majority_count for voters in sets)

    def _disk_count(self, voters: VoterSet) -> int:
        return sum(self.members[one.id - 1].identity.key == one.key for one in voters)

    def _recover(self) -> None:
        for _ in range(ROUNDS_MAX):
            self._deliver_all()
            if self._fault() is None:
                return
            for at in range(len(self.members)):
                self._sleep(at, ROUND_MS)
        fault = self._fault()
        if fault is not None:
            raise Violation(*fault)

    def _cut_off_the_leader(self) -> None:
        """Cut a leader off from all other voters, and check that it resigns. Does nothing if the
        leader is a majority by itself."""
        at = next(at for at, one in enumerate(self.members) if one.is_leader)
        leader = self.members[at]
        if leader.running.identity.is_alone:
            return
        others = [other for other in range(len(self.members)) if other != at]
        self._blocked = {(at, other) for other in others} | {(other, at) for other in others}
        for _ in range(ROUNDS_ALONE):
            self._deliver_all()
            self._sleep(at, ROUND_MS)
            if not leader.is_leader:
                self.rare.sometimes("a leader is cut off")
                return
        raise Violation("LeaderResignsAlone", f"{leader.identity.node_id} leads without followers")

    def _deliver_all(self) -> None:
        """Deliver the messages in flight between replicas and their responses, and finish all
        fsyncs."""
        for _ in range(DELIVERIES_MAX):
            waiting = [at for at, member in enumerate(self.members) if member.wants_flush]
            if waiting:
                self._finish_flush(waiting[0], 0)
            elif self._packets:
                self._arrive(self._packets.pop(0))
            else:
                return

    def _fault(self) -> tuple[str, str] | None:
        """Return a liveness property that the quorum has not reached yet, and the reason. Returns
        None if the quorum has reached all properties."""
        leader = next((one for one in self.members if one.is_leader and self._leads(one)), None)
        if leader is None:
            roles = ", ".join(f"{one.identity.node_id} {one.running.role}" for one in self.members)
            return "EventuallyLeaderElected", f"no majority follows a leader: {roles}"
        offset = self._offset_acknowledged_by(leader)
        behind = [one for one in self.members if one.running.high_watermark <= offset]
        if behind:
            ids = [one.identity.node_id for one in behind]
            return "ValuesEventuallyAcked", f"{ids} do not know that {offset} is committed"
        voters = leader.running.identity.voters
        others = [one for one in self.members if one.running.identity.voters != voters]
        if others or leader.log.voters_offset >= leader.running.high_watermark:
            ids = [one.identity.node_id for one in others]
            return "ReconfigurationNotStuck", f"the voters {voters.ids} are not those of {ids}"
        return None

    def _leads(self, leader: MemoryMember) -> bool:
        """Return whether a majority of the voters, including the leader, follows the leader."""
        core = leader.running
        following = sum(
            core.identity.voters.is_voter(one.identity.key)
            and (one.running.epoch, one.running.leader_id) == (core.epoch, core.leader_id)
            for one in self.members
        )
        return following >= core.identity.voters.majority_count

    def _offset_acknowledged_by(self, leader: MemoryMember) -> Offset:
        """Return the offset of an entry that the leader appended after the end of the faults. The
        first call appends the entry."""
        node_id = leader.identity.node_id
        if self._acknowledged is None or self._acknowledged[0] != node_id:
            at = self.members.index(leader)
            self._acknowledged = node_id, Offset(leader.log.end_offset)
            done = leader.propose("after the faults", self._clocks[at])
            assert done is not None
            self._after(at, *done)
        return self._acknowledged[1]
