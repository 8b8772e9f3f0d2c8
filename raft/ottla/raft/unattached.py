"""Unattached: the role of a replica in an epoch whose leader is unknown, or has resigned.

A voter waits for a candidate or for its own election timeout, and meanwhile searches for a leader.
An observer only searches for a leader.
"""

from ottla.model.ids import NodeId
from ottla.raft.effects import OutgoingRequest
from ottla.raft.messages import Response
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role


class Unattached:
    """Role of a replica without a known leader."""

    __slots__ = ("awaits_address", "election_deadline_ms")

    role = Role.UNATTACHED
    leader_id: NodeId | None = None
    grants_pre_votes = True

    def __init__(self, election_deadline_ms: int, *, awaits_address: bool = False) -> None:
        self.election_deadline_ms = election_deadline_ms
        self.awaits_address = awaits_address
        """True if the leader of this epoch is known by its id only, and may still lead. The replica
        follows it once a response contains its address."""

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Search for a leader, and return None. Returns the role Prospective instead if no other
        voter has stood for election within the timeout."""
        if replica.may_campaign:
            if now_ms >= self.election_deadline_ms:
                return Role.PROSPECTIVE
            replica.wake_at(self.election_deadline_ms)
        if replica.unheard:
            replica.ask_epochs(now_ms)
        else:
            replica.seek_leader(now_ms)
        return None

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Schedule the next request for the leader, because the responding node does not know the
        leader either."""
        replica.requests.back_off(outgoing.to, now_ms)
