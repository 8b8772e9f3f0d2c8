"""Resigned: the role of a replica that was leader of the epoch and has resigned, deliberately or
because it lost its majority.

A resigned leader notifies the other voters, names successors, and refuses requests. It cannot lead
its epoch again. A leader that restarts also starts in this role, because it may have lost unflushed
entries.
"""

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft.answers import endpoints_of_leader
from ottla.raft.effects import OutgoingRequest
from ottla.raft.messages import EndQuorumEpochRequest, EndQuorumEpochResponse, Response
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey


class Resigned:
    """The role of a leader that has given up its epoch, until a new leader or epoch is found."""

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
        """Send EndQuorumEpoch to the voters that have not confirmed it, and return None.

        Returns the role Unattached after the election timeout. Until then, the replica waits so
        that the other voters stand for election first. A replica that was removed from the voters
        returns this role as soon as all voters have confirmed.
        """
        if replica.may_campaign:
            if now_ms >= self._election_deadline_ms:
                return Role.UNATTACHED
            replica.wake_at(self._election_deadline_ms)
        elif not replica.is_voter:
            # A leader that was removed from the voters remains as an observer.
            if now_ms >= self._election_deadline_ms or not self._to_tell:
                return Role.UNATTACHED
            replica.wake_at(self._election_deadline_ms)
        for voter in replica.peers:
            if voter.id in self._to_tell and replica.is_free(voter.id, now_ms):
                request = EndQuorumEpochRequest(
                    cluster_id=replica.identity.cluster_id,
                    leader_id=replica.identity.node_id,
                    leader_epoch=replica.epoch,
                    preferred_candidates=self._preferred,
                    leader_endpoints=endpoints_of_leader(replica, replica.identity.node_id),
                )
                replica.send(voter, request, now_ms)
        if replica.is_shutting_down:
            replica.seek_leader(now_ms)  # its responses name the successor, or no leader
        return None

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Record that a voter has confirmed EndQuorumEpoch, if the response contains the
        confirmation."""
        if response.error is ErrorCode.NONE and isinstance(response, EndQuorumEpochResponse):
            self._to_tell.discard(outgoing.to)
        else:
            replica.requests.back_off(outgoing.to, now_ms)
