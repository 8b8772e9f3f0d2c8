"""The clients that report to this broker: who they are, what they may do now.  Pure (KIP-714).

A client instance is known by its id from its first request until its connection closes, it is
silent for too long, or the bound on their number pushes out the one that was silent longest.
Every request is judged here; what is pushed is never looked at.  Invariants: BoundedInstances,
LastIsLast (after an accepted terminating push nothing is accepted of that instance),
RefusedInOrder (the first of Kafka's checks that fails gives the error), RefusedEndsNothing (a
refused push does not end its instance; in Kafka 4.4 it does, until the next push is refused for
it).
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import RESERVED_UUIDS_BELOW
from ottla.telemetry.gate import PushGate
from ottla.telemetry.subscriptions import (
    UNSUBSCRIBED_INTERVAL_MS,
    ClientMetricsSubscription,
    ClientTraits,
    Effective,
    read_subscription,
    resolve,
)
from ottla.wire.compression import Codec

INSTANCES_MAX = 16_384
"""Clients known at once, Kafka's number.  Above it clients push each other out and are throttled
less well; each costs about a kilobyte, and what exporters keep of it."""

INSTANCES_PER_CONNECTION_MAX = 64
"""Ids that one connection may speak for.  A client has one; one that asks for new ids without end
pushes out its own, not those of others."""

SILENCE_MS_MIN = 60_000
SILENCE_INTERVALS_MAX = 3
"""A client is forgotten when it is silent for so many of its intervals, and at least a minute."""

EXPIRED_AT_ONCE_MAX = 64
"""Clients forgotten before others get their turn: with each go the series of it, some 100 µs.  A
network that breaks silences thousands in the same second."""

CROWDED_LINE_MS = 300_000
"""How long between two lines that the bound is too low."""

EXCUSING = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client must ask again before it can do better, and may at once."""

CODECS = frozenset(Codec)


class ClientInstance:
    """One client: what it is asked for, and what it has done.  Times are of the monotonic clock."""

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
        """Of the subscriptions that `effective` was made of."""
        self.gate = PushGate(effective.interval_ms)
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        """What its last request was answered with."""
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.push_count = 0
        """Pushes accepted here, with the bytes they brought as they came."""
        self.push_bytes = 0
        self.export_count = 0
        """Pushes that were unpacked and handed on; `error_count` those that could not be."""
        self.error_count = 0
        self.throttle_count = 0
        self.expires_ms = 0
        self.alarm_ms: int | None = None
        """When it is next looked at, for having expired."""

    @property
    def id(self) -> UUID:
        """Return the id that the client bears for as long as it lives."""
        return self.traits.client_instance_id


class GetAnswer(NamedTuple):
    """The answer to GetTelemetrySubscriptions: with `error` NONE, whom and what for."""

    error: ErrorCode
    throttle_ms: int
    instance: ClientInstance


class PushVerdict(NamedTuple):
    """The answer to PushTelemetry; accepted with `error` NONE, and then there is an instance."""

    error: ErrorCode
    throttle_ms: int
    instance: ClientInstance | None


@dataclass(slots=True)
class InstanceCounts:
    """What became of requests, all clients together, since the start."""

    throttled: int = 0
    unknown_subscriptions: int = 0
    accepted: int = 0
    exported: int = 0
    failed: int = 0
    evicted: int = 0
    """Clients forgotten for want of room."""


class ClientInstances:
    """Every client that reports here; owns the bound on them and each one's gate.

    `fresh_id` gives ids to those that have none.  `on_stale` hears of each instance that is
    forgotten or asked for something else, so that what is kept of it elsewhere goes too;
    `on_crowded` of the bound being reached, at most once in five minutes.
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
        """Called when `next_deadline_ms` moves forward."""
        self._fresh_id = fresh_id
        self._payload_bytes_max = payload_bytes_max
        self._unsubscribed_interval_ms = unsubscribed_interval_ms
        self._instances_max = instances_max
        self._on_stale = on_stale
        self._on_crowded = on_crowded
        self._crowded_line_from_ms = 0
        self._subscriptions: tuple[ClientMetricsSubscription, ...] = ()
        self._version = 0
        # The one whose last request is longest ago comes first.
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._by_connection: dict[int, OrderedDict[UUID, None]] = {}
        self._alarms: list[tuple[int, UUID]] = []

    def __len__(self) -> int:
        """Return how many clients are known."""
        return len(self._instances)

    def __iter__(self) -> Iterator[ClientInstance]:
        """Yield every client, the one that was silent longest first."""
        return iter(self._instances.values())

    @property
    def has_subscriptions(self) -> bool:
        """Whether there is a subscription that can be read and asks for metrics."""
        return any(one.metrics for one in self._subscriptions)

    def get(self, instance_id: UUID) -> ClientInstance | None:
        """Return a client that is known."""
        return self._instances.get(instance_id)

    # What clients ask.

    def get_subscriptions(
        self, traits: ClientTraits, *, connection_id: int, now_ms: int
    ) -> GetAnswer:
        """Answer a Get.  A client without an id of its own is given one."""
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
        """Judge a push by all but its content; the checks are in Kafka's order."""
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
        """Note the outcome of an accepted push, once it was unpacked or found no room.

        A terminating push that found no room may be sent again; one that cannot be read may not:
        it passed the gate, and unpacking it again would cost the same again.
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

    # What else happens.

    def on_subscriptions(self, configs: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Take the settings of all subscriptions, by name; return those that cannot be read.

        Clients hear of it with their next request.
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
        """Forget the clients of a connection that closed, but who has gone on by another one."""
        for instance_id in self._by_connection.pop(connection_id, ()):
            self._forget(self._instances[instance_id])

    def expire(self, now_ms: int) -> None:
        """Forget clients that have been silent for too long, not too many at once.

        There may be more while `next_deadline_ms` has come.
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
        """Return the earliest instant at which `expire` may have work."""
        return self._alarms[0][0] if self._alarms else None

    # The cache.

    def _instance_of(self, traits: ClientTraits, connection_id: int, now_ms: int) -> ClientInstance:
        """Return the client, known from now on and up to date with the subscriptions."""
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
            # It should have what is new at once, not after what is left of an old interval.
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
            # Most of these clients have gone.
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
    """Return whether no client may bear this id; zero is a client's way to say that it has none."""
    return instance_id.int < RESERVED_UUIDS_BELOW
