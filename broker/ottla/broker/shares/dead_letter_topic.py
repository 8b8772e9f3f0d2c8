"""Dead letter topics of share groups, and the records written to them (KIP-1191).

Pure. Unlike in Kafka 4.4, a dead letter keeps the headers and the timestamp of its record.
"""

from typing import NamedTuple

from ottla.model.ids import Offset
from ottla.wire.records import Record, RecordHeaders

HEADER_PREFIX = "__dlq.errors."
REJECTED = "Offset rejected by client."
USED_UP = "Offset delivery count exceeded the threshold."
NO_OFFSET = Offset(0)
"""Offset of a dead letter until the broker of the dead letter topic assigns one."""


class TopicOfLetters(NamedTuple):
    """Dead letter topic of a share group, as described by the metadata."""

    name: str
    partition_count: int
    """Number of partitions of the topic, or 0 if it does not exist."""
    is_enabled: bool
    """Value of the topic's setting `errors.deadletterqueue.group.enable`."""


def refusal_of_topic(
    topic: TopicOfLetters, *, source: str, prefix: str, is_auto_created: bool
) -> str | None:
    """Return the reason why a topic cannot receive the dead letters of a source topic, or None if
    it can.

    A topic cannot receive its own dead letters, since they would be delivered to the same group
    again.
    """
    name = topic.name
    if name == source:
        return f"{name} is the topic of the rejected records; choose another one"
    if name.startswith("__"):
        return f"{name} is an internal topic; choose a name without __ at its start"
    if not name.startswith(prefix):
        return f"{name} does not begin with {prefix} (errors.deadletterqueue.topic.name.prefix)"
    if not topic.partition_count:
        if is_auto_created:
            return None
        return (
            f"{name} does not exist; create it, "
            "or set errors.deadletterqueue.auto.create.topics.enable=true"
        )
    if not topic.is_enabled:
        return f"{name} accepts no dead letters; set errors.deadletterqueue.group.enable=true on it"
    return None


class LetterSource(NamedTuple):
    """Origin of a dead letter: the position of its record, the share group, and the cause."""

    group_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    is_rejected: bool

    def target_partition(self, partition_count: int) -> int:
        """Return the partition of the dead letter topic that a letter is written to."""
        return self.partition % partition_count

    def headers(self) -> RecordHeaders:
        """Return the headers that name the origin of a dead letter and its cause."""
        fields = (
            ("topic", self.topic),
            ("partition", str(self.partition)),
            ("offset", str(self.offset)),
            ("group", self.group_id),
            ("delivery.count", str(self.delivery_count)),
            ("message", REJECTED if self.is_rejected else USED_UP),
        )
        return tuple((HEADER_PREFIX + name, text.encode()) for name, text in fields)


def letter_of(source: LetterSource, record: Record | None, *, now_ms: int) -> Record:
    """Return the dead letter for a record. Without a `record`, the letter has only the headers
    about its origin."""
    headers = source.headers()
    if record is None:
        return Record(NO_OFFSET, now_ms, None, None, headers)
    return Record(
        NO_OFFSET, record.timestamp_ms, record.key, record.value, record.headers + headers
    )
