"""The clients that report metrics to this broker, and the decisions on their requests (KIP-714).

Pure. A client instance is registered by its id at its first request. It is deleted when its
connection closes, or when it sends no request for too long. If there are too many instances, the
instance with the oldest last request is deleted. Every request is accepted or refused here; the
content of pushes is not examined. Invariants:
- BoundedInstances: the number of client instances is limited.
- LastIsLast: after an accepted terminating push, no other request of the instance is accepted.
- RefusedInOrder: the first failed check, in Kafka's order, determines the error.
- RefusedEndsNothing: a refused terminating push does not end the instance. In Kafka 4.4, the next
  push of the client is refused because of it.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import RESERVED_UUIDS_BELOW
from ottla.telemetry.clients.gate import PushGate
from ottla.telemetry.clients.subscriptions import (
    UNSUBSCRIBED_INTERVAL_MS,
    ClientMetricsSubscription,
    ClientTraits,
    Effective,
    read_subscription,
    resolve,
)
from ottla.wire.compression import Codec

INSTANCES_MAX = 16_384
"""Maximum number of clients that report metrics to this broker, as in Kafka.

If there are more clients, they evict each other and are throttled less accurately. Each client
takes about a kilobyte of memory, in addition to the data in the exporters.
"""

INSTANCES_PER_CONNECTION_MAX = 64
"""Maximum number of client instance ids of one connection. A client normally has one id. If a
client requests new ids endlessly, it evicts its own instances, not the instances of other clients.
"""

SILENCE_MS_MIN = 60_000
SILENCE_INTERVALS_MAX = 3
"""Number of push intervals without a request after which a client is deleted. The client is known
for at least one minute, even if these intervals are shorter."""

EXPIRED_AT_ONCE_MAX = 64
"""Maximum number of clients that are deleted before other tasks run.

Deleting the series of one client takes about 100 µs, and a network failure may silence thousands of
clients in the same second.
"""

CROWDED_LINE_MS = 300_000
"""Minimum time in ms between two log messages that the maximum number of reporting clients was
reached."""

EXCUSING = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""Errors in the response to a push that require the client to request its subscription again. The
client may do this without waiting."""

CODECS = frozenset(Codec)


class ClientInstance:
    """One client instance that reports metrics: its subscription, and the times of its requests in
    milliseconds of the monotonic clock."""

    __slots__ = (
        "alarm_ms",
        "connection_id",
        "effective",
        "error_count",
        "expires_ms",
        "export_count",
        "gate",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "push_bytes",
        "push_count",
        "throttle_count",
        "traits",
        "version",
    )

    def __init__(
        self, traits: ClientTraits, effective: Effective, *, connection_id: int, version: int
    ) -> None:
        self.traits = traits
        self.effective = effective
        self.connection_id = connection_id
        self.version = version
        """Version of the broker's subscriptions from which `effective`, the client's subscription,
        was computed."""
        self.gate = PushGate(effective.interval_ms)
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        """Error code of the response to the client's last telemetry request."""
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.push_count = 0
        """Number of the client's pushes that were accepted. `push_bytes` is the total size of these
        pushes as received, in bytes."""
        self.push_bytes = 0
        self.export_count = 0
        """Number of the client's pushes that were decompressed and exported. `error_count` is the
        number of pushes that could not be decompressed."""
        self.error_count = 0
        self.throttle_count = 0
        self.expires_ms = 0
        self.alarm_ms: int | None = None
        """Time in ms of the monotonic clock of the client's next check for expiry. None if no check
        is scheduled."""

    @property
    def id(self) -> UUID:
        """Id of the client instance, which never changes."""
        return self.traits.client_instance_id


class GetAnswer(NamedTuple):
    """Decision on a GetTelemetrySubscriptions request. If `error` is NONE, `instance` is the client
    with its subscription."""

    error: ErrorCode
    throttle_ms: int
    instance: ClientInstance


class PushVerdict(NamedTuple):
    """Decision on a PushTelemetry request. If `error` is NONE, the push is accepted and `instance`
    is the client."""

    error: ErrorCode
    throttle_ms: int
    instance: ClientInstance | None


@dataclass(slots=True)
class InstanceCounts:
    """Counts of the clients' telemetry requests by outcome, and of the evicted client instances,
    since the broker started."""

    throttled: int = 0
    unknown_subscriptions: int = 0
    accepted: int = 0
    exported: int = 0
    failed: int = 0
    evicted: int = 0
    """Number of client instances that the broker evicted because there were too many in total
    (`INSTANCES_MAX`) or on one connection (`INSTANCES_PER_CONNECTION_MAX`)."""


class ClientInstances:
    """All clients that report to this broker, and the times from which their next requests are
    accepted. Their number is limited.

    `fresh_id` returns ids for clients without an id. `on_stale` is called for each instance that
    is deleted or gets another subscription, so that other components delete their data about it.
    `on_crowded` is called when the limit is reached, at most once in five minutes.
    """

    def __init__(
        self,
        *,
        fresh_id: Callable[[], UUID],
        payload_bytes_max: int,
        unsubscribed_interval_ms: int = UNSUBSCRIBED_INTERVAL_MS,
        instances_max: int = INSTANCES_MAX,
        on_stale: Callable[[UUID], None] = lambda _: None,
        on_crowded: Callable[[], None] = lambda: None,
    ) -> None:
        self.counts = InstanceCounts()
        self.on_earlier_deadline: Callable[[], None] = lambda: None
        """Function that is called when `next_deadline_ms`, the time of the next check for expired
        clients, becomes earlier."""
        self._fresh_id = fresh_id
        self._payload_bytes_max = payload_bytes_max
        self._unsubscribed_interval_ms = unsubscribed_interval_ms
        self._instances_max = instances_max
        self._on_stale = on_stale
        self._on_crowded = on_crowded
        self._crowded_line_from_ms = 0
        self._subscriptions: tuple[ClientMetricsSubscription, ...] = ()
        self._version = 0
        # In order of their last request, the oldest first.
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._by_connection: dict[int, OrderedDict[UUID, None]] = {}
        self._alarms: list[tuple[int, UUID]] = []

    def __len__(self) -> int:
        """Return the number of clients that report metrics to this broker."""
        return len(self._instances)

    def __iter__(self) -> Iterator[ClientInstance]:
        """Yield all clients that report metrics, ordered by the time of their last request, oldest
        first."""
        return iter(self._instances.values())

    @property
    def has_subscriptions(self) -> bool:
        """True if a valid subscription requests metrics from clients."""
        return any(one.metrics for one in self._subscriptions)

    def get(self, instance_id: UUID) -> ClientInstance | None:
        """Return the client with this instance id, or None if no such client is known."""
        return self._instances.get(instance_id)

    # Requests of clients.

    def get_subscriptions(
        self, traits: ClientTraits, *, connection_id: int, now_ms: int
    ) -> GetAnswer:
        """Accept or refuse a GetTelemetrySubscriptions request. Returns the client with its
        subscription, or the error. A client without an id gets a new id."""
        if is_reserved(traits.client_instance_id):
            traits = replace(traits, client_instance_id=self._fresh_id())
        instance = self._instance_of(traits, connection_id, now_ms)
        early_ms = instance.gate.try_get(now_ms, is_excused=instance.last_error in EXCUSING)
        if early_ms:
            return GetAnswer(self._throttle(instance), early_ms, instance)
        instance.last_get_ms = now_ms
        instance.last_error = ErrorCode.NONE
        return GetAnswer(ErrorCode.NONE, 0, instance)

    def push(
        self,
        traits: ClientTraits,
        *,
        connection_id: int,
        subscription_id: int,
        is_terminating: bool,
        codec: int,
        payload_bytes: int,
        now_ms: int,
    ) -> PushVerdict:
        """Check a PushTelemetry request without decoding its payload. Returns the client instance,
        or the error of the first failed check in Kafka's order."""
        if is_reserved(traits.client_instance_id):
            return PushVerdict(ErrorCode.INVALID_REQUEST, 0, None)
        instance = self._instance_of(traits, connection_id, now_ms)
        if instance.is_terminating:
            instance.last_error = ErrorCode.INVALID_REQUEST
            return PushVerdict(ErrorCode.INVALID_REQUEST, 0, instance)
        early_ms = instance.gate.try_push(now_ms)
        # A terminating push is accepted at any time.
        if early_ms and not is_terminating:
            return PushVerdict(self._throttle(instance), early_ms, instance)
        error = ErrorCode.NONE
        if subscription_id != instance.effective.subscription_id:
            error = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            self.counts.unknown_subscriptions += 1
        elif codec not in CODECS:
            error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        elif payload_bytes > self._payload_bytes_max:
            error = ErrorCode.TELEMETRY_TOO_LARGE
        else:
            instance.is_terminating = is_terminating
            instance.last_push_ms = now_ms
            instance.push_count += 1
            instance.push_bytes += payload_bytes
            self.counts.accepted += 1
        instance.last_error = error
        return PushVerdict(error, 0, instance)

    def on_ingested(self, instance: ClientInstance, error: ErrorCode) -> None:
        """Record the result of decompressing a push that `push` accepted: success, malformed
        content, or a full queue.

        A terminating push may be repeated if the queue was full. A malformed push may not be
        repeated, because decompressing it again would take the same time.
        """
        if error is ErrorCode.NONE:
            instance.export_count += 1
            self.counts.exported += 1
            return
        if error is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            instance.is_terminating = False
        instance.last_error = error
        instance.error_count += 1
        self.counts.failed += 1

    # Other events.

    def on_subscriptions(self, configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Replace all subscriptions for clients' metrics. `configs` contains their settings by
        subscription name. Returns the names of the invalid subscriptions.

        Clients get their new subscription with their next request.
        """
        subscriptions, unreadable = [], []
        for name, texts in sorted(configs.items()):
            try:
                subscriptions.append(read_subscription(name, texts))
            except RefusedError:
                unreadable.append(name)
        self._subscriptions = tuple(subscriptions)
        self._version += 1
        return unreadable

    def on_disconnect(self, connection_id: int) -> None:
        """Delete the clients of a closed connection from the known clients. Clients that have moved
        to another connection are kept."""
        for instance_id in self._by_connection.pop(connection_id, ()):
            self._forget(self._instances[instance_id])

    def expire(self, now_ms: int) -> None:
        """Delete clients that have been silent for too long, up to `EXPIRED_AT_ONCE_MAX` clients.

        The caller must call this method again while `next_deadline_ms` is in the past.
        """
        forgotten_count = 0
        while self._alarms and self._alarms[0][0] <= now_ms:
            alarm_ms, instance_id = heapq.heappop(self._alarms)
            instance = self._instances.get(instance_id)
            if instance is None or instance.alarm_ms != alarm_ms:
                continue
            if instance.expires_ms <= now_ms:
                self._forget(instance)
                forgotten_count += 1
                if forgotten_count == EXPIRED_AT_ONCE_MAX:
                    return
            else:
                self._set_alarm(instance)

    @property
    def next_deadline_ms(self) -> int | None:
        """The earliest time, in ms of the monotonic clock, at which `expire` may find clients to
        delete. None if no client is known."""
        return self._alarms[0][0] if self._alarms else None

    # The cache.

    def _instance_of(self, traits: ClientTraits, connection_id: int, now_ms: int) -> ClientInstance:
        """Return the client that sent a request, with its current subscription. An unknown client
        is added."""
        instance = self._instances.get(traits.client_instance_id)
        if instance is None:
            instance = self._new_instance(traits, connection_id, now_ms)
        else:
            self._instances.move_to_end(instance.id)
            if instance.version != self._version or instance.traits != traits:
                self._resolve_again(instance, traits)
            if instance.connection_id != connection_id:
                self._unlink(instance)
                self._link(instance, connection_id)
        silence_ms = max(SILENCE_MS_MIN, SILENCE_INTERVALS_MAX * instance.effective.interval_ms)
        instance.expires_ms = now_ms + silence_ms
        if instance.alarm_ms is None or instance.expires_ms < instance.alarm_ms:
            self._set_alarm(instance)
        return instance

    def _new_instance(
        self, traits: ClientTraits, connection_id: int, now_ms: int
    ) -> ClientInstance:
        if len(self._instances) >= self._instances_max:
            self.counts.evicted += 1
            self._forget(next(iter(self._instances.values())))
            if now_ms >= self._crowded_line_from_ms:
                self._crowded_line_from_ms = now_ms + CROWDED_LINE_MS
                self._on_crowded()
        effective = self._resolve(traits)
        instance = ClientInstance(
            traits, effective, connection_id=connection_id, version=self._version
        )
        self._instances[instance.id] = instance
        self._link(instance, connection_id)
        return instance

    def _resolve_again(self, instance: ClientInstance, traits: ClientTraits) -> None:
        instance.traits = traits
        instance.version = self._version
        effective = self._resolve(traits)
        if effective != instance.effective:
            instance.effective = effective
            # The client should get its new subscription at once, not after the rest of an old
            # interval.
            instance.gate = PushGate(effective.interval_ms)
            self._on_stale(instance.id)

    def _resolve(self, traits: ClientTraits) -> Effective:
        return resolve(
            self._subscriptions,
            traits,
            unsubscribed_interval_ms=self._unsubscribed_interval_ms,
        )

    def _link(self, instance: ClientInstance, connection_id: int) -> None:
        instance.connection_id = connection_id
        ids = self._by_connection.setdefault(connection_id, OrderedDict())
        ids[instance.id] = None
        if len(ids) > INSTANCES_PER_CONNECTION_MAX:
            self.counts.evicted += 1
            self._forget(self._instances[next(iter(ids))])

    def _unlink(self, instance: ClientInstance) -> None:
        ids = self._by_connection.get(instance.connection_id)
        if ids is not None:
            ids.pop(instance.id, None)
            if not ids:
                del self._by_connection[instance.connection_id]

    def _forget(self, instance: ClientInstance) -> None:
        del self._instances[instance.id]
        self._unlink(instance)
        if 2 * len(self._instances) + INSTANCES_PER_CONNECTION_MAX < len(self._alarms):
            # Most of these clients were forgotten.
            self._alarms = [(one.alarm_ms, one.id) for one in self if one.alarm_ms is not None]
            heapq.heapify(self._alarms)
        self._on_stale(instance.id)

    def _set_alarm(self, instance: ClientInstance) -> None:
        instance.alarm_ms = instance.expires_ms
        alarm = (instance.alarm_ms, instance.id)
        heapq.heappush(self._alarms, alarm)
        if self._alarms[0] is alarm:
            self.on_earlier_deadline()

    def _throttle(self, instance: ClientInstance) -> ErrorCode:
        instance.throttle_count += 1
        self.counts.throttled += 1
        instance.last_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        return instance.last_error


def is_reserved(instance_id: UUID) -> bool:
    """Return whether the client instance id is reserved and not valid for a client. The id zero
    means that a client has no id yet."""
    return instance_id.int < RESERVED_UUIDS_BELOW
