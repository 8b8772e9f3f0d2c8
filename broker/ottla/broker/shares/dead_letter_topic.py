"""Dead letter topics of share groups, and the records written to them (KIP-1191).

Pure. A dead letter keeps the headers and the timestamp of its record, unlike in Kafka 4.4.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.broker.cluster.settings.dynamic_settings import setting_in_force
from ottla.broker.cluster.settings.topic_settings import topic_config_of, topic_defaults_of_image
from ottla.metadata.features import has_dead_letters
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from ottla.wire.records import Record, RecordHeaders

TOPIC_PREFIX = "errors.deadletterqueue.topic.name.prefix"
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
CLUSTER_DEFAULT = -1
"""Value for the partition count or replication factor in a request to create a dead letter topic.
It selects the cluster's default."""

HEADER_PREFIX = "__dlq.errors."
REJECTED = "Offset rejected by client."
USED_UP = "Offset delivery count exceeded the threshold."
NO_OFFSET = Offset(0)
"""Offset of a dead letter record before the leader of the dead letter partition assigns its final
offset."""


class TopicOfLetters(NamedTuple):
    """Dead letter topic of a share group, as the metadata describes it."""

    name: str
    partition_count: int
    """Number of partitions of the dead letter topic, or 0 if it does not exist."""
    is_enabled: bool
    """Value of the topic's setting `errors.deadletterqueue.group.enable`: True if share groups may
    write dead letters to the topic."""


def refusal_of_topic(
    topic: TopicOfLetters, *, source: str, prefix: str, is_auto_created: bool
) -> str | None:
    """Return the reason why a topic cannot receive the dead letters of a source topic, or None if
    it can receive them.

    A topic cannot receive its own dead letters, because they would be delivered to the same group
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


class LetterRoute(NamedTuple):
    """Partition of a dead letter topic that receives the dead letters of one source partition."""

    topic: str
    topic_id: UUID
    partition: int
    leader: NodeId
    """Leader of the dead letter partition, or NO_NODE if the partition has no leader."""
    bytes_max: int
    """Size in bytes of the largest batch that the dead letter topic accepts
    (`max.message.bytes`)."""


class DeadLetterTopics:
    """Dead letter topics of share groups, as found in the metadata and according to the settings of
    this broker."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._image = image

    @property
    def is_enabled(self) -> bool:
        """True if the cluster supports dead letters, which requires share.version 2."""
        return has_dead_letters(self._image().features)

    def refusal(self, name: str, source: str) -> str | None:
        """Return the reason why the topic `name` cannot receive the dead letters of the topic
        `source`, or None if it can receive them."""
        image = self._image()
        topic = image.topic(name)
        count = 0 if topic is None else len(topic.partitions)
        is_enabled = bool(count) and self._settings(name).gets_dead_letters
        return refusal_of_topic(
            TopicOfLetters(name, count, is_enabled),
            source=source,
            prefix=setting_in_force(image, self._config, TOPIC_PREFIX),
            is_auto_created=setting_in_force(image, self._config, AUTO_CREATE),
        )

    def route(self, name: str, source_partition: int) -> LetterRoute | None:
        """Return the partition of the dead letter topic `name` that receives the dead letters of a
        source partition, or None if the topic does not exist."""
        topic = self._image().topic(name)
        if topic is None or not topic.partitions:
            return None
        index = source_partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        return LetterRoute(name, topic.id, index, leader, self._settings(name).max_message_bytes)

    def _settings(self, name: str) -> TopicConfig:
        image = self._image()
        return topic_config_of(image, name, topic_defaults_of_image(image, self._config))


def new_topic(name: str) -> CreatableTopic:
    """Return the specification of a dead letter topic that this broker creates, with the same
    settings as in Kafka."""
    settings = {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }
    return CreatableTopic(
        name=name,
        num_partitions=CLUSTER_DEFAULT,
        replication_factor=CLUSTER_DEFAULT,
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in settings.items()],
    )


class LetterSource(NamedTuple):
    """Origin of a dead letter: topic, partition and offset of the record, the share group, and the
    cause."""

    group_id: str
    topic: str
    partition: int
    offset: int
    delivery_count: int
    is_rejected: bool

    def headers(self) -> RecordHeaders:
        """Return the record headers that name the origin of a dead letter and its cause."""
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
    """Return the dead letter for a record. If `record` is None, the dead letter has only the
    headers that name its origin."""
    headers = source.headers()
    if record is None:
        return Record(NO_OFFSET, now_ms, None, None, headers)
    return Record(
        NO_OFFSET, record.timestamp_ms, record.key, record.value, record.headers + headers
    )
