"""Limit of failed logins, by the client's address and by user. Pure.

After some failures, each further failure doubles the time until the next attempt. The limit by user
protects an account against an attack from many addresses. It is less strict, because an attacker
can use it to lock the user out. The table is bounded: if it is full, the entry with the oldest
failure is removed.
"""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

from ottla.model.values import frozen

ENTRIES_MAX = 10_000
FREE_FAILURES_OF_ADDRESS = 5
"""Number of failed logins from one address that cause no delay, such as mistyped passwords."""
FREE_FAILURES_OF_USER = 20
FIRST_DELAY_MS = 2_000
DELAY_MS_MAX = 15 * 60_000
FORGOTTEN_AFTER_MS = 60 * 60_000
"""Time in ms without a failed login after which earlier failures of a user or an address no longer
count."""
HOST_BITS_V6 = 64
"""Number of low bits of an IPv6 address that a single host can choose freely."""


@frozen
class _Failures:
    count: int
    last_ms: int


class LoginAttempts:
    """Counts of recent failed logins, by address and by user."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failures)

    def wait_ms(self, host: str, user: str, now_ms: int) -> int:
        """Return the time, in ms, until a client at the address `host` may try to log in as a user,
        or 0 if the client may try now."""
        return max(
            self._wait_ms(("host", network_of(host)), FREE_FAILURES_OF_ADDRESS, now_ms),
            self._wait_ms(("user", user), FREE_FAILURES_OF_USER, now_ms),
        )

    def note_failure(self, host: str, user: str, now_ms: int) -> None:
        """Count a failed login of a user from the address `host`."""
        for key in (("host", network_of(host)), ("user", user)):
            before = self._failures.pop(key, None)
            is_recent = before is not None and now_ms - before.last_ms < FORGOTTEN_AFTER_MS
            count = before.count + 1 if before is not None and is_recent else 1
            self._failures[key] = _Failures(count, now_ms)
        while len(self._failures) > ENTRIES_MAX:
            self._failures.popitem(last=False)

    def note_success(self, host: str, user: str) -> None:
        """Delete the failed logins of a user. Failed logins that are counted for the client's
        address remain, so that an attacker with a valid account cannot reset them."""
        self._failures.pop(("user", user), None)

    def _wait_ms(self, key: tuple[str, str], free: int, now_ms: int) -> int:
        found = self._failures.get(key)
        if found is None or found.count < free or now_ms - found.last_ms >= FORGOTTEN_AFTER_MS:
            return 0
        doublings = min(found.count - free, 16)
        delay_ms = min(DELAY_MS_MAX, FIRST_DELAY_MS << doublings)
        return max(0, found.last_ms + delay_ms - now_ms)


def network_of(host: str) -> str:
    """Return the network whose failed logins are counted together: an IPv4 address, or the first 64
    bits of an IPv6 address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> HOST_BITS_V6 << HOST_BITS_V6))
    return str(address)
