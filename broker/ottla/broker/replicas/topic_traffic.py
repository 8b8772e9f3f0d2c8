"""Counts traffic by topic, in plain integers that the data path increments.

Pure. A partition has a reference to its topic's counters, so counting needs no lookup. The cost
does not depend on the number of records. When a topic leaves this broker, its counts remain in the
broker's sum, since a counter never decreases.
"""

from collections.abc import Iterator

from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_names import prometheus_name

COUNTS = (
    ("messages_in", "MessagesInPerSec", "Records that producers appended."),
    ("bytes_in", "BytesInPerSec", "Record bytes that producers appended."),
    ("bytes_out", "BytesOutPerSec", "Record bytes that consumers fetched."),
    ("produce_requests", "TotalProduceRequestsPerSec", "Batches that producers appended."),
    ("fetch_requests", "TotalFetchRequestsPerSec", "Partitions in Fetch responses to consumers."),
    ("failed_produces", "FailedProduceRequestsPerSec", "Batches that were refused."),
    (
        "failed_fetches",
        "FailedFetchRequestsPerSec",
        "Fetch responses with an error for a partition.",
    ),
    ("replication_bytes_in", "ReplicationBytesInPerSec", "Record bytes appended as a follower."),
    ("replication_bytes_out", "ReplicationBytesOutPerSec", "Record bytes that followers fetched."),
)
"""Counters of a topic. Each entry has the attribute name, Kafka's name
(`kafka.server:type=BrokerTopicMetrics`) and a description."""


class TopicTraffic:
    """Traffic counters of one topic on this broker, such as bytes in and out."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetch_requests",
        "messages_in",
        "produce_requests",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.produce_requests = 0
        self.fetch_requests = 0
        self.failed_produces = 0
        self.failed_fetches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def note_fetched(self, size: int, is_from_follower: bool, is_refused: bool) -> None:
        """Count one partition of a fetch response, with `size` bytes of records, in the topic's
        traffic."""
        if is_refused:
            self.failed_fetches += 1
        if is_from_follower:
            self.replication_bytes_out += size
        else:
            self.fetch_requests += 1
            self.bytes_out += size

    def add(self, other: "TopicTraffic") -> None:
        """Add the traffic counters of another topic to this object's counters."""
        for name, _, _ in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTraffic:
    """Traffic counters of every topic with a replica on this broker, and of all topics together."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._elsewhere = TopicTraffic()
        """Sum of the traffic that no current topic counts: traffic of topics whose replicas have
        left this broker, and of requests for topics without a replica here."""

    def of(self, topic: str) -> TopicTraffic:
        """Return the traffic counters of a topic that has a replica on this broker."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        return found

    def by_topic(self) -> dict[str, TopicTraffic]:
        """Return the traffic counters of each topic that has a replica on this broker, by topic
        name."""
        return dict(self._topics)

    def forget(self, topic: str) -> None:
        """Drop the traffic counters of a topic that has left this broker. The broker's sum keeps
        them."""
        left = self._topics.pop(topic, None)
        if left is not None:
            self._elsewhere.add(left)

    def note_failed_produce(self, topic: str) -> None:
        """Count a produced batch that was refused. If the topic has no replica on this broker, only
        the broker's sum counts it."""
        self._topics.get(topic, self._elsewhere).failed_produces += 1

    def families(self) -> Iterator[Family]:
        """Yield each traffic counter as a metric family, for all topics together and by topic."""
        topics = list(self._topics.items())
        for attribute, name, text in COUNTS:
            values = [(topic, getattr(traffic, attribute)) for topic, traffic in topics]
            total = getattr(self._elsewhere, attribute) + sum(value for _, value in values)
            yield Family(
                prometheus_name(f"kafka.server:type=BrokerTopicMetrics,name={name}"),
                MetricKind.COUNTER,
                text,
                ("topic",),
                (((), total), *(((topic,), value) for topic, value in values)),
            )
