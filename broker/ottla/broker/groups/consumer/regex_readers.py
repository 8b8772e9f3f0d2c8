"""Filters the topics that match a regular expression: topics that one of its subscribers may not
see are removed. Pure.

A group has one list of topics for each expression, as in Kafka's records. The list contains the
topics that all subscribers to the expression may describe. Therefore no member sees the name of a
topic for which it lacks permission. Without an authorizer, no subscribers are stored and all topics
are visible.
"""

from itertools import islice

from ottla.model.security.acls import AclOperation, ResourceType
from ottla.node.network.dispatch import Permissions

DECIDED_AT_ONCE = 2_000
"""Maximum number of topics per step for which the permissions of a regular expression's subscribers
are checked. A step usually takes 5 ms, and at most 20 ms. Further topics are checked with the next
heartbeats."""

READERS_MAX = 16
"""Maximum number of principals whose permissions are checked for one regular expression in one
group. A larger value costs more per topic."""


class RegexReaders:
    """Principals that subscribe to one regular expression, and the topics that all of them may
    describe."""

    __slots__ = ("_decided", "_has_more", "_heard", "_readers", "_version", "_visible")

    def __init__(self) -> None:
        self._readers: dict[str, Permissions] = {}
        self._heard: set[str] = set()
        """Names of the principals that sent a heartbeat since the last call of `forget_silent`."""
        self._version = -1
        self._decided: set[str] = set()
        self._visible: set[str] = set()
        """Names of the topics that all subscribers may see. Until the visibility of a topic is
        decided again, its previous decision is used."""
        self._has_more = False

    def note(self, permissions: Permissions) -> bool:
        """Store a principal that subscribes to the regular expression. Returns True if the topics
        that all subscribers may see can change."""
        principal = permissions.principal
        self._heard.add(principal)
        is_new = principal not in self._readers and len(self._readers) < READERS_MAX
        if is_new:
            self._readers[principal] = permissions
        if is_new or permissions.version != self._version:
            self._version = permissions.version
            self._decided.clear()
            return True
        return self._has_more

    def forget_silent(self) -> bool:
        """Remove the principals that sent no heartbeat since the last call. Returns True if a
        principal was removed.

        The members of these principals have left, so their permissions no longer limit the topics
        of other members.
        """
        silent = self._readers.keys() - self._heard
        self._heard.clear()
        # If all were silent, the process was paused, and the subscribers still exist.
        if not silent or len(silent) == len(self._readers):
            return False
        for principal in silent:
            del self._readers[principal]
        self._decided.clear()
        return True

    def seen(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the subset of `topics` that every subscriber of the regular expression may see.
        Topics that were not checked yet are left out."""
        if not self._readers:
            return topics
        self._visible &= topics
        open_names = topics - self._decided
        self._has_more = len(open_names) > DECIDED_AT_ONCE
        for name in islice(open_names, DECIDED_AT_ONCE):
            self._decided.add(name)
            if all(self._may_see(reader, name) for reader in self._readers.values()):
                self._visible.add(name)
            else:
                self._visible.discard(name)
        self._decided &= topics
        return frozenset(self._visible)

    @staticmethod
    def _may_see(reader: Permissions, name: str) -> bool:
        return reader.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
