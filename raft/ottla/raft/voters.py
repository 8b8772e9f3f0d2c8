"""Who may vote: the fixed voter set, and how a replica is told from its wiped namesake.

Pure values.  A voter is its id *and* the id of its metadata directory (KIP-853): a node whose disk
was replaced keeps its id but loses its vote, so it can never vote twice in one epoch.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import ZERO_UUID, NodeId
from ottla.model.values import frozen


class VoterEndpoint(NamedTuple):
    """Where a voter listens for the quorum's requests."""

    name: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """One replica: its node id and the id of its metadata directory (ZERO_UUID: not known)."""

    id: NodeId
    directory_id: UUID = ZERO_UUID


@frozen(kw_only=True)
class Voter:
    """One member of the voter set.

    `directory_id` is ZERO_UUID where the set was configured by ids alone
    (`controller.quorum.voters`); such a voter is known by its id only.
    """

    id: NodeId
    directory_id: UUID = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()

    @property
    def key(self) -> ReplicaKey:
        """Return the id and the directory id as one value."""
        return ReplicaKey(self.id, self.directory_id)

    def is_key(self, key: ReplicaKey) -> bool:
        """Return whether `key` names this voter; a directory id either side lacks matches any."""
        if key.id != self.id:
            return False
        return ZERO_UUID in (key.directory_id, self.directory_id) or (
            key.directory_id == self.directory_id
        )


@frozen
class VoterSet:
    """The voters of one quorum, ordered by id; it never changes in the life of a core."""

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
        """Return the voters' ids, ascending."""
        return tuple(voter.id for voter in self.voters)

    @property
    def majority_count(self) -> int:
        """Return how many voters decide: more than half of them."""
        return len(self.voters) // 2 + 1

    def get(self, node_id: NodeId) -> Voter | None:
        """Return the voter of this id, or None."""
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether `key` names a voter: right id, right directory."""
        voter = self.get(key.id)
        return voter is not None and voter.is_key(key)

    def endpoints_of(self, node_id: NodeId | None) -> tuple[VoterEndpoint, ...]:
        """Return where a voter listens; nothing for an unknown one."""
        voter = None if node_id is None else self.get(node_id)
        return () if voter is None else voter.endpoints


@frozen(kw_only=True)
class QuorumIdentity:
    """Who this replica is, and whom it decides with."""

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
        """Whether this replica may vote; a voter whose directory was wiped may not."""
        return self.voters.is_voter(self.key)

    @property
    def peers(self) -> tuple[Voter, ...]:
        """Return the voters that are other nodes."""
        return tuple(voter for voter in self.voters if voter.id != self.node_id)
