"""The roles and standings of a replica, and which may follow which: the tables of both.

Fresh nodes are UNATTACHED.  Kafka's `QuorumState` names the triggers:

- UNATTACHED -> FOLLOWER: a leader of this or a higher epoch is found; -> PROSPECTIVE: the election
  timeout passed; -> UNATTACHED: a higher epoch was seen, or a vote was given.
- FOLLOWER -> PROSPECTIVE: the fetch timeout passed; -> UNATTACHED: a higher epoch was seen, or the
  leader said goodbye; -> FOLLOWER: a leader of a higher epoch is found.
- PROSPECTIVE -> CANDIDATE: a majority would vote for it; -> FOLLOWER or UNATTACHED: it would not, a
  leader is found, a higher epoch was seen, or a vote was given.
- CANDIDATE -> LEADER: a majority voted for it; -> PROSPECTIVE: it did not; -> FOLLOWER or
  UNATTACHED: a leader is found or a higher epoch was seen.
- LEADER -> RESIGNED: it shuts down, or no majority fetched from it for too long; -> FOLLOWER or
  UNATTACHED: a higher epoch was seen.
- RESIGNED -> UNATTACHED: the election timeout passed or a higher epoch was seen; -> FOLLOWER: a
  leader of a higher epoch is found.

A voter's standing says which of its promises it can keep.  Damage to its files takes it to AMNESIAC
or CATCHING_UP while it is down; from there on it only rises:

- AMNESIAC -> CATCHING_UP: every other voter has named its epoch since, so that none of an earlier
  vote can be above the own epoch.
- CATCHING_UP -> FULL: the log is flushed up to the high watermark of a leader that has committed an
  entry of its own epoch, and no vote was given since the damage.
"""

from enum import Enum


class Role(Enum):
    """What a replica is in its present epoch."""

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
"""All an observer, or a voter whose directory was wiped, may ever be."""


class Standing(Enum):
    """The promises that a voter can keep; the values are those of the voter checkpoint."""

    FULL = 0
    """It has all that it acknowledged, and knows its vote: it votes and may be elected."""
    CATCHING_UP = 1
    """It lacks flushed entries: it fetches and acknowledges, but neither votes nor is elected."""
    AMNESIAC = 2
    """It has lost its epoch and vote, too: it does not even fetch, for that acknowledges."""


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
