"""Whose eyes a regular expression of a consumer group is resolved with.  Pure.

A group has one list of topics for each expression, as in Kafka's records.  A topic is in it if all
who subscribe by the expression may see it, so that no member is told of a topic that it may not
see.  Where no authorizer is set no one is noted, and all topics are seen.
"""

from itertools import islice

from ottla.broker.network.dispatch import Permissions
from ottla.model.acls import AclOperation, ResourceType

DECIDED_AT_ONCE = 2_000
"""Topics that are decided in one go: some 5 ms, at most 20.  Of an expression with more, the rest
is decided with the next heartbeats."""

READERS_MAX = 16
"""Principals whose permissions count, for one expression in one group: more would cost more."""


class RegexReaders:
    """The principals who subscribe by one expression, and what all of them may see."""

    __slots__ = ("_decided", "_has_more", "_heard", "_readers", "_version", "_visible")

    def __init__(self) -> None:
        self._readers: dict[str, Permissions] = {}
        self._heard: set[str] = set()
        """Those that subscribed, or gave a sign of life, since the last `forget_silent`."""
        self._version = -1
        self._decided: set[str] = set()
        self._visible: set[str] = set()
        """What may be seen; of what is to be decided again, as it was decided before."""
        self._has_more = False

    def note(self, permissions: Permissions) -> bool:
        """Note who subscribes; return whether other topics may be seen by that."""
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
        """Forget principals that were silent since the last call; return whether there were any.

        Members of theirs have left: they no longer limit what the others see.
        """
        silent = self._readers.keys() - self._heard
        self._heard.clear()
        # All at once is a group that stood still, not one without subscribers.
        if not silent or len(silent) == len(self._readers):
            return False
        for principal in silent:
            del self._readers[principal]
        self._decided.clear()
        return True

    def seen(self, topics: frozenset[str]) -> frozenset[str]:
        """Return those topics that all may see, as far as that is decided."""
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
