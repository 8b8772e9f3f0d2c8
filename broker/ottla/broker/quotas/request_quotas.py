"""Charges requests and answers to their clients, and mutes the connections of those that took more.

Pure but for the clock it is given.  A Produce is charged by the bytes of its frame when it arrives;
a fetch by the records of its answer before that is made, and by the rest of its frame afterwards;
every request by the time that it takes: its handler's, decoding and encoding, also in threads, and
the writes of its answer.  What is known only after the answer was decided is charged with the
client's next request, as Kafka records the time of its network threads.

The answer of a throttled client leaves at once and says for how long; its connection is read no
further until then (KIP-219), so that a client that does not listen gains nothing.  Where no limit
is set for any client, a request costs one look.  Features QU01-QU03, QU20, QU22.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from ottla.broker.network.dispatch import RequestContext
from ottla.broker.network.loop_clock import LoopClock
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.quotas.client_quotas import FREE, ClientQuotas, ClientUsage, Offer, Throttle
from ottla.model.limits import FRAME_LENGTH_BYTES
from ottla.model.log_events import event
from ottla.model.log_limiter import LogLimiter
from ottla.model.quota_limits import ClientEntity, Limits, limits_of
from ottla.model.quotas.quota_callback import CustomLimits
from ottla.model.rates import SampledRate, WindowShape
from ottla.model.seams import Clock
from ottla.model.settings.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.wire.apis import FETCH, PRODUCE, WRITE_TXN_MARKERS

EXEMPT = frozenset({WRITE_TXN_MARKERS})
"""What only brokers send each other; a follower's fetch is exempt too."""

QUOTA_TYPES = {
    PRODUCER_BYTE_RATE: "PRODUCE",
    CONSUMER_BYTE_RATE: "FETCH",
    REQUEST_PERCENTAGE: "REQUEST",
}
"""What Kafka calls the quota of each limit."""

MEANINGS = {
    PRODUCER_BYTE_RATE: "it sent more than {limit:,.0f} bytes a second",
    CONSUMER_BYTE_RATE: "it fetches more than {limit:,.0f} bytes a second",
    REQUEST_PERCENTAGE: "its requests took more than {limit:g} % of the time",
}
"""Why a client is throttled."""

logger = logging.getLogger(__name__)

NO_QUOTAS: Mapping[str, float] = {}

NS_PER_PERCENT = 10_000_000
"""One percent of a second, in which `request_percentage` is measured."""


class RequestCharge:
    """What one request is charged, and for how long its client is throttled for it."""

    __slots__ = (
        "_client_id", "_fetch_usage", "_given_bytes", "_quotas", "_settled_ns", "_usage", "_user",
        "is_exempt", "throttle_ms", "used_ns",
    )  # fmt: skip

    def __init__(self, quotas: "RequestQuotas", user: str, client_id: str) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        # Whom the rest of a fetch's frame is charged to, besides the records that were given.
        self._fetch_usage: ClientUsage | None = None
        self._given_bytes: int
        # When the time was charged; negative before that.  Then there is a usage, or no limit.
        self._settled_ns = -1
        self._usage: ClientUsage | None
        self.is_exempt = False
        """True if it is a request between brokers: its time is counted, and no client pays."""
        self.used_ns = 0
        """Time that it took besides its handler's first turn, on the loop or in threads."""
        self.throttle_ms = 0

    def on_arrived(self, frame_bytes: int, slot: ResponseSlot) -> None:
        """Charge a Produce for what it brings, be it refused later: it was read."""
        quotas = self._quotas
        now_ms = quotas.now_ms()
        size = FRAME_LENGTH_BYTES + frame_bytes
        delay_ms = quotas.produce.record(self._user, self._client_id, size, now_ms)
        if delay_ms:
            self._throttle(slot, delay_ms, now_ms)

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the most bytes that a fetch may be given: more is throttled for certain."""
        quotas = self._quotas
        most = quotas.fetch.most_at_once(self._user, self._client_id, quotas.now_ms())
        return bytes_max if most is None else max(1, int(min(bytes_max, most)))

    def may_give(self, byte_count: int, slot: ResponseSlot) -> bool:
        """Charge a fetch for its records; return whether it is to be given them.

        Else they are taken back from the charge, and the answer goes out without any.
        """
        now_ms = self._quotas.now_ms()
        offer = self._offer(byte_count, now_ms)
        if offer.delay_ms:
            self._throttle(slot, offer.delay_ms, now_ms)
        return offer.is_given

    def may_give_all(self, byte_count: int) -> bool:
        """Charge a fetch for records that its client has the credit for; else charge nothing."""
        return self._offer(byte_count, self._quotas.now_ms(), is_certain=True).is_given

    def _offer(self, byte_count: int, now_ms: int, *, is_certain: bool = False) -> Offer:
        fetch = self._quotas.fetch
        if self.is_exempt or not fetch.is_active:
            return FREE
        found = fetch.find(self._user, self._client_id, now_ms)
        if found is None:
            return FREE
        offer = fetch.offer_to(found, byte_count, now_ms, is_certain=is_certain)
        if offer.is_given:
            self._fetch_usage = found[1]
            self._given_bytes = byte_count
        return offer

    def settle(self, slot: ResponseSlot) -> int:
        """Charge the request's time; return for how many ms its client is throttled in all.

        Its time is its handler's, and that of its steps; not what it waited for others.
        """
        quotas = self._quotas
        request = quotas.request
        if request.is_active and not self.is_exempt:
            self._settled_ns = now_ns = quotas.loop_clock.now_ns()
            used_ns = (slot.handled_ns or now_ns) - slot.started_ns + self.used_ns
            self.used_ns = 0
            now_ms = quotas.now_ms()
            found = request.find(self._user, self._client_id, now_ms)
            if found is None:
                self._usage = None
            else:
                self._usage = found[1]
                delay_ms = request.record_for(found, used_ns / NS_PER_PERCENT, now_ms)
                if delay_ms:
                    self._throttle(slot, delay_ms, now_ms)
        return self.throttle_ms

    def note_apart(self, used_ns: int) -> None:
        """Count time that a thread took for the request; the loop did not wait for it."""
        self.used_ns += used_ns
        if self._settled_ns >= 0:
            self._settled_ns = self._quotas.loop_clock.now_ns()

    def complete(self, slot: ResponseSlot, now_ns: int) -> None:
        """Count what making the answer took since the charge was settled: time, and bytes.

        A request that was never settled has no answer (acks=0) or comes from a broker: its time is
        exempt, as in Kafka.
        """
        usage = self._fetch_usage
        if usage is not None:
            chunks = slot.chunks
            size = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
            usage.late += size - self._given_bytes
        settled_ns = self._settled_ns
        if settled_ns < 0:
            self.is_exempt = True
            ended_ns = slot.handled_ns or now_ns
            self._quotas.record_exempt(ended_ns - slot.started_ns + self.used_ns)
        elif (usage := self._usage) is not None:
            usage.late += (now_ns - settled_ns + self.used_ns) / NS_PER_PERCENT

    def note_written(self, used_ns: int) -> None:
        """Count time that the loop took to write answers of the client."""
        if self._settled_ns < 0:
            self._quotas.record_exempt(used_ns)
        elif self._usage is not None:
            self._usage.late += used_ns / NS_PER_PERCENT

    def _throttle(self, slot: ResponseSlot, delay_ms: int, now_ms: int) -> None:
        if delay_ms > self.throttle_ms:
            self.throttle_ms = delay_ms
            slot.mute_until(now_ms + delay_ms)


class RequestQuotas:
    """The quotas of a broker's clients: bytes in, bytes out, and time."""

    def __init__(
        self,
        shape: WindowShape,
        clock: Clock,
        loop_clock: LoopClock,
        custom_limits: Callable[[str], CustomLimits] | None = None,
    ) -> None:
        """`custom_limits` returns the limits of a quota where the operator's own code decides."""
        self.now_ms = clock.monotonic_ms
        self.loop_clock = loop_clock
        self._lines = LogLimiter()
        self.produce = ClientQuotas(shape, report=partial(self._log, PRODUCER_BYTE_RATE))
        self.fetch = ClientQuotas(shape, report=partial(self._log, CONSUMER_BYTE_RATE))
        self.request = ClientQuotas(
            shape,
            throttle_ms_max=shape.window_ms,
            report=partial(self._log, REQUEST_PERCENTAGE),
        )
        self.exempt = SampledRate(shape)
        """Percent of a second that requests take which no client pays for, while any client's
        time is limited."""
        self.by_key = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
        }
        """The quotas by the keys of their limits."""
        self._limits: dict[str, Limits] = {}
        """The limits of the cluster, by their keys."""
        self._custom: dict[str, CustomLimits] = {}
        if custom_limits is not None:
            self._custom = {key: custom_limits(QUOTA_TYPES[key]) for key in self.by_key}
        self.is_active = False
        """Whether anyone is limited in anything."""
        self.set_quotas({})

    def set_quotas(
        self,
        quotas: Mapping[ClientEntity, Mapping[str, float]],
        changed: Iterable[ClientEntity] | None = None,
    ) -> None:
        """Put an image's quotas in force: those of the entities that changed, or all of them."""
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
        self.is_active = any(one.is_active for one in self.by_key.values())

    def forget_idle(self, now_ms: int) -> None:
        """Forget what was not used for an hour."""
        for one in self.by_key.values():
            one.forget_idle(now_ms)

    def record_exempt(self, used_ns: int) -> None:
        """Count time of requests that no client pays for."""
        if self.request.is_active:
            self.exempt.record(used_ns / NS_PER_PERCENT, self.now_ms())

    def charge(self, context: RequestContext, frame_bytes: int) -> None:
        """Begin to charge a request that has arrived."""
        header = context.header
        is_produce = header.api_key == PRODUCE
        if is_produce:
            is_counted = self.produce.is_active
        else:
            is_counted = header.api_key == FETCH and self.fetch.is_active
        if not is_counted and not self.request.is_active:
            return
        slot = context.slot
        slot.charge = charge = RequestCharge(self, context.peer.user, header.client_id or "")
        if header.api_key in EXEMPT:
            charge.is_exempt = True
        if is_produce and is_counted:
            charge.on_arrived(frame_bytes, slot)

    def _log(self, quota: str, throttle: Throttle) -> None:
        """Log that a client is throttled; clients choose their names, so lines are limited."""
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
            MEANINGS[quota].format(limit=limit),
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
