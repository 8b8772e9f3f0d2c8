"""Requests of a controller that differs from its entry in the voter set: UpdateVoter, and automatic
joining.

A controller whose endpoints have changed sends UpdateVoter. A controller that may join by itself
(`controller.quorum.auto.join.enable`) adds itself, after it has removed a voter with its id and a
lost directory (KIP-853, KIP-1186). A controller that was a voter once does not join by itself: it
was removed on purpose. Kafka adds it again.
"""

from ottla.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
)
from ottla.raft.replica import Replica
from ottla.raft.voters import Voter


class Membership:
    """Schedule of a follower's requests to change the voter set. At most one is sent per fetch
    timeout."""

    __slots__ = ("_due_ms",)

    def __init__(self, now_ms: int) -> None:
        self._due_ms = now_ms

    def due_request(self, replica: Replica, now_ms: int) -> VoterChangeRequest | None:
        """Return the request that is due, or None."""
        request = wanted_request(replica)
        if request is None:
            return None
        if now_ms < self._due_ms:
            replica.wake_at(self._due_ms)
            return None
        self._due_ms = now_ms + replica.config.fetch_timeout_ms
        return request


def wanted_request(replica: Replica) -> VoterChangeRequest | None:
    """Return the request that would give this replica its right entry in the voter set, or
    None."""
    identity = replica.identity
    if not identity.endpoints:
        return None
    own = own_entry(replica)
    known = identity.voters.get(identity.node_id)
    if known is not None and known.is_key(identity.key):
        if (known.endpoints, known.kraft_versions) == (own.endpoints, own.kraft_versions):
            return None
        return UpdateVoterRequest(
            cluster_id=identity.cluster_id, leader_epoch=replica.epoch, voter=own
        )
    if not identity.joins_automatically or replica.was_voter:
        return None
    if known is not None:
        return RemoveVoterRequest(cluster_id=identity.cluster_id, voter_key=known.key)
    return AddVoterRequest(cluster_id=identity.cluster_id, voter=own, ack_when_committed=False)


def own_entry(replica: Replica) -> Voter:
    """Return this controller as a voter, with the endpoints of its settings."""
    identity = replica.identity
    return Voter(
        id=identity.node_id, directory_id=identity.directory_id, endpoints=identity.endpoints
    )
