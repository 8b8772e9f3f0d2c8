"""Quotas of connections: counts and rates decide which connections are accepted, wait, or are
closed.

Pure; the caller passes the time. The acceptor makes three calls. `wait_ms` returns the time for
which a listener must not accept, `admit` decides about an accepted connection, and `on_closed`
reports a connection that has closed.

* A connection above a rate of the broker or of its listener is served. The next one waits until the
  rate is within its bound again.
* A connection above the rate of its address is closed after a delay, and counts in no other quota.
* A connection above the count of its address is closed at once.

The inter-broker listener is protected if there are other listeners. Only its own limits apply to
it. If the broker's maximum count is exceeded, a connection on another listener is closed so that
brokers can still connect.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from ottla.model.limits import INT32_MAX
from ottla.model.quotas.quota_limits import ClientEntity
from ottla.model.quotas.rates import IDLE_MS_MAX, SampledRate, WindowShape, throttle_ms
from ottla.model.settings.connections import ConnectionBounds
from ottla.model.settings.quotas import CONNECTION_CREATION_RATE

IP = "ip"

IPS_MAX = 10_000
"""Maximum number of IP addresses whose connection rates are stored, at some 1 KiB each. Beyond
that, the addresses without a new connection for the longest time are dropped."""


class IpUsage:
    """Rate of connections from one IP address, and the time of the last connection."""

    __slots__ = ("last_ms", "rate")

    def __init__(self, shape: WindowShape) -> None:
        self.rate = SampledRate(shape)
        self.last_ms = 0


class ConnectionQuotas:
    """Counts and rates of a broker's client connections, and the limits on them."""

    def __init__(
        self,
        shape: WindowShape,
        *,
        listeners: Iterable[str],
        inter_broker: str,
        bounds: ConnectionBounds | None = None,
    ) -> None:
        names = list(listeners)
        self.count_allowed = INT32_MAX
        """Maximum number of connections for which the process has file descriptors."""
        self.protected_listener = inter_broker if len(names) > 1 else None
        self.bounds = bounds or ConnectionBounds()
        self._shape = shape
        self._total = 0
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._broker_rate = SampledRate(shape)
        self._listener_rates = {name: SampledRate(shape) for name in names}
        self._closed_until_ms = dict.fromkeys(names, 0)
        """Monotonic time in milliseconds until which a listener accepts no connection, by listener
        name."""
        self._ip_limits: Mapping[str | None, float] = {}
        """Maximum number of new connections per second by IP address. The entry None is the default
        for addresses without an entry."""
        self._ip_usages: dict[str, IpUsage] = {}
        """Rate and last time of connections, by IP address, the most recent last."""
        self.throttled_ip_count = 0
        """Number of connections closed because their IP address exceeded its connection rate."""
        self.refused_ip_count = 0
        """Number of connections closed because their IP address had too many open connections."""

    # Bounds.

    def set_ip_limits(self, quotas: Mapping[ClientEntity, Mapping[str, float]]) -> None:
        """Apply the limits on connection rates of IP addresses that a metadata image contains."""
        limits: dict[str | None, float] = {}
        for entity, found in quotas.items():
            limit = found.get(CONNECTION_CREATION_RATE)
            if limit is not None and entity[0].type == IP:
                name = None if entity[0].is_default else _normal(entity[0].name)
                limits[name] = limit
        self._ip_limits = limits
        if not limits:
            self._ip_usages.clear()

    # Interface for the acceptor.

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """Return the milliseconds for which a listener must accept no connection. Returns None if
        the listener must wait until another connection has closed."""
        count_max = self.bounds.count_max_of_listeners.get(listener.lower(), INT32_MAX)
        if self._by_listener[listener] >= count_max:
            return None
        if listener != self.protected_listener and self._total >= self._count_max:
            return None
        return max(0, self._closed_until_ms[listener] - now_ms)

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        """Decide whether to serve an accepted connection. Returns None if the connection is served,
        and counts it. Otherwise returns the milliseconds after which to close the connection."""
        waits_ms = self._record(listener, 1, now_ms)
        delay_ms = self._record_ip(host, now_ms)
        if delay_ms:
            self._record(listener, -1, now_ms)
            self.throttled_ip_count += 1
            return delay_ms
        self._closed_until_ms[listener] = now_ms + waits_ms
        bounds = self.bounds
        if self._by_ip[host] >= bounds.count_max_of_ips.get(host, bounds.count_max_per_ip):
            self.refused_ip_count += 1
            self._drop_zero(host)
            return 0
        self._total += 1
        self._by_listener[listener] += 1
        self._by_ip[host] += 1
        return None

    @property
    def has_excess(self) -> bool:
        """True if an open connection must be closed in favour of the protected (inter-broker)
        listener."""
        return self._total > self._count_max

    def on_closed(self, listener: str, host: str) -> None:
        """Stop counting a connection that was served and has closed."""
        self._total -= 1
        self._by_listener[listener] -= 1
        self._by_ip[host] -= 1
        self._drop_zero(host)

    # State and metrics.

    def forget_idle(self, now_ms: int) -> None:
        """Drop the connection rates of IP addresses that have made no connection for an hour."""
        for host, usage in list(self._ip_usages.items()):
            if now_ms - usage.last_ms >= IDLE_MS_MAX:
                del self._ip_usages[host]

    def broker_rate(self, now_ms: int) -> float:
        """Return the rate of new connections per second that counts towards the broker's limit."""
        return self._broker_rate.per_second(now_ms)

    def listener_rates(self, now_ms: int) -> dict[str, float]:
        """Return the rate of new connections per second, by listener name."""
        return {name: rate.per_second(now_ms) for name, rate in self._listener_rates.items()}

    def ip_rates(self, now_ms: int, count_max: int) -> dict[str, float]:
        """Return the rate of new connections per second for IP addresses that have a limit: at most
        `count_max`, the most recently active ones."""
        latest = list(self._ip_usages.items())[-count_max:]
        return {host: usage.rate.per_second(now_ms) for host, usage in latest}

    @property
    def _count_max(self) -> int:
        return min(self.bounds.count_max, self.count_allowed)

    def _record(self, listener: str, count: int, now_ms: int) -> int:
        """Count new connections in the rates of the broker and of a listener. Returns the
        milliseconds for which the listener must accept no connection."""
        rate_max = self.bounds.rate_max_of_listeners.get(listener.lower(), INT32_MAX)
        waits_ms = self._recorded(self._listener_rates[listener], rate_max, count, now_ms)
        if listener != self.protected_listener:
            broker_ms = self._recorded(self._broker_rate, self.bounds.rate_max, count, now_ms)
            waits_ms = max(waits_ms, broker_ms)
        return waits_ms

    def _record_ip(self, host: str, now_ms: int) -> int:
        """Count a connection in the rate of its IP address if the rate stays within the
        address's limit. Returns 0 in this case, or else the milliseconds after which to close
        the connection."""
        limits = self._ip_limits
        if not limits:
            return 0
        limit = limits.get(host, limits.get(None))
        if limit is None:
            return 0
        usage = self._ip_usages.pop(host, None)
        if usage is None:
            if len(self._ip_usages) >= IPS_MAX:
                del self._ip_usages[next(iter(self._ip_usages))]
            usage = IpUsage(self._shape)
        self._ip_usages[host] = usage
        usage.last_ms = now_ms
        delay_ms = self._recorded(usage.rate, limit, 1, now_ms)
        if delay_ms:
            usage.rate.record(-1, now_ms)
        return delay_ms

    def _recorded(self, rate: SampledRate, limit: float, count: int, now_ms: int) -> int:
        """Count new connections in a rate. Returns the throttle time in milliseconds, which is at
        most one window as in Kafka."""
        rate.record(count, now_ms)
        if limit >= INT32_MAX:
            return 0
        per_second = rate.per_second(now_ms)
        if not limit:
            return self._shape.window_ms if per_second > 0 else 0
        return min(throttle_ms(per_second, limit, rate.measured_ms(now_ms)), self._shape.window_ms)

    def _drop_zero(self, host: str) -> None:
        if not self._by_ip[host]:
            del self._by_ip[host]


def _normal(address: str) -> str:
    """Return an IP address in the notation of sockets: `::1`, not `0:0:0:0:0:0:0:1`."""
    try:
        return str(ip_address(address))
    except ValueError:
        return address
