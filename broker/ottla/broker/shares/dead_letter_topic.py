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
"""Offset of a letter before the broker of the dead letter topic assigns one."""


class TopicOfLetters(NamedTuple):
    """Dead letter topic of a group, as far as the metadata has it."""

    name: str
    partition_count: int
    """Number of partitions, or 0 if the topic does not exist."""
    is_enabled: bool
    """Value of its setting `errors.deadletterqueue.group.enable`."""


def refusal_of_topic(
    topic: TopicOfLetters, *, source: str, prefix: str, is_auto_created: bool
) -> str | None:
    """Return the reason why a topic gets no dead letters, or None if it may get them.

    The source topic is refused, since its dead letters would be delivered to the same group.
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
    """Origin of a dead letter."""

    group_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    is_rejected: bool

    def target_partition(self, partition_count: int) -> int:
        """Return the partition of the dead letter topic."""
        return self.partition % partition_count

    def headers(self) -> RecordHeaders:
        """Return the headers that name origin and cause."""
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
    """Return the dead letter of a record, or of an uncopied one if `record` is None."""
    headers = source.headers()
    if record is None:
        return Record(NO_OFFSET, now_ms, None, None, headers)
    return Record(
        NO_OFFSET, record.timestamp_ms, record.key, record.value, record.headers + headers
    )
