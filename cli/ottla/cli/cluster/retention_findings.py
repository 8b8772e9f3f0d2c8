"""Judges whether retention by age can do its work on topics.  Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ottla.cli.common import counted

CLOCK_DIFFERENCE_MS_MAX = 60_000
"""How far a timestamp may be ahead of our clock unreported, as in the broker's log."""

COLUMNS = ("TOPIC", "STATE", "FOUND", "WHAT TO DO")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAges:
    """What is known of one topic: its settings, and the newest timestamp of each partition."""

    topic: str
    cleanup_policy: str
    retention_ms: int
    newest_ms: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFinding:
    """One topic whose retention by age is held up."""

    topic: str
    partitions: Sequence[int]
    newest_ms: int
    cure: str

    @property
    def found(self) -> str:
        """What was found, as a sentence."""
        at = datetime.fromtimestamp(self.newest_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{counted(len(self.partitions), 'partition')} with records of up to {at}"


def retention_findings(topics: Sequence[TopicAges], now_ms: int) -> Iterator[RetentionFinding]:
    """Yield the topics that keep records for longer, for one of them is ahead of the clock."""
    for one in topics:
        if "delete" not in one.cleanup_policy or one.retention_ms < 0:
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
