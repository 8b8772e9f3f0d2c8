"""The roles and standings of a replica, and the tables of their transitions.

New nodes are UNATTACHED. The triggers have the names of Kafka's `QuorumState`:

- UNATTACHED -> FOLLOWER: a leader of this or a higher epoch is found; -> PROSPECTIVE: the election
  timeout passed; -> UNATTACHED: a higher epoch was seen, or a vote was granted.

- FOLLOWER -> PROSPECTIVE: the fetch timeout passed; -> UNATTACHED: a higher epoch was seen, or the
  leader resigned; -> FOLLOWER: a leader of a higher epoch is found.

- PROSPECTIVE -> CANDIDATE: a majority would vote for it; -> FOLLOWER or UNATTACHED: it would not, a
  leader is found, a higher epoch was seen, or a vote was granted.

- CANDIDATE -> LEADER: a majority voted for it; -> PROSPECTIVE: it did not; -> FOLLOWER or
  UNATTACHED: a leader is found or a higher epoch was seen.

- LEADER -> RESIGNED: it shuts down, or no majority fetched from it for too long; -> FOLLOWER or
  UNATTACHED: a higher epoch was seen.

- RESIGNED -> UNATTACHED: the election timeout passed or a higher epoch was seen; -> FOLLOWER: a
  leader of a higher epoch is found.

A voter's standing is the set of promises that it can keep. Damage to its files lowers its standing
to AMNESIAC or CATCHING_UP while the voter is down; afterwards its standing only rises:

- AMNESIAC -> CATCHING_UP: all other voters have reported their epochs since the damage. This
  voter's epoch is therefore at least that of any vote it may have lost.

- CATCHING_UP -> FULL: the log is flushed up to the high watermark of a leader that has committed an
  entry of its own epoch, and no vote was granted since the damage.
"""

from enum import Enum


class Role(Enum):
    """Role of a replica in its current epoch."""

    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


LEGAL: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE}),
    Role.FOLLOWER: frozenset({Role.FOLLOWER, Role.UNATTACHED, Role.PROSPECTIVE}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.PROSPECTIVE, Role.LEADER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.FOLLOWER}),
}

OBSERVER_ROLES = frozenset({Role.UNATTACHED, Role.FOLLOWER})
"""The only possible roles of an observer, and of a voter whose directory was wiped."""


class Standing(Enum):
    """Standing of a voter: whether it may have lost votes, or entries that it has acknowledged to
    other replicas. The voter checkpoint stores the numeric values."""

    FULL = 0
    """Standing of a voter whose acknowledged entries and vote are all present: it votes and may be
    elected."""
    CATCHING_UP = 1
    """Standing of a voter whose flushed entries are partly missing: it fetches and acknowledges,
    but neither votes nor is elected."""
    AMNESIAC = 2
    """Standing of a voter that has lost its epoch and vote as well: it does not even fetch, because
    a fetch acknowledges entries."""


STANDING_LEGAL: dict[Standing, frozenset[Standing]] = {
    Standing.AMNESIAC: frozenset({Standing.CATCHING_UP}),
    Standing.CATCHING_UP: frozenset({Standing.FULL}),
    Standing.FULL: frozenset(),
}

ROLES_OF: dict[Standing, frozenset[Role]] = {
    Standing.FULL: frozenset(Role),
    Standing.CATCHING_UP: OBSERVER_ROLES,
    Standing.AMNESIAC: OBSERVER_ROLES,
}

assert set(LEGAL) == set(Role)
assert set(STANDING_LEGAL) == set(ROLES_OF) == set(Standing)
