"""The roles of a replica, and which may follow which: the one table of them.

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

assert set(LEGAL) == set(Role)
