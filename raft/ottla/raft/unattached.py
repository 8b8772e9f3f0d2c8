"""Unattached: in an epoch whose leader is not known, or has said goodbye.

A voter waits for a candidate or for its own election timeout; meanwhile, and an observer always,
it asks around who leads.
"""

from ottla.model.ids import NodeId
from ottla.raft.effects import Outgoing
from ottla.raft.messages import Response
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role


class Unattached:
    """A replica without a leader."""

    __slots__ = ("election_deadline_ms",)

    role = Role.UNATTACHED
    leader_id: NodeId | None = None
    grants_pre_votes = True

    def __init__(self, election_deadline_ms: int) -> None:
        self.election_deadline_ms = election_deadline_ms

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Stand for election when nobody else did in time; until then look for a leader."""
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
        self, replica: Replica, outgoing: Outgoing, response: Response, now_ms: int
    ) -> None:
        """Whoever answered knows no leader either: ask again later."""
        replica.requests.back_off(outgoing.to, now_ms)
