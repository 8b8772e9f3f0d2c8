"""Which metrics a client is asked for, and how often: KIP-714's subscriptions.  Pure.

What a client reports is the union of all subscriptions that it matches.  Invariants:
EqualIdsEqualSubscriptions (of one client, up to a collision of CRC32C), PureId (the id follows from
the metrics, the interval and the client alone, so every broker gives the same one).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import uuid_text
from ottla.model.settings.client_metrics import (
    CLIENT_METRICS_DEFINITIONS,
    INTERVAL_MS_MAX,
    Holds,
    SubscriptionConfig,
    check_subscription_texts,
    match_patterns,
)
from ottla.model.settings.declare import allowed_texts, load
from ottla.model.values import frozen
from ottla.wire.crc import crc32c

ALL_METRICS = "*"
"""Every metric a client has.  Clients look for exactly this text, standing alone."""

UNSUBSCRIBED_INTERVAL_MS = 300_000
"""How often a client of which nothing is wanted asks again, Kafka's."""

LIBRDKAFKA_INTERVAL_MS_MAX = 1_500_000
"""The longest interval that librdkafka (2.16) can keep.  It counts in microseconds of 32 bits, with
up to 1.2 times the interval: from half an hour on that wraps, and it asks without any pause."""


@frozen
class ClientTraits:
    """What is known of a client: all that subscriptions may choose it by."""

    client_instance_id: UUID
    client_id: str | None
    software_name: str
    software_version: str
    source_address: str
    source_port: int

    @property
    def interval_ms_max(self) -> int:
        """Return the longest interval that the client can keep."""
        name, version = self.software_name, self.software_version
        is_librdkafka = (
            "rdkafka" in name or "rdkafka" in version or name.startswith("confluent-kafka-")
        )
        return LIBRDKAFKA_INTERVAL_MS_MAX if is_librdkafka else INTERVAL_MS_MAX

    def by_name(self) -> dict[str, str | None]:
        """Return each trait as text, under the name that a subscription's `match` has for it."""
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
    """One resource CLIENT_METRICS: what it wants, how often, and of which clients."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    patterns: tuple[tuple[str, Holds], ...] = ()
    """The trait and what it must be; all must hold."""

    def matches(self, traits: Mapping[str, str | None]) -> bool:
        """Return whether a client, by its traits' texts, is meant; none it lacks is matched."""
        for name, holds in self.patterns:
            text = traits[name]
            if text is None or not holds(text):
                return False
        return True


class Effective(NamedTuple):
    """What one client is asked for, all subscriptions together."""

    metrics: tuple[str, ...]
    """Prefixes of names, sorted; none begins with another; ("*",) is every metric."""
    interval_ms: int
    subscription_id: int
    """int32; see `subscription_id_of`."""


def read_subscription(name: str, texts: Mapping[str, str]) -> ClientMetricsSubscription:
    """Build a subscription from its settings' texts; RefusedError where they are not allowed."""
    check_subscription_texts(texts)
    # A release with other bounds may have stored the rest.
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
    """Return what a client is asked for: the union of the metrics, at the shortest interval.

    An interval above Kafka's default of five minutes counts when all that match say so; in Kafka
    it never does, since the minimum is taken with that default too.  No client is told more than it
    can keep.
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
    """Return the fewest prefixes that choose the same metrics, sorted.

    One that begins with another is left out: librdkafka reports a metric once for each prefix that
    it has.
    """
    least: list[str] = []
    for prefix in sorted(set(prefixes)):
        if prefix == ALL_METRICS:
            return (ALL_METRICS,)
        if not least or not prefix.startswith(least[-1]):
            least.append(prefix)
    return tuple(least)


def subscription_id_of(metrics: tuple[str, ...], interval_ms: int, client: UUID) -> int:
    """Return KIP-714's id of a subscription, int32, over the text that Kafka has for it.

    That is CRC32C of metrics and interval, XORed with the hash of the client's id.  Kafka's set of
    metrics has no order; ours is sorted, so the id of one content is always the same.
    """
    content = f"[{', '.join(metrics)}]{interval_ms}".encode()
    unsigned = crc32c(content) ^ _hash_of(client)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def _hash_of(client: UUID) -> int:
    """Return what Kafka's `Uuid.hashCode` gives, as an unsigned number of 32 bits."""
    halves = (client.int >> 64) ^ (client.int & (1 << 64) - 1)
    return (halves >> 32) ^ (halves & (1 << 32) - 1)
