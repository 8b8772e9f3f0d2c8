"""The voter set, and the identity of a replica.

Pure values. A voter is identified by its id *and* the id of its metadata directory (KIP-853). A
node whose disk was replaced keeps its id but loses its vote, so it can never vote twice in one
epoch.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import ZERO_UUID, NodeId
from ottla.model.values import frozen


class VoterEndpoint(NamedTuple):
    """Address of a voter for the quorum's requests."""

    name: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """One replica: its node id and the id of its metadata directory (ZERO_UUID if unknown)."""

    id: NodeId
    directory_id: UUID = ZERO_UUID


@frozen(kw_only=True)
class Voter:
    """One member of the voter set.

    `directory_id` is ZERO_UUID if the set was configured by ids alone (`controller.quorum.voters`);
    such a voter is identified by its id only.
    """

    id: NodeId
    directory_id: UUID = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()

    @property
    def key(self) -> ReplicaKey:
        """Return the voter's id and directory id as one value."""
        return ReplicaKey(self.id, self.directory_id)

    def is_key(self, key: ReplicaKey) -> bool:
        """Return whether `key` identifies this voter.

        A directory id that is missing on either side matches any.
        """
        if key.id != self.id:
            return False
        return ZERO_UUID in (key.directory_id, self.directory_id) or (
            key.directory_id == self.directory_id
        )


@frozen
class VoterSet:
    """The voters of one quorum, ordered by id; constant for the lifetime of a core."""

    voters: tuple[Voter, ...]
    _by_id: dict[NodeId, Voter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = [voter.id for voter in self.voters]
        assert ids, "a quorum needs at least one voter"
        assert len(set(ids)) == len(ids), f"a voter id appears twice in {ids}"
        object.__setattr__(self, "voters", tuple(sorted(self.voters, key=lambda v: v.id)))
        object.__setattr__(self, "_by_id", {voter.id: voter for voter in self.voters})

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._by_id

    @property
    def ids(self) -> tuple[NodeId, ...]:
        """Return the voters' ids in ascending order."""
        return tuple(voter.id for voter in self.voters)

    @property
    def majority_count(self) -> int:
        """Return the number of voters that form a majority."""
        return len(self.voters) // 2 + 1

    def get(self, node_id: NodeId) -> Voter | None:
        """Return the voter with this id, or None."""
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether `key` identifies a voter by node id and directory id."""
        voter = self.get(key.id)
        return voter is not None and voter.is_key(key)

    def endpoints_of(self, node_id: NodeId | None) -> tuple[VoterEndpoint, ...]:
        """Return the addresses of a voter, or an empty tuple if the voter is unknown."""
        voter = None if node_id is None else self.get(node_id)
        return () if voter is None else voter.endpoints


@frozen(kw_only=True)
class QuorumIdentity:
    """Identity of this replica, and the voter set."""

    node_id: NodeId
    directory_id: UUID
    cluster_id: str
    voters: VoterSet

    @property
    def key(self) -> ReplicaKey:
        """Return this replica's id and directory id as one value."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def is_voter(self) -> bool:
        """True if this replica may vote; a voter whose directory was wiped may not."""
        return self.voters.is_voter(self.key)

    @property
    def peers(self) -> tuple[Voter, ...]:
        """Return the voters that are other nodes."""
        return tuple(voter for voter in self.voters if voter.id != self.node_id)
