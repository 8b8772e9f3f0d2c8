"""Which connections are accepted, which wait, and which are closed: counts and rates.

Pure; the time goes in.  The acceptor asks three things in this order (features CQ03): for how long
a listener accepts none (`wait_ms`), what becomes of a connection it has accepted (`admit`), and it
reports each one that closes.  A connection above a rate of the broker or of its listener is served,
and the next one waits until the rate is within its bound again; one above the rate of its address
is closed after a delay, and counts nowhere; one above the count of its address is closed at once.

The listener of brokers is protected where there are others (CQ05): only bounds of its own hold it
back, and above the broker's count another connection gives way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from ottla.broker.quotas.client_quotas import IDLE_MS_MAX
from ottla.model.limits import INT32_MAX
from ottla.model.quota_limits import ClientEntity
from ottla.model.rates import SampledRate, WindowShape, throttle_ms
from ottla.model.settings.connections import ConnectionBounds
from ottla.model.settings.quotas import CONNECTION_CREATION_RATE

IP = "ip"

IPS_MAX = 10_000
"""Addresses whose rates are kept, some 1 KiB each.  With fewer, a storm from more addresses than
this forgets those that were silent for longest."""


class IpUsage:
    """The connections that one address made lately."""

    __slots__ = ("last_ms", "rate")

    def __init__(self, shape: WindowShape) -> None:
        self.rate = SampledRate(shape)
        self.last_ms = 0


class ConnectionQuotas:
    """The connections of a broker: their bounds, their counts and their rates."""

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
        """Connections for which the process has descriptors."""
        self.protected_listener = inter_broker if len(names) > 1 else None
        self.bounds = bounds or ConnectionBounds()
        self._shape = shape
        self._total = 0
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._broker_rate = SampledRate(shape)
        self._listener_rates = {name: SampledRate(shape) for name in names}
        self._closed_until_ms = dict.fromkeys(names, 0)
        """Until when a listener accepts none."""
        self._ip_limits: Mapping[str | None, float] = {}
        """Connections a second by address; None stands for all others."""
        self._ip_usages: dict[str, IpUsage] = {}
        """By address, those that came last behind."""
        self.throttled_ip_count = 0
        """Connections closed for the rate of their address."""
        self.refused_ip_count = 0
        """Connections closed for the count of their address."""

    # Bounds.

    def set_ip_limits(self, quotas: Mapping[ClientEntity, Mapping[str, float]]) -> None:
        """Put an image's limits of addresses in force."""
        limits: dict[str | None, float] = {}
        for entity, found in quotas.items():
            limit = found.get(CONNECTION_CREATION_RATE)
            if limit is not None and entity[0].type == IP:
                name = None if entity[0].is_default else _normal(entity[0].name)
                limits[name] = limit
        self._ip_limits = limits
        if not limits:
            self._ip_usages.clear()

    # What the acceptor asks.

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """Return for how long a listener accepts none; None: until there is room."""
        count_max = self.bounds.count_max_of_listeners.get(listener.lower(), INT32_MAX)
        if self._by_listener[listener] >= count_max:
            return None
        if listener != self.protected_listener and self._total >= self._count_max:
            return None
        return max(0, self._closed_until_ms[listener] - now_ms)

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        """Count a connection; return None to serve it, or after how many ms to close it."""
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
        """Whether a connection has to give way to one of the protected listener."""
        return self._total > self._count_max

    def on_closed(self, listener: str, host: str) -> None:
        """Forget a connection that was served."""
        self._total -= 1
        self._by_listener[listener] -= 1
        self._by_ip[host] -= 1
        self._drop_zero(host)

    # What is known.

    def forget_idle(self, now_ms: int) -> None:
        """Forget addresses that made no connection for an hour."""
        for host, usage in list(self._ip_usages.items()):
            if now_ms - usage.last_ms >= IDLE_MS_MAX:
                del self._ip_usages[host]

    def broker_rate(self, now_ms: int) -> float:
        """Return the connections a second that count against the broker's bound."""
        return self._broker_rate.per_second(now_ms)

    def listener_rates(self, now_ms: int) -> dict[str, float]:
        """Return the connections a second of each listener."""
        return {name: rate.per_second(now_ms) for name, rate in self._listener_rates.items()}

    def ip_rates(self, now_ms: int, count_max: int) -> dict[str, float]:
        """Return the connections a second of the addresses that are limited, the latest ones."""
        latest = list(self._ip_usages.items())[-count_max:]
        return {host: usage.rate.per_second(now_ms) for host, usage in latest}

    @property
    def _count_max(self) -> int:
        return min(self.bounds.count_max, self.count_allowed)

    def _record(self, listener: str, count: int, now_ms: int) -> int:
        """Count in the rates of a listener; return for how long it accepts none then."""
        rate_max = self.bounds.rate_max_of_listeners.get(listener.lower(), INT32_MAX)
        waits_ms = self._recorded(self._listener_rates[listener], rate_max, count, now_ms)
        if listener != self.protected_listener:
            broker_ms = self._recorded(self._broker_rate, self.bounds.rate_max, count, now_ms)
            waits_ms = max(waits_ms, broker_ms)
        return waits_ms

    def _record_ip(self, host: str, now_ms: int) -> int:
        """Count in the rate of an address, unless that is above its bound: return for how long."""
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
        """Record in a rate; return the throttle, of a window at most, as in Kafka."""
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
    """Return an address as sockets write it: `::1`, not `0:0:0:0:0:0:0:1`."""
    try:
        return str(ip_address(address))
    except ValueError:
        return address
