"""Charges requests and responses to their clients, and pauses the connections of clients above a
quota.

Pure except for the clock that it uses.
- A Produce is charged for the bytes of its frame on arrival.
- A fetch is charged for the records of its response before the response is built, and for the other
  bytes of the response afterwards.
- Every request is charged for its time: handler, decoding and encoding, also in threads, and the
  writes of its response.

Usage that is known only after the response was decided is charged with the client's next request,
as Kafka does for the time of its network threads.

The response of a throttled client is sent at once and contains the throttle time. The client's
connection is not read until that time has passed (KIP-219), so a client gains nothing by ignoring
it. If no client has a limit and no operator watches the clients, a request costs one check.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ottla.model.limits import FRAME_LENGTH_BYTES
from ottla.model.log_events import event
from ottla.model.log_limiter import LogLimiter
from ottla.model.quotas.quota_callback import CustomLimits
from ottla.model.quotas.quota_limits import ClientEntity, Limits, limits_of
from ottla.model.quotas.rates import SampledRate, WindowShape
from ottla.model.seams import Clock
from ottla.model.settings.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.node.network.dispatch import RequestContext
from ottla.node.network.loop_clock import LoopClock
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.quotas.client_quotas import FREE, ClientQuotas, ClientUsage, Found, Throttle
from ottla.node.quotas.client_traffic import ClientTraffic
from ottla.node.quotas.quota_types import QUOTA_TYPES
from ottla.wire.apis import API, FETCH, PRODUCE

EXEMPT = frozenset(key for key, row in API.items() if row.cost.is_exempt)
"""Keys of the APIs whose requests are not charged, because only brokers send them. A follower's
fetch is exempt as well."""

logger = logging.getLogger(__name__)

NO_QUOTAS: Mapping[str, float] = {}

NS_PER_PERCENT = 10_000_000
"""Number of nanoseconds in one percent of a second, the unit of the quota `request_percentage`."""


class RequestCharge:
    """Charge of one request to its client's quotas, and the resulting throttle time."""

    __slots__ = (
        "_arrived_ms", "_client_id", "_fetch_usage", "_found", "_given_bytes", "_quotas",
        "_settled_ns", "_usage", "_user", "is_exempt", "throttle_ms", "used_ns",
    )  # fmt: skip

    def __init__(self, quotas: "RequestQuotas", user: str, client_id: str, arrived_ms: int) -> None:
        """Create the charge of a request that arrived at `arrived_ms` (monotonic). Until its
        handler returns, this is the time of all its usage: its iteration of the event loop takes
        some milliseconds at most, and a clock is not read again for each request."""
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._arrived_ms = arrived_ms
        # Usage to which the rest of a fetch's frame is charged, in addition to its records.
        self._fetch_usage: ClientUsage | None = None
        self._given_bytes: int
        # Limit and usage of a fetch's client, or None if it has no limit. Not set before
        # `fetch_bytes_max` looks them up, since a charge is created for every request.
        self._found: Found | None
        # Time at which the charge was settled; negative before that.  Then there is a usage, or no
        # limit.
        self._settled_ns = -1
        self._usage: ClientUsage | None
        self.is_exempt = False
        """True for a request between brokers. Its time is counted, but charged to no client."""
        self.used_ns = 0
        """Nanoseconds of processing time, on the event loop or in threads, that the request used
        after the first call of its handler returned."""
        self.throttle_ms = 0

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the number of record bytes that a fetch may return under its client's quota, at
        most `bytes_max`."""
        fetch, now_ms = self._quotas.fetch, self._arrived_ms
        self._found = found = fetch.find(self._user, self._client_id, now_ms)
        return bytes_max if found is None else fetch.most_at_once(found, bytes_max, now_ms)

    def may_give(self, byte_count: int, slot: ResponseSlot) -> bool:
        """Charge the client of a fetch for the records of the response. Returns False, and charges
        nothing, if the response must be sent without records. The handler must have called
        `fetch_bytes_max` before.
        """
        if self.is_exempt:
            return True
        fetch = self._quotas.fetch
        found, now_ms = self._found, self._arrived_ms
        if slot.handled_ns:  # The limits may have changed during a wait.
            now_ms = self._quotas.now_ms()
            found = fetch.find(self._user, self._client_id, now_ms)
        if found is None:
            return True
        offer = fetch.offer_to(found, byte_count, now_ms)
        if offer is FREE:
            self._fetch_usage = found[1]
            self._given_bytes = byte_count
            return True
        if offer.is_given:
            self._fetch_usage = found[1]
            self._given_bytes = byte_count
        if offer.delay_ms:
            self.throttle(slot, offer.delay_ms, now_ms)
        return offer.is_given

    def settle(self, slot: ResponseSlot) -> int:
        """Charge the request's time to its client. Returns the total throttle time of the client,
        in milliseconds.

        The charged time is the time of the handler and its steps, without waits.
        """
        quotas = self._quotas
        request = quotas.request
        if request.is_active and not self.is_exempt:
            self._settled_ns = now_ns = quotas.loop_clock.now_ns()
            if slot.handled_ns:
                used_ns = slot.handled_ns - slot.started_ns + self.used_ns
                self.used_ns = 0
                now_ms = quotas.now_ms()
            else:
                used_ns = now_ns - slot.started_ns
                now_ms = self._arrived_ms
            found = request.find(self._user, self._client_id, now_ms)
            if found is None:
                self._usage = None
            else:
                self._usage = found[1]
                delay_ms = request.record_for(found, used_ns / NS_PER_PERCENT, now_ms)
                if delay_ms:
                    self.throttle(slot, delay_ms, now_ms)
        return self.throttle_ms

    def note_thread_time(self, used_ns: int) -> None:
        """Count time that a thread used for the request, while the event loop continued."""
        self.used_ns += used_ns
        if self._settled_ns >= 0:
            self._settled_ns = self._quotas.loop_clock.now_ns()

    def complete(self, slot: ResponseSlot, now_ns: int) -> None:
        """Charge the client for the time and bytes that were used after the call of `settle`, while
        the response was built.

        A request for which `settle` was never called has no response (acks=0) or was sent by a
        broker. Its time is exempt, as in Kafka.
        """
        usage = self._fetch_usage
        if usage is not None:
            usage.late += _size_of(slot) - self._given_bytes
        settled_ns = self._settled_ns
        if settled_ns < 0:
            self.is_exempt = True
            ended_ns = slot.handled_ns or now_ns
            self._quotas.record_exempt(ended_ns - slot.started_ns + self.used_ns)
        elif (usage := self._usage) is not None:
            usage.late += (now_ns - settled_ns + self.used_ns) / NS_PER_PERCENT

    def note_written(self, used_ns: int) -> None:
        """Count time that the event loop used to write responses to the client."""
        if self._settled_ns < 0:
            self._quotas.record_exempt(used_ns)
        elif self._usage is not None:
            self._usage.late += used_ns / NS_PER_PERCENT

    def throttle(self, slot: ResponseSlot, delay_ms: int, now_ms: int) -> None:
        """Throttle the client for `delay_ms` milliseconds from `now_ms`, unless another quota
        throttles it for longer."""
        if delay_ms > self.throttle_ms:
            self.throttle_ms = delay_ms
            slot.mute_until(now_ms + delay_ms)


class WatchedCharge(RequestCharge):
    """Charge of one request while an operator watches the traffic of clients."""

    __slots__ = ("_frame_bytes",)

    def __init__(
        self,
        quotas: "RequestQuotas",
        user: str,
        client_id: str,
        arrived_ms: int,
        frame_bytes: int,
    ) -> None:
        super().__init__(quotas, user, client_id, arrived_ms)
        self._frame_bytes = frame_bytes

    def complete(self, slot: ResponseSlot, now_ns: int) -> None:
        """Charge the client as for any request. Also count the request for the operator if it does
        not come from a broker."""
        if not self.is_exempt:
            self._quotas.traffic.note(
                self._user,
                self._client_id,
                bytes_in=FRAME_LENGTH_BYTES + self._frame_bytes,
                bytes_out=_size_of(slot),
                used_ns=(slot.handled_ns or now_ns) - slot.started_ns + self.used_ns,
            )
        super().complete(slot, now_ns)


def _size_of(slot: ResponseSlot) -> int:
    """Return the size of a response in bytes, records in files included."""
    chunks = slot.chunks
    return len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))


class RequestQuotas:
    """Quotas of a broker's clients: produced bytes, fetched bytes, and request time."""

    def __init__(
        self,
        shape: WindowShape,
        clock: Clock,
        loop_clock: LoopClock,
        custom_limits: Callable[[str], CustomLimits] | None = None,
    ) -> None:
        """Create the quotas. `custom_limits` returns the limits for the key of a quota, computed by
        the operator's quota callback. None means that the limits are read from the metadata."""
        self.now_ms = clock.monotonic_ms
        self.loop_clock = loop_clock
        self._lines = LogLimiter()
        self.by_key = {
            key: ClientQuotas(
                shape,
                throttle_ms_max=shape.window_ms if quota.lasts_one_window else None,
                report=partial(self._log, key),
            )
            for key, quota in QUOTA_TYPES.items()
        }
        """Client quotas by the keys of their limits, such as `producer_byte_rate`."""
        self.produce = self.by_key[PRODUCER_BYTE_RATE]
        self.fetch = self.by_key[CONSUMER_BYTE_RATE]
        self.request = self.by_key[REQUEST_PERCENTAGE]
        self.exempt = SampledRate(shape)
        """Percentage of a second used by requests that are charged to no client. Measured only
        while the request time of any client is limited."""
        self._limits: dict[str, Limits] = {}
        """Limits of clients in the metadata, by the keys of their limits."""
        self._custom: dict[str, CustomLimits] = {}
        if custom_limits is not None:
            self._custom = {key: custom_limits(QUOTA_TYPES[key].kafka_name) for key in self.by_key}
        self.traffic = ClientTraffic()
        """Counts of all clients, which are made only while an operator watches."""
        self.is_active = False
        """True if any client has a limit under any quota, or if all clients are watched."""
        self.set_quotas({})

    def set_quotas(
        self,
        quotas: Mapping[ClientEntity, Mapping[str, float]],
        changed: Iterable[ClientEntity] | None = None,
    ) -> None:
        """Apply the quotas in a metadata image. `changed` contains the entities whose quotas have
        changed; None means all entities."""
        entities = None if changed is None else list(changed)
        for key, one in self.by_key.items():
            if entities is None:
                limits = limits_of(quotas, key)
            else:
                limits = self._limits[key].changed(
                    {entity: quotas.get(entity, NO_QUOTAS).get(key) for entity in entities}
                )
            self._limits[key] = limits
            custom = self._custom.get(key)
            if custom is not None:
                custom.tell(limits)
            one.set_limits(custom or limits)
        self._decide_activity()

    def watch(self, for_ms: int) -> None:
        """Count the requests of all clients for `for_ms` milliseconds from now."""
        self.traffic.watch(for_ms, self.now_ms())
        self.is_active = True

    def _decide_activity(self) -> None:
        is_limited = any(one.is_active for one in self.by_key.values())
        self.is_active = is_limited or self.traffic.is_watched

    def forget_idle(self, now_ms: int) -> None:
        """Delete the usage of clients that were idle for an hour, in every quota of requests."""
        for one in self.by_key.values():
            one.forget_idle(now_ms)

    def record_exempt(self, used_ns: int) -> None:
        """Count the processing time of requests for which no client is charged."""
        if self.request.is_active:
            self.exempt.record(used_ns / NS_PER_PERCENT, self.now_ms())

    def charge(self, context: RequestContext, frame_bytes: int) -> None:
        """Start charging a received request to its client's quotas. The charge is stored in the
        request's context.

        A Produce request is charged for the bytes of its frame now. These bytes were read even if
        the request is refused later.
        """
        header = context.header
        api_key, client_id = header.api_key, header.client_id or ""
        user, arrived_ms = context.peer.user, context.arrived_ms
        is_watched = self.traffic.is_watched
        if is_watched and self.traffic.is_over(arrived_ms):
            is_watched = False
            self._decide_activity()
        charge: RequestCharge
        if is_watched:
            charge = WatchedCharge(self, user, client_id, arrived_ms, frame_bytes)
        elif self.request.is_active or self._counts_bytes_of(api_key):
            charge = RequestCharge(self, user, client_id, arrived_ms)
        else:
            return
        context.charge = charge
        if api_key in EXEMPT:
            charge.is_exempt = True
        elif api_key == PRODUCE:
            size = FRAME_LENGTH_BYTES + frame_bytes
            delay_ms = self.produce.record(user, client_id, size, arrived_ms)
            if delay_ms:
                charge.throttle(context, delay_ms, arrived_ms)

    def _counts_bytes_of(self, api_key: int) -> bool:
        if api_key == PRODUCE:
            return self.produce.is_active
        return api_key == FETCH and self.fetch.is_active

    def _log(self, quota: str, throttle: Throttle) -> None:
        """Log that a quota throttles a client. The number of log lines is limited, since clients
        choose their names."""
        suppressed_count = self._lines.admit(self.now_ms())
        if suppressed_count is None:
            return
        user, client_id, limit, delay_ms = throttle
        names = [f"client {client_id}"] if client_id else []
        names += [f"user {user}"] if user else []
        left_out = f" ({suppressed_count} such lines were left out)" if suppressed_count else ""
        logger.info(
            "%s is throttled for %d ms: %s, its %s%s",
            " of ".join(names) or "a client",
            delay_ms,
            QUOTA_TYPES[quota].reason.format(limit=limit),
            quota,
            left_out,
            extra=event(
                "client.throttled",
                user=user,
                client_id=client_id,
                quota=quota,
                limit=limit,
                throttle_ms=delay_ms,
            ),
        )
