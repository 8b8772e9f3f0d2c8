"""Voter sets, and the identity of a replica.

Pure values. A voter is identified by its id *and* the id of its metadata directory (KIP-853). A
node whose disk was replaced keeps its id but loses its vote, so it can never vote twice in one
epoch. A voter set is a record of the log (`voter_history`), and changes by one voter at a time.
"""

from collections.abc import Iterator
from dataclasses import field
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import ZERO_UUID, NodeId
from ottla.model.settings.endpoints import CONTROLLER_LISTENER
from ottla.model.values import frozen

KRAFT_VERSION = 1
"""Highest supported feature level of kraft.version. Level 1 means that voters are identified by id
and directory, and that voter sets are records of the log (KIP-853)."""

VOTERS_MAX = 100
"""Maximum number of voters in a voter set. With a larger set, each commit is slower. With a smaller
maximum, a set that Kafka accepts could be refused."""


class VoterEndpoint(NamedTuple):
    """Address (listener name, host and port) to which other nodes send quorum requests for a
    voter."""

    name: str
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """One replica: its node id and the id of its metadata directory (ZERO_UUID if unknown)."""

    id: NodeId
    directory_id: UUID = ZERO_UUID


@frozen(kw_only=True)
class Voter:
    """One voter of a quorum: its id, directory id and endpoints.

    If the voter set was configured with ids only (`controller.quorum.voters`), `directory_id` is
    ZERO_UUID, and the voter is identified by its id.
    """

    id: NodeId
    directory_id: UUID = ZERO_UUID
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, KRAFT_VERSION)
    """Lowest and highest level of kraft.version that the voter supports."""

    @property
    def key(self) -> ReplicaKey:
        """The voter's node id and directory id as one value."""
        return ReplicaKey(self.id, self.directory_id)

    def is_key(self, key: ReplicaKey) -> bool:
        """Return whether `key` (node id and directory id) identifies this voter.

        If either directory id is ZERO_UUID, only the node ids are compared.
        """
        if key.id != self.id:
            return False
        return ZERO_UUID in (key.directory_id, self.directory_id) or (
            key.directory_id == self.directory_id
        )


@frozen
class VoterSet:
    """The voters of one quorum, ordered by id.

    It is empty only on a node that has not yet read which replicas are the voters.
    """

    voters: tuple[Voter, ...]
    _by_id: dict[NodeId, Voter] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = [voter.id for voter in self.voters]
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
        """Node ids of the voters, in ascending order."""
        return tuple(voter.id for voter in self.voters)

    @property
    def majority_count(self) -> int:
        """Number of voters that form a majority of the voter set."""
        return len(self.voters) // 2 + 1

    def get(self, node_id: NodeId) -> Voter | None:
        """Return the voter with this node id, or None if the set has no such voter."""
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether `key` identifies a voter by node id and directory id."""
        voter = self.get(key.id)
        return voter is not None and voter.is_key(key)

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Return a copy of the voter set with a voter added, or with the voter of the same id
        replaced."""
        return VoterSet((*self.without(voter.id).voters, voter))

    def without(self, node_id: NodeId) -> "VoterSet":
        """Return a copy of the voter set without the voter of this id."""
        return VoterSet(tuple(voter for voter in self.voters if voter.id != node_id))

    def endpoints_of(self, node_id: NodeId | None) -> tuple[VoterEndpoint, ...]:
        """Return the endpoints of a voter, or an empty tuple if the voter is unknown."""
        voter = None if node_id is None else self.get(node_id)
        return () if voter is None else voter.endpoints


@frozen(kw_only=True)
class QuorumIdentity:
    """Identity of this replica, and the voter set as this replica knows it."""

    node_id: NodeId
    directory_id: UUID
    cluster_id: str
    voters: VoterSet
    """Voter set at the startup of this node. A voter set in the log takes precedence."""
    is_controller: bool = False
    """True if this replica can become a voter. It flushes before it acknowledges, and keeps its
    vote, even while it is an observer."""
    endpoints: tuple[VoterEndpoint, ...] = ()
    """Endpoints of this controller according to its settings, or empty if the settings have none.
    If the endpoints in the voter set differ, the controller sends UpdateVoter to correct them."""
    bootstrap: tuple[Voter, ...] = ()
    """Controllers in the settings that are neither in `voters` nor this replica. They may also help
    to find the leader."""
    configured: tuple[Voter, ...] = ()
    """Addresses in `controller.quorum.voters`. `addresses_of` returns them after the addresses in
    the voter set."""
    listener: str = CONTROLLER_LISTENER
    """Name of the controllers' listener to which this node connects: the first name in
    `controller.listener.names`."""
    are_voters_fixed: bool = False
    """True if the voter set must not change until `QuorumCore.allow_voter_changes` is called. The
    cluster may still return to a release that reads no voter sets from the log."""
    joins_automatically: bool = False
    """True if this controller adds itself to the voters (`controller.quorum.auto.join.enable`)."""

    @property
    def key(self) -> ReplicaKey:
        """This replica's node id and directory id as one value."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def is_voter(self) -> bool:
        """True if this replica may vote. A voter whose directory was wiped may not."""
        return self.voters.is_voter(self.key)

    @property
    def peers(self) -> tuple[Voter, ...]:
        """The voters of the voter set that are other nodes."""
        return tuple(voter for voter in self.voters if voter.id != self.node_id)

    def addresses_of(self, voter: Voter) -> tuple[VoterEndpoint, ...]:
        """Return the endpoints of a voter in the order in which they are tried, each host and port
        once.

        1. The endpoint in the voter set on the listener to which this node connects, as in Kafka.
        2. The address in this node's settings. It is needed while the voter set has no endpoint on
           that listener, or if the whole quorum has moved to other addresses. Kafka ignores this
           address.
        3. Endpoints in the voter set on other listeners. Release 0.2.0 named every listener
           CONTROLLER.
        """
        own = [one for one in voter.endpoints if one.name == self.listener]
        in_settings = (one.endpoints for one in self.configured if one.id == voter.id)
        found: dict[tuple[str, int], VoterEndpoint] = {}
        for one in (*own, *chain.from_iterable(in_settings), *voter.endpoints):
            found.setdefault((one.host, one.port), one)
        return tuple(found.values())

    @property
    def is_alone(self) -> bool:
        """True if this replica is the only voter of the quorum."""
        return self.is_voter and len(self.voters) == 1

    @property
    def keeps_votes(self) -> bool:
        """True if this replica keeps the files of a voter, because it is a voter or can become
        one."""
        return self.is_controller or self.is_voter
