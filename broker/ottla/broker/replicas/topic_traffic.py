"""What has come in and gone out, by topic: plain integers that the data path adds to.

Pure.  A partition holds its topic's counts, so counting finds them without a look-up; nothing is
counted a record.  What a topic had counted stays in the sum of all when the topic leaves this
broker: a counter never goes back.
"""

from collections.abc import Iterator

from ottla.telemetry.instruments import Family, MetricKind
from ottla.telemetry.kafka_names import prometheus_name

COUNTS = (
    ("messages_in", "MessagesInPerSec", "Records that producers appended."),
    ("bytes_in", "BytesInPerSec", "Record bytes that producers appended."),
    ("bytes_out", "BytesOutPerSec", "Record bytes that consumers fetched."),
    ("produce_requests", "TotalProduceRequestsPerSec", "Batches that producers appended."),
    ("fetch_requests", "TotalFetchRequestsPerSec", "Answers to consumers about a partition."),
    ("failed_produces", "FailedProduceRequestsPerSec", "Batches that were refused."),
    ("failed_fetches", "FailedFetchRequestsPerSec", "Answers that refused a partition."),
    ("replication_bytes_in", "ReplicationBytesInPerSec", "Record bytes appended as a follower."),
    ("replication_bytes_out", "ReplicationBytesOutPerSec", "Record bytes that followers fetched."),
)
"""Each count, what Kafka calls it (`kafka.server:type=BrokerTopicMetrics`), and what it is."""


class TopicTraffic:
    """The counts of one topic on this broker."""

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

    def note_fetched(self, size: int, *, is_from_follower: bool, is_refused: bool) -> None:
        """Count one partition's part of a fetch's answer."""
        if is_refused:
            self.failed_fetches += 1
        if is_from_follower:
            self.replication_bytes_out += size
        else:
            self.fetch_requests += 1
            self.bytes_out += size

    def add(self, other: "TopicTraffic") -> None:
        """Take another's counts over."""
        for name, _, _ in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTraffic:
    """The counts of every topic that has a replica here, and of all together."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._elsewhere = TopicTraffic()
        """Of topics that have left, and of requests that named none of ours."""

    def of(self, topic: str) -> TopicTraffic:
        """Return the counts of a topic that has a replica here."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """Keep a topic's counts in the sum alone: it has left this broker."""
        left = self._topics.pop(topic, None)
        if left is not None:
            self._elsewhere.add(left)

    def note_failed_produce(self, topic: str) -> None:
        """Count a batch that was refused; a topic that is not here gets no row of its own."""
        self._topics.get(topic, self._elsewhere).failed_produces += 1

    def families(self) -> Iterator[Family]:
        """Yield each count, of all topics together and by topic."""
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
