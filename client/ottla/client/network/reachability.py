"""Logs which brokers cannot be reached, and when they can be again.

One line for a broker that has not been reached for a second, one more where the reason changes, and
one when it is reached; a client that repeats its attempts logs no line for each of them.
"""

import logging

Address = tuple[str, int]

LOG = logging.getLogger("ottla.client.network")

SILENT_S = 1.0
"""How long a broker is tried before a line says so.  Less reports each restart, more leaves a user
before a program that seems to hang."""
ADDRESS_COUNT_MAX = 1_000
"""Addresses remembered: brokers name them."""


class Outage:
    """An address that could not be reached lately."""

    __slots__ = ("logged", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.logged: str | None = None
        """The last reason that was logged."""


class Reachability:
    """The addresses that one client cannot reach at present."""

    def __init__(self) -> None:
        self._outages: dict[Address, Outage] = {}
        self.last_reason: str | None = None
        """Why the last attempt failed, while none has succeeded since."""

    def note_failure(self, address: Address, reason: str, *, began_s: float, now_s: float) -> None:
        """Note that an attempt to connect failed; log it where it has lasted and is news."""
        self.last_reason = reason
        outage = self._outages.get(address)
        if outage is None:
            if len(self._outages) >= ADDRESS_COUNT_MAX:
                return
            outage = self._outages[address] = Outage(began_s)
        if now_s - outage.since_s >= SILENT_S and outage.logged != reason:
            outage.logged = reason
            LOG.warning("%s, trying again", reason)

    def note_success(self, address: Address, *, now_s: float) -> None:
        """Note that a connection is open; log it where its outage was logged."""
        self.last_reason = None
        outage = self._outages.pop(address, None)
        if outage is not None and outage.logged is not None:
            LOG.warning("connected to %s:%d again after %.1f s", *address, now_s - outage.since_s)
