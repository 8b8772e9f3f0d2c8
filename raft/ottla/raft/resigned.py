"""Resigned: a leader that has given up its epoch, on purpose or for want of a majority.

It says goodbye to the other voters, naming successors, and serves nobody.  It cannot lead its epoch
again: a leader that restarts begins here too, for it may have forgotten what it did not flush.
"""

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft.effects import Outgoing
from ottla.raft.messages import EndQuorumEpochRequest, EndQuorumEpochResponse, Response
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey


class Resigned:
    """A former leader of this very epoch."""

    __slots__ = ("_election_deadline_ms", "_preferred", "_to_tell")

    role = Role.RESIGNED
    leader_id: NodeId | None = None
    grants_pre_votes = True

    def __init__(
        self, replica: Replica, preferred: tuple[ReplicaKey, ...], election_deadline_ms: int
    ) -> None:
        assert replica.epoch_leader_id == replica.identity.node_id
        self._preferred = preferred
        self._election_deadline_ms = election_deadline_ms
        self._to_tell = {voter.id for voter in replica.peers}

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Say goodbye to whoever has not heard it; wait, as others should be elected first."""
        if replica.may_campaign:
            if now_ms >= self._election_deadline_ms:
                return Role.UNATTACHED
            replica.wake_at(self._election_deadline_ms)
        for voter in replica.peers:
            if voter.id in self._to_tell and replica.is_free(voter.id, now_ms):
                request = EndQuorumEpochRequest(
                    cluster_id=replica.identity.cluster_id,
                    leader_id=replica.identity.node_id,
                    leader_epoch=replica.epoch,
                    preferred_candidates=self._preferred,
                    leader_endpoints=replica.identity.voters.endpoints_of(replica.identity.node_id),
                )
                replica.send(voter, request, now_ms)
        if replica.is_shutting_down:
            replica.seek_leader(now_ms)  # the successor, or that nobody is left to be one
        return None

    def on_response(
        self, replica: Replica, outgoing: Outgoing, response: Response, now_ms: int
    ) -> None:
        """Note who has heard the goodbye."""
        if response.error is ErrorCode.NONE and isinstance(response, EndQuorumEpochResponse):
            self._to_tell.discard(outgoing.to)
        else:
            replica.requests.back_off(outgoing.to, now_ms)
