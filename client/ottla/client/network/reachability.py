"""Log messages about unreachable brokers, and about the end of their outages.

One line is logged when a broker has been unreachable for a second, one when the reason changes, and
one when the broker is reachable again.  Repeated attempts are not logged.
"""

import logging

Address = tuple[str, int]

LOG = logging.getLogger("ottla.client.network")

SILENT_S = 1.0
"""Seconds before an outage is logged.  With a smaller value, every restart of a broker is logged;
with a larger value, a program that waits for a broker seems to hang."""
ADDRESS_COUNT_MAX = 1_000
"""Maximum number of unreachable addresses that are remembered. It limits memory, because brokers
can report arbitrary addresses."""


class Outage:
    """The outage of one address: all attempts to connect to it have failed for some time."""

    __slots__ = ("logged", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.logged: str | None = None
        """Reason in the last log message about this outage, or None before the first message."""


class Reachability:
    """Addresses that one client cannot reach at present, for log messages about outages."""

    def __init__(self) -> None:
        self._outages: dict[Address, Outage] = {}
        self.last_reason: str | None = None
        """Reason of the last failed attempt.  None if an attempt has succeeded since."""

    def note_failure(self, address: Address, reason: str, *, began_s: float, now_s: float) -> None:
        """Record a failed attempt to connect.  Logs it if the outage has lasted long enough and its
        reason is new."""
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
        """Record a successful connection. Logs the end of the outage if its start was logged."""
        self.last_reason = None
        outage = self._outages.pop(address, None)
        if outage is not None and outage.logged is not None:
            LOG.warning("connected to %s:%d again after %.1f s", *address, now_s - outage.since_s)
