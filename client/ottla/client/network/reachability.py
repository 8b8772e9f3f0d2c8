"""Log messages about brokers that become unreachable and reachable again.

One line is logged when a broker has been unreachable for a second, one when the reason changes, and
one when the broker is reachable again. Repeated attempts with the same result are not logged.
"""

import logging

Address = tuple[str, int]

LOG = logging.getLogger("ottla.client.network")

SILENT_S = 1.0
"""Seconds for which a broker must be unreachable before a message is logged. With a smaller value,
every restart of a broker is logged. With a larger value, users of a program that waits for a broker
get the reason later."""
ADDRESS_COUNT_MAX = 1_000
"""Maximum number of stored unreachable addresses. It limits memory, because brokers can report
arbitrary addresses."""


class Outage:
    """A period in which all attempts to connect to one address have failed."""

    __slots__ = ("logged", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.logged: str | None = None
        """Reason in the last log message about this outage, or None before the first message."""


class Reachability:
    """Addresses that one client cannot reach at present. Used to log the start and end of
    outages."""

    def __init__(self) -> None:
        self._outages: dict[Address, Outage] = {}
        self.last_reason: str | None = None
        """Reason why the latest attempt to connect failed. None if an attempt has succeeded
        since."""

    def note_failure(self, address: Address, reason: str, *, began_s: float, now_s: float) -> None:
        """Record a failed attempt to connect. Logs a message if the address has been unreachable
        long enough and the reason is new."""
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
        """Record a successful attempt to connect. Logs the end of the outage if its start was
        logged."""
        self.last_reason = None
        outage = self._outages.pop(address, None)
        if outage is not None and outage.logged is not None:
            LOG.warning("connected to %s:%d again after %.1f s", *address, now_s - outage.since_s)
