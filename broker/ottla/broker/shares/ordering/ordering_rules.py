"""Rules of delivery order (delays, back-off, keys, priorities) that Ottla adds to share groups
(KIP-932). Pure."""

from typing import NamedTuple
from zlib import crc32

from ottla.model.settings.share_groups import READ_COMMITTED, ShareGroupSettings
from ottla.model.settings.storage.topic import NO_SHARE_DELAY_MS, TopicConfig

SHIFT_MAX = 40
"""Maximum number of times that the back-off before a redelivery is doubled. The back-off reaches
its maximum much earlier."""


class OrderingRules(NamedTuple):
    """Settings of a share group and of a topic that change the order of deliveries."""

    delay_ms: int = NO_SHARE_DELAY_MS
    """Delay in milliseconds before the first delivery of a record without a delay header, or -1 if
    records are not delayed at all."""
    backoff_ms_min: int = 0
    """Minimum milliseconds between two deliveries of a record, or 0 without back-off."""
    backoff_ms_max: int = 0
    key_concurrency: int = 0
    """Maximum number of records with the same key that are in flight at once, or 0 if records are
    not ordered by key."""
    has_priority: bool = False
    look_ahead_records: int = 100_000
    """Maximum number of unsettled records (neither acknowledged nor archived) that are in
    memory."""
    is_committed: bool = False
    """True if the group gets only records of committed transactions."""

    @property
    def has_delay(self) -> bool:
        """True if these rules may delay records."""
        return self.delay_ms != NO_SHARE_DELAY_MS

    @property
    def has_traits(self) -> bool:
        """True if the key or the headers of a record decide when it is delivered."""
        return bool(self.key_concurrency) or self.has_priority

    @property
    def reads_records(self) -> bool:
        """True if these rules require that batches are decompressed to read their records."""
        return self.has_delay or self.has_traits

    def backoff_ms(self, count: int, salt: int) -> int:
        """Return the milliseconds from the end of delivery number `count` to the next delivery.

        The back-off doubles with each delivery. Jitter shortens it by up to half, but not below the
        minimum. Equal salts result in equal jitter.
        """
        longest = self.longest_backoff_ms(count)
        shortest = max(min(self.backoff_ms_min, longest), longest // 2)
        return shortest + (longest - shortest) * crc32(b"%d:%d" % (salt, count)) // (1 << 32)

    def longest_backoff_ms(self, count: int) -> int:
        """Return the back-off in milliseconds after delivery number `count` without jitter, which
        only shortens it."""
        if not self.backoff_ms_min or count <= 0:
            return 0
        return min(self.backoff_ms_min << min(count, SHIFT_MAX), self.backoff_ms_max)


def ordering_rules(settings: ShareGroupSettings, topic: TopicConfig) -> OrderingRules | None:
    """Return the delivery rules of a share group in a topic, or None if all rules are off."""
    is_off = (
        topic.share_delay_ms == NO_SHARE_DELAY_MS
        and not settings.backoff_ms_min
        and not settings.key_concurrency
        and not settings.has_priority
    )
    if is_off:
        return None
    return OrderingRules(
        delay_ms=topic.share_delay_ms,
        backoff_ms_min=settings.backoff_ms_min,
        backoff_ms_max=max(settings.backoff_ms_min, settings.backoff_ms_max),
        key_concurrency=settings.key_concurrency,
        has_priority=settings.has_priority,
        look_ahead_records=settings.look_ahead_records,
        is_committed=settings.isolation_level == READ_COMMITTED,
    )
