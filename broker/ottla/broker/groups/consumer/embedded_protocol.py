"""Reads and writes subscriptions and assignments in the format of classic consumers. Pure.

The coordinator reads them only for groups that are upgraded to the consumer protocol.
"""

from typing import NamedTuple, TypeVar

from ottla.broker.groups.consumer.consumer_member import NOTHING, Assignment
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.model.errors import ProtocolError
from ottla.wire.codec import decode_prefix, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from ottla.wire.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedPartitions,
)
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

M = TypeVar("M", bound=Message)

PREFIX_BYTES = 2
"""Size in bytes of the version (int16) before each subscription or assignment in the format of
classic consumers."""

NamedPartitions = dict[str, frozenset[int]]


class EmbeddedSubscription(NamedTuple):
    """Subscription of a classic consumer, and the partitions that it claims to own."""

    topics: frozenset[str]
    rack_id: str | None
    owned: NamedPartitions

    def owned_ids(self, topics: TopicView) -> Assignment:
        """Return the partitions that the consumer claims to own, by topic id. Topics that do not
        exist are left out."""
        return _by_id(self.owned, topics)


def read_subscription(data: bytes) -> EmbeddedSubscription | None:
    """Return a classic consumer's subscription, or None if its format is unknown."""
    found = _read(ConsumerProtocolSubscription, data)
    if found is None:
        return None
    owned = {one.topic: frozenset(one.partitions) for one in found.owned_partitions}
    return EmbeddedSubscription(frozenset(found.topics), found.rack_id or None, owned)


def read_assignment(data: bytes, topics: TopicView) -> Assignment:
    """Return a classic consumer's assignment as computed by the group's leader, or an empty
    assignment if the bytes cannot be read."""
    found = _read(ConsumerProtocolAssignment, data)
    if found is None:
        return NOTHING
    assigned = {one.topic: frozenset(one.partitions) for one in found.assigned_partitions}
    return _by_id(assigned, topics)


def assignment_bytes(assignment: Assignment, metadata: bytes, topics: TopicView) -> bytes:
    """Encode an assignment for a classic consumer. The version is the version of the consumer's
    subscription in `metadata`."""
    version = max(0, _version_of(metadata, ConsumerProtocolAssignment.VERSIONS[-1]))
    named = [
        AssignedPartitions(topic=topic.name, partitions=sorted(indexes))
        for topic_id, indexes in assignment.items()
        if (topic := topics.image.topics.get(topic_id)) is not None
    ]
    named.sort(key=lambda one: one.topic)
    value = ConsumerProtocolAssignment(assigned_partitions=named, user_data=None)
    return version.to_bytes(PREFIX_BYTES) + encode(value, version)


def _read(kind: type[M], data: bytes) -> M | None:
    """Decode the subscription or assignment after the version. Returns None if the bytes cannot be
    read."""
    version = _version_of(data, kind.VERSIONS[-1])
    if version < 0:
        return None
    try:
        found, _ = decode_prefix(kind, version, memoryview(data), PREFIX_BYTES)
    except ProtocolError:
        return None
    return found


def _version_of(data: bytes, latest: int) -> int:
    """Return the version in which to decode a subscription or assignment, at most `latest`. Returns
    a negative number if the bytes contain no version."""
    if len(data) < PREFIX_BYTES:
        return -1
    return min(int.from_bytes(data[:PREFIX_BYTES], signed=True), latest)


def _by_id(partitions: NamedPartitions, topics: TopicView) -> Assignment:
    return {
        topic.id: indexes
        for name, indexes in partitions.items()
        if indexes and (topic := topics.topic(name)) is not None
    }
