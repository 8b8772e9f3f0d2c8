"""Subscriptions (KIP-714): the metrics that a client is requested to push, and the interval. Pure.

A client reports the union of the metrics of all matching subscriptions. Invariants:
- EqualIdsEqualSubscriptions: if a client gets the same subscription id twice, both subscriptions
  are equal (except for a collision of CRC32C).
- PureId: the id depends only on the metrics, the interval and the client, so every broker computes
  the same id.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import uuid_text
from ottla.model.settings.declare import allowed_texts, load
from ottla.model.settings.telemetry.client_metrics import (
    CLIENT_METRICS_DEFINITIONS,
    INTERVAL_MS_MAX,
    Holds,
    SubscriptionConfig,
    check_subscription_texts,
    match_patterns,
)
from ottla.model.values import frozen
from ottla.wire.crc import crc32c

ALL_METRICS = "*"
"""Metric name prefix in a subscription that requests all metrics of a client. Clients recognise it
only as the only prefix."""

UNSUBSCRIBED_INTERVAL_MS = 300_000
"""Push interval in ms of a client to which no subscription applies, as in Kafka."""

LIBRDKAFKA_INTERVAL_MS_MAX = 1_500_000
"""Maximum push interval that librdkafka (2.16) supports, in ms.

librdkafka counts up to 1.2 intervals in 32-bit microseconds. With an interval of about half an hour
or more, this counter overflows, and librdkafka sends requests without any pause.
"""


@frozen
class ClientTraits:
    """Properties of a client by which metrics subscriptions select it."""

    client_instance_id: UUID
    client_id: str | None
    software_name: str
    software_version: str
    source_address: str
    source_port: int

    @property
    def interval_ms_max(self) -> int:
        """Maximum push interval that the client supports, in ms."""
        name, version = self.software_name, self.software_version
        is_librdkafka = (
            "rdkafka" in name or "rdkafka" in version or name.startswith("confluent-kafka-")
        )
        return LIBRDKAFKA_INTERVAL_MS_MAX if is_librdkafka else INTERVAL_MS_MAX

    def by_name(self) -> dict[str, str | None]:
        """Return each property of the client as text or None. The keys are the names of the
        properties in a subscription's `match`."""
        return {
            "client_instance_id": uuid_text(self.client_instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.source_address,
            "client_source_port": str(self.source_port),
        }


@frozen
class ClientMetricsSubscription:
    """One CLIENT_METRICS resource: the metrics that clients are requested to push, the interval,
    and the clients that it applies to."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Holds], ...] = ()
    """Names of client properties, each with the condition that the property must satisfy. A
    selected client satisfies all conditions."""

    def matches(self, traits: Mapping[str, str | None]) -> bool:
        """Return whether the subscription selects a client with these properties. A missing
        property never matches."""
        for name, holds in self.patterns:
            text = traits[name]
            if text is None or not holds(text):
                return False
        return True


class Effective(NamedTuple):
    """The effective metrics subscription of one client, combined from all subscriptions that match
    the client."""

    metrics: tuple[str, ...]
    """Sorted prefixes of the names of the metrics that the client should push. No prefix begins
    with another prefix. ("*",) means all metrics."""
    interval_ms: int
    subscription_id: int
    """Id of the client's effective subscription as an int32; see `subscription_id_of`."""


def read_subscription(name: str, texts: Mapping[str, str]) -> ClientMetricsSubscription:
    """Return the subscription `name` that the settings `texts` define. Raises RefusedError if the
    settings are invalid."""
    check_subscription_texts(texts)
    # A release with other bounds may have stored values that are invalid now; they are ignored.
    config, _ = load(SubscriptionConfig, allowed_texts(CLIENT_METRICS_DEFINITIONS, texts)[0])
    return ClientMetricsSubscription(
        name=name,
        metrics=config.metrics,
        interval_ms=config.interval_ms,
        patterns=tuple(match_patterns(config.match).items()),
    )


def resolve(
    subscriptions: Iterable[ClientMetricsSubscription],
    traits: ClientTraits,
    *,
    unsubscribed_interval_ms: int = UNSUBSCRIBED_INTERVAL_MS,
) -> Effective:
    """Return the effective subscription of a client: the union of the metrics of all matching
    subscriptions, at the shortest interval.

    If all matching subscriptions have an interval longer than Kafka's default of five minutes, that
    interval applies. In Kafka such an interval never applies, because Kafka includes the default in
    the minimum. No client gets a longer interval than it supports.
    """
    texts = traits.by_name()
    matching = [one for one in subscriptions if one.matches(texts)]
    metrics = least_prefixes(prefix for one in matching for prefix in one.metrics)
    interval_ms = min((one.interval_ms for one in matching), default=unsubscribed_interval_ms)
    interval_ms = min(interval_ms, traits.interval_ms_max)
    return Effective(
        metrics,
        interval_ms,
        subscription_id_of(metrics, interval_ms, traits.client_instance_id),
    )


def least_prefixes(prefixes: Iterable[str]) -> tuple[str, ...]:
    """Return the smallest set of metric name prefixes that select the same metrics as `prefixes`,
    sorted.

    A prefix that begins with another prefix is left out, because librdkafka reports a metric once
    for each matching prefix.
    """
    least: list[str] = []
    for prefix in sorted(set(prefixes)):
        if prefix == ALL_METRICS:
            return (ALL_METRICS,)
        if not least or not prefix.startswith(least[-1]):
            least.append(prefix)
    return tuple(least)


def subscription_id_of(metrics: tuple[str, ...], interval_ms: int, client: UUID) -> int:
    """Return KIP-714's subscription id as an int32, computed as in Kafka.

    The id is the CRC32C of the metrics and the interval, XORed with the hash of the client's id.
    Kafka's set of metrics is unordered. Here it is sorted, so that equal content always has the
    same id.
    """
    content = f"[{', '.join(metrics)}]{interval_ms}".encode()
    unsigned = crc32c(content) ^ _hash_of(client)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def _hash_of(client: UUID) -> int:
    """Return the hash of a client's id as Kafka's `Uuid.hashCode` computes it, as an unsigned
    32-bit number."""
    halves = (client.int >> 64) ^ (client.int & (1 << 64) - 1)
    return (halves >> 32) ^ (halves & (1 << 32) - 1)
