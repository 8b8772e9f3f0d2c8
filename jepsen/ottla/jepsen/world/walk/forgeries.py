"""Generates forged messages of the quorum, which no honest node sends. The module does no I/O.

The forger knows the cluster's addresses and the voters' ids. It may send anything that a voter
might send, except facts that only the voter has: granted votes, and the end of the voter's log.
Forged messages contain epochs far ahead, wrong leaders, foreign nodes and other clusters.
"""

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from ottla.jepsen.world.chance import Chance
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.limits import INT32_MAX
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    Request,
    Response,
    VoteRequest,
)
from ottla.raft.voters import QuorumIdentity, ReplicaKey

STRANGER = NodeId(77)
FOREIGN_CLUSTER = "Zm9yZWlnbi1jbHVzdGVyLQ"
R = TypeVar("R", bound=Response)


class Forger:
    """Generator of random forged messages between quorum members."""

    def __init__(self, chance: Chance, identity: QuorumIdentity) -> None:
        self._chance = chance
        self._cluster_id = identity.cluster_id
        self._voters = tuple(identity.voters)

    def request(self, to: NodeId, epoch: Epoch) -> Request:
        """Return a random forged request for a quorum voter whose epoch is `epoch`."""
        draw = self._chance.below
        cluster_id = FOREIGN_CLUSTER if draw(4) == 3 else self._cluster_id
        key = self._key()
        forged_epoch = self._epoch(epoch)
        directory = next((one.directory_id for one in self._voters if one.id == to), UUID(int=0))
        kind = draw(4)
        if kind == 0:
            return EndQuorumEpochRequest(
                cluster_id=cluster_id,
                leader_id=key.id,
                leader_epoch=forged_epoch,
                preferred_candidates=(self._key(),) * draw(3),
            )
        if kind == 1:
            return BeginQuorumEpochRequest(
                cluster_id=cluster_id,
                voter_id=to,
                voter_directory_id=directory,
                leader_id=key.id,
                leader_epoch=forged_epoch,
            )
        if kind == 2:
            return VoteRequest(
                cluster_id=cluster_id,
                voter_id=to,
                voter_directory_id=directory,
                replica_epoch=forged_epoch,
                replica_id=key.id,
                replica_directory_id=key.directory_id,
                last_epoch=Epoch(draw(3) - 1),
                end_offset=Offset(draw(3) - 1),
                pre_vote=draw(2) == 0,
            )
        return FetchRequest(
            cluster_id=cluster_id,
            replica_id=STRANGER,
            replica_directory_id=UUID(int=STRANGER),
            current_leader_epoch=forged_epoch,
            fetch_offset=Offset(draw(40) - 1),
            last_fetched_epoch=self._epoch(epoch),
            high_watermark=Offset(draw(40) - 1),
            wait_ms_max=draw(2) * 1_000,
            bytes_max=draw(3) - 1,
        )

    def response(self, response: R) -> R:
        """Return a quorum response in which forged values replace the leader and the epoch of a
        real one."""
        forged: R = replace(
            response,
            leader_id=None if self._chance.below(4) == 3 else self._key().id,
            leader_epoch=self._epoch(response.leader_epoch),
        )
        if isinstance(forged, FetchResponse) and forged.diverging is not None:
            cut = Offset(self._chance.below(4) - 1)
            return replace(forged, diverging=forged.diverging._replace(offset=cut))
        return forged

    def _key(self) -> ReplicaKey:
        """Return a random replica key (node id and directory id): of a voter, of a foreign node, or
        of a voter's id with a wrong directory id."""
        at = self._chance.below(len(self._voters) + 2)
        if at < len(self._voters):
            return ReplicaKey(self._voters[at].id, self._voters[at].directory_id)
        if at == len(self._voters):
            return ReplicaKey(STRANGER, UUID(int=STRANGER))
        return ReplicaKey(self._voters[0].id, UUID(int=STRANGER))

    def _epoch(self, epoch: Epoch) -> Epoch:
        kind = self._chance.below(8)
        if kind < 3:
            return epoch
        return Epoch(
            (
                epoch + 1,
                epoch - 1,
                INT32_MAX,
                INT32_MAX - 1,
                min(INT32_MAX, epoch + (1 << 24)),
            )[kind - 3]
        )
