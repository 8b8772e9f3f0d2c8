"""Derives the kind of a group, in words that users know, from the type and the protocol type that
brokers report. Pure.

Kafka's types do not distinguish all kinds: a group of Kafka Connect and a group that only has
committed offsets are both of the type "classic".
"""

from enum import Enum

from ottla.client.admin_parts.admin_groups import GroupDescription, GroupType

STREAMS_ASSIGNOR = "stream"
"""Name of the assignor of Kafka Streams applications that use the classic protocol."""


class GroupKindName(Enum):
    """Kind of a group, as users name it."""

    CLASSIC = "classic"
    """Consumer group with the classic protocol, in which a member computes the assignment."""
    CONSUMER = "consumer"
    """Consumer group with the protocol of KIP-848, in which the coordinator computes the
    assignment."""
    SHARE = "share"
    """A share group: its members consume partitions together, record by record."""
    STREAMS = "streams"
    """Group of a Kafka Streams application that uses the protocol of KIP-1071."""
    CONNECT = "connect"
    """Group of Kafka Connect workers, which share out connectors and tasks."""
    SIMPLE = "simple"
    """Group with committed offsets but without members: a client assigned partitions to itself."""
    OTHER = "other"
    """A classic group of another protocol type, such as "sr" of a schema registry."""


MEANINGS = {
    GroupKindName.CLASSIC: "consumers of the classic protocol: a member computes the assignment",
    GroupKindName.CONSUMER: "consumers of the consumer protocol (KIP-848): the coordinator "
    "computes the assignment",
    GroupKindName.SHARE: "share group (KIP-932): members consume partitions together",
    GroupKindName.STREAMS: "Kafka Streams application (KIP-1071): the coordinator assigns tasks",
    GroupKindName.CONNECT: "workers of Kafka Connect: members share out connectors and tasks",
    GroupKindName.SIMPLE: "committed offsets only: no client of this group has joined it",
    GroupKindName.OTHER: "classic group of another protocol type",
}
"""Sentence that explains each kind of group to users, without a full stop."""


def meaning_of(group: GroupDescription) -> str:
    """Return a sentence that explains the kind of a group, without a full stop. A classic group
    with the assignor of Kafka Streams is described as a Kafka Streams application."""
    kind = kind_of(group.type, group.protocol_type)
    if kind is GroupKindName.OTHER:
        return f"classic group of protocol type {group.protocol_type!r}"
    if kind is GroupKindName.CLASSIC and group.assignor == STREAMS_ASSIGNOR:
        return "Kafka Streams application of the classic protocol"
    return MEANINGS[kind]


def kind_of(type_: GroupType, protocol_type: str) -> GroupKindName:
    """Return the kind of a group. Brokers that are too old to report a type have only classic
    groups."""
    match type_:
        case GroupType.CONSUMER:
            return GroupKindName.CONSUMER
        case GroupType.SHARE:
            return GroupKindName.SHARE
        case GroupType.STREAMS:
            return GroupKindName.STREAMS
    return {
        "consumer": GroupKindName.CLASSIC,
        "connect": GroupKindName.CONNECT,
        "": GroupKindName.SIMPLE,
    }.get(protocol_type, GroupKindName.OTHER)
