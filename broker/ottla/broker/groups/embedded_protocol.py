"""What consumers of the classic protocol tell each other, as the coordinator reads it.  Pure.

It does so for groups that go over to the consumer protocol only; otherwise that is nobody's
business but the members'.
"""

from typing import NamedTuple, TypeVar

from ottla.broker.groups.consumer_member import NOTHING, Assignment
from ottla.broker.groups.topic_view import TopicView
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
"""The version stands in front, as an int16."""

NamedPartitions = dict[str, frozenset[int]]


class EmbeddedSubscription(NamedTuple):
    """What a consumer wants, and what it says that it has."""

    topics: frozenset[str]
    rack_id: str | None
    owned: NamedPartitions

    def owned_ids(self, topics: TopicView) -> Assignment:
        """Return what it says that it has, of topics that there are."""
        return _by_id(self.owned, topics)


def read_subscription(data: bytes) -> EmbeddedSubscription | None:
    """Return a consumer's subscription; None when it is in a form of its own."""
    found = _read(ConsumerProtocolSubscription, data)
    if found is None:
        return None
    owned = {one.topic: frozenset(one.partitions) for one in found.owned_partitions}
    return EmbeddedSubscription(frozenset(found.topics), found.rack_id or None, owned)


def read_assignment(data: bytes, topics: TopicView) -> Assignment:
    """Return what a consumer was assigned by its leader; nothing when that is no assignment."""
    found = _read(ConsumerProtocolAssignment, data)
    if found is None:
        return NOTHING
    assigned = {one.topic: frozenset(one.partitions) for one in found.assigned_partitions}
    return _by_id(assigned, topics)


def assignment_bytes(assignment: Assignment, metadata: bytes, topics: TopicView) -> bytes:
    """Return an assignment in the version of what the consumer said itself."""
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
    """Return a message that stands behind its version; None when it is none."""
    version = _version_of(data, kind.VERSIONS[-1])
    if version < 0:
        return None
    try:
        found, _ = decode_prefix(kind, version, memoryview(data), PREFIX_BYTES)
    except ProtocolError:
        return None
    return found


def _version_of(data: bytes, latest: int) -> int:
    """Return the version to read with; negative when there is none."""
    if len(data) < PREFIX_BYTES:
        return -1
    return min(int.from_bytes(data[:PREFIX_BYTES], signed=True), latest)


def _by_id(partitions: NamedPartitions, topics: TopicView) -> Assignment:
    return {
        topic.id: indexes
        for name, indexes in partitions.items()
        if indexes and (topic := topics.topic(name)) is not None
    }
