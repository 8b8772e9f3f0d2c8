"""Finds topics whose retention by age is delayed by timestamps in the future. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ottla.insight.facts.topics.retention_driver import TopicAges
from ottla.model.amounts import counted, moment

CLOCK_DIFFERENCE_MS_MAX = 60_000
"""Maximum milliseconds by which a record's timestamp may normally be ahead of this machine's clock.
The broker uses the same limit for warnings in its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFinding:
    """Finding that a topic's retention by age is delayed by a timestamp in the future."""

    topic: str
    partitions: Sequence[int]
    newest_ms: int
    cure: str

    @property
    def found(self) -> str:
        """Text for the operator about the topic's delayed retention."""
        partitions = counted(len(self.partitions), "partition")
        return f"{partitions} with records of up to {moment(self.newest_ms)}"


def retention_findings(topics: Sequence[TopicAges], now_ms: int) -> Iterator[RetentionFinding]:
    """Yield a finding for each topic that keeps records too long because a record's timestamp is
    ahead of the clock."""
    for one in topics:
        if not one.is_deleted_by_age:
            continue
        ahead = {
            partition: newest_ms
            for partition, newest_ms in one.newest_ms.items()
            if newest_ms > now_ms + CLOCK_DIFFERENCE_MS_MAX
        }
        if ahead:
            yield RetentionFinding(
                topic=one.topic,
                partitions=sorted(ahead),
                newest_ms=max(ahead.values()),
                cure="set the producers' clocks; delete records with 'ottla topic trim', or "
                "lower message.timestamp.after.max.ms",
            )
