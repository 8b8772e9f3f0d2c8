"""Every refusal of a group has Kafka's own error code, in each version, over a real socket.

The codes are those of Apache Kafka 4.1, which answered this very table (`conftest.py` says how).
"""

import operator
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest

from ottla.wire.apis import API, OFFSETS_TOPIC_IDS_FROM
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC, ELSEWHERE = "error-table", "error-table-elsewhere"
"""The topics that the broker has."""
STRANGER = "stranger"
INSTANCE = "i"
SESSION_MS, REBALANCE_MS = 45_000, 300_000
METADATA_BYTES_MAX = 4_096
"""The first version of OffsetCommit and OffsetFetch that names topics by id."""


class Group(NamedTuple):
    """A group in some state, and the member that sends the requests."""

    id: str
    topic_ids: Mapping[str, UUID] = {}
    epoch: int = -1
    """Its generation, or its member's epoch."""
    member: str = ""
    """Its one member, which is static."""
    replaced: str = ""
    """Member id that the static instance had before."""
    instance: str | None = None
    """The group instance id of the request."""


Of = Callable[[Group], Any]
"""A value that depends on the group."""

REPLACED: Of = operator.attrgetter("replaced")


def old(by: int) -> Of:
    """Return a function from a group to its epoch minus a count."""
    return lambda group: group.epoch - by


@dataclass(frozen=True)
class Row:
    """One invalid request, and its error code from each version on."""

    name: str
    build: Callable[..., Message]
    codes: Mapping[int, str]
    changes: Mapping[str, Any]

    @property
    def versions(self) -> list[int]:
        """Every version in which it can be asked."""
        api_key = self.build(Group("g"), 9).API_KEY
        return [one for one in API[api_key].advertised if one >= min(self.codes)]

    def request(self, group: Group, version: int) -> Message:
        """Return the request: its sender is from the group, the rest from the row."""
        changes = {
            key: value(group) if callable(value) else value for key, value in self.changes.items()
        }
        who = {key: changes.pop(key) for key in Group._fields if key in changes}
        return self.build(group._replace(**who), version, **changes)

    def code(self, version: int) -> str:
        """Return the expected error code of a version."""
        return self.codes[max(first for first in self.codes if first <= version)]


def row(
    name: str,
    build: Callable[..., Message],
    codes: str | Mapping[int, str],
    *,
    since: int = 0,
    **changes: Any,
) -> Row:
    return Row(name, build, {since: codes} if isinstance(codes, str) else codes, changes)


def subscription(*topics: str) -> bytes:
    return struct.pack(">h", 0) + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def heartbeat(g: Group, version: int) -> Message:
    return HeartbeatRequest(
        group_id=g.id, member_id=g.member, generation_id=g.epoch, group_instance_id=g.instance
    )


def join(g: Group, version: int, *, protocol: str = "range", **changes: Any) -> Message:
    offered = JoinGroupRequestProtocol(name=protocol, metadata=subscription(TOPIC))
    values = {
        "protocol_type": "consumer",
        "protocols": [offered],
        "session_timeout_ms": SESSION_MS,
        **({"rebalance_timeout_ms": REBALANCE_MS} if version >= 1 else {}),
        **changes,
    }
    return JoinGroupRequest(
        group_id=g.id, member_id=g.member, group_instance_id=g.instance, **values
    )


def sync(g: Group, version: int, **changes: Any) -> Message:
    if version >= 5:
        changes = {"protocol_type": "consumer", "protocol_name": "range", **changes}
    return SyncGroupRequest(
        group_id=g.id,
        member_id=g.member,
        generation_id=g.epoch,
        group_instance_id=g.instance,
        **changes,
    )


def leave(g: Group, version: int) -> Message:
    if version < 3:
        return LeaveGroupRequest(group_id=g.id, member_id=g.member)
    identity = MemberIdentity(member_id=g.member, group_instance_id=g.instance)
    return LeaveGroupRequest(group_id=g.id, members=[identity])


def commit(
    g: Group, version: int, *, topic: str = TOPIC, partition: int = 0, text: str = ""
) -> Message:
    position = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata=text
    )
    named = OffsetCommitRequestTopic(name=topic, partitions=[position])
    if version >= OFFSETS_TOPIC_IDS_FROM:
        named = OffsetCommitRequestTopic(
            topic_id=g.topic_ids.get(topic, UUID(int=77)), partitions=[position]
        )
    return OffsetCommitRequest(
        group_id=g.id,
        member_id=g.member,
        generation_id_or_member_epoch=g.epoch,
        group_instance_id=g.instance,
        topics=[named],
    )


def fetch(g: Group, version: int) -> Message:
    if version < 8:
        asked = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return OffsetFetchRequest(group_id=g.id, topics=[asked])
    named = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    if version >= OFFSETS_TOPIC_IDS_FROM:
        named = OffsetFetchRequestTopics(
            topic_id=g.topic_ids.get(TOPIC, UUID(int=77)), partition_indexes=[0]
        )
    group = OffsetFetchRequestGroup(group_id=g.id, topics=[named])
    if version >= 9 and g.member:
        group.member_id, group.member_epoch = g.member, g.epoch
    return OffsetFetchRequest(groups=[group])


def delete_offset(g: Group, version: int, *, topic: str = TOPIC) -> Message:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    return OffsetDeleteRequest(group_id=g.id, topics=topics)


def delete(g: Group, version: int) -> Message:
    return DeleteGroupsRequest(groups_names=[g.id])


def describe(g: Group, version: int) -> Message:
    return DescribeGroupsRequest(groups=[g.id])


def describe_consumers(g: Group, version: int) -> Message:
    return ConsumerGroupDescribeRequest(group_ids=[g.id])


def consume(g: Group, version: int, **changes: Any) -> Message:
    return ConsumerGroupHeartbeatRequest(
        group_id=g.id,
        member_id=g.member,
        member_epoch=g.epoch,
        instance_id=g.instance,
        **changes,
    )


def come(g: Group, version: int, *, is_named: bool = True, **changes: Any) -> Message:
    """Ask to join by the consumer protocol."""
    values = {
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
        **changes,
    }
    member = str(uuid4()) if is_named else ""
    return consume(g._replace(member=member, epoch=0), version, **values)


LONG_TEXT = "x" * (METADATA_BYTES_MAX + 1)

CLASSIC = [
    row("heartbeat of a stranger", heartbeat, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row("heartbeat of an old generation", heartbeat, "ILLEGAL_GENERATION", epoch=0),
    row(
        "heartbeat of who was replaced",
        heartbeat,
        "FENCED_INSTANCE_ID",
        since=3,
        member=REPLACED,
        instance=INSTANCE,
    ),
    row("heartbeat of no instance", heartbeat, "UNKNOWN_MEMBER_ID", since=3, instance="other"),
    row("join of a stranger", join, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row(
        "join of who was replaced",
        join,
        "FENCED_INSTANCE_ID",
        since=5,
        member=REPLACED,
        instance=INSTANCE,
    ),
    row("join without an id", join, "MEMBER_ID_REQUIRED", since=4, member=""),
    row("join without a protocol", join, "INCONSISTENT_GROUP_PROTOCOL", protocols=[]),
    row("join by another protocol", join, "INCONSISTENT_GROUP_PROTOCOL", protocol="other"),
    row("join by another type", join, "INCONSISTENT_GROUP_PROTOCOL", protocol_type="connect"),
    row("join with too short a session", join, "INVALID_SESSION_TIMEOUT", session_timeout_ms=1),
    row(
        "join with too long a session",
        join,
        "INVALID_SESSION_TIMEOUT",
        session_timeout_ms=2_000_000_000,
    ),
    row("sync of a stranger", sync, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row("sync of an old generation", sync, "ILLEGAL_GENERATION", epoch=0),
    row(
        "sync of who was replaced",
        sync,
        "FENCED_INSTANCE_ID",
        since=3,
        member=REPLACED,
        instance=INSTANCE,
    ),
    row(
        "sync by another protocol",
        sync,
        "INCONSISTENT_GROUP_PROTOCOL",
        since=5,
        protocol_name="other",
    ),
    row(
        "sync by another type",
        sync,
        "INCONSISTENT_GROUP_PROTOCOL",
        since=5,
        protocol_type="connect",
    ),
    row("leave of a stranger", leave, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row(
        "leave of who was replaced",
        leave,
        "FENCED_INSTANCE_ID",
        since=3,
        member=REPLACED,
        instance=INSTANCE,
    ),
    row("leave of no instance", leave, "UNKNOWN_MEMBER_ID", since=3, instance="other"),
    row("commit of a stranger", commit, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row("commit of an old generation", commit, "ILLEGAL_GENERATION", epoch=0),
    row(
        "commit of who was replaced",
        commit,
        "FENCED_INSTANCE_ID",
        since=7,
        member=REPLACED,
        instance=INSTANCE,
    ),
    row("commit from outside", commit, "UNKNOWN_MEMBER_ID", member="", epoch=-1),
    row("commit with too long a text", commit, "OFFSET_METADATA_TOO_LARGE", text=LONG_TEXT),
    row("commit for a partition not its own", commit, "NONE", partition=1),
    row("commit for no partition", commit, "UNKNOWN_TOPIC_OR_PARTITION", partition=9),
    row(
        "commit for no topic",
        commit,
        {2: "UNKNOWN_TOPIC_OR_PARTITION", 10: "UNKNOWN_TOPIC_ID"},
        topic="none",
    ),
    row("fetch with an epoch", fetch, "NONE", since=9, epoch=9),
    row("deletion", delete, "NON_EMPTY_GROUP"),
    row("deletion of an offset in use", delete_offset, "GROUP_SUBSCRIBED_TO_TOPIC"),
    row("deletion of no topic's offset", delete_offset, "UNKNOWN_TOPIC_OR_PARTITION", topic="none"),
    row("consumer description", describe_consumers, "GROUP_ID_NOT_FOUND"),
]

NOBODY = [
    row("heartbeat", heartbeat, "UNKNOWN_MEMBER_ID", member="m", epoch=1),
    row("heartbeat without a group", heartbeat, "INVALID_GROUP_ID", id=""),
    row("join with an id", join, "UNKNOWN_MEMBER_ID", member="m"),
    row("join without an id", join, "MEMBER_ID_REQUIRED", since=4),
    row("join without a group", join, "INVALID_GROUP_ID", id=""),
    row("sync", sync, "UNKNOWN_MEMBER_ID", member="m", epoch=1),
    row("sync without a group", sync, "INVALID_GROUP_ID", id=""),
    row(
        "sync without a protocol", sync, "INCONSISTENT_GROUP_PROTOCOL", since=5, protocol_name=None
    ),
    row("leave", leave, "UNKNOWN_MEMBER_ID", member="m"),
    row("leave without a group", leave, "INVALID_GROUP_ID", id="", member="m"),
    row(
        "commit of a generation",
        commit,
        {2: "ILLEGAL_GENERATION", 9: "GROUP_ID_NOT_FOUND"},
        member="m",
        epoch=1,
    ),
    row("commit without a group", commit, "NONE", id=""),
    row("fetch without a group", fetch, "NONE", id=""),
    row("fetch with an epoch", fetch, "NONE", since=9, member="m", epoch=1),
    row("deletion", delete, "GROUP_ID_NOT_FOUND"),
    row("deletion of an offset", delete_offset, "GROUP_ID_NOT_FOUND"),
    row("deletion of an offset without a group", delete_offset, "INVALID_GROUP_ID", id=""),
    row("description", describe, {0: "NONE", 6: "GROUP_ID_NOT_FOUND"}),
    row("consumer description", describe_consumers, "GROUP_ID_NOT_FOUND"),
    row("consumer description without a group", describe_consumers, "INVALID_GROUP_ID", id=""),
    row("consumer heartbeat", consume, "GROUP_ID_NOT_FOUND", member="m", epoch=1),
    row("consumer joins without a group", come, "INVALID_REQUEST", id=""),
    row("consumer joins without an id", come, "INVALID_REQUEST", since=1, is_named=False),
    row(
        "consumer joins without a subscription",
        come,
        "INVALID_REQUEST",
        subscribed_topic_names=None,
    ),
    row("consumer joins without a timeout", come, "INVALID_REQUEST", rebalance_timeout_ms=-1),
    row("consumer joins with partitions", come, "INVALID_REQUEST", topic_partitions=None),
    row("consumer joins with an empty instance", come, "INVALID_REQUEST", instance=""),
    row("consumer joins with an empty rack", come, "INVALID_REQUEST", rack_id=""),
    row(
        "consumer joins with an unknown assignor",
        come,
        "UNSUPPORTED_ASSIGNOR",
        server_assignor="other",
    ),
    row(
        "consumer joins with half an expression",
        come,
        "INVALID_REGULAR_EXPRESSION",
        since=1,
        subscribed_topic_names=None,
        subscribed_topic_regex="(",
    ),
    row("static consumer leaves without a name", consume, "INVALID_REQUEST", member="m", epoch=-2),
    row("consumer of an epoch below all", consume, "INVALID_REQUEST", member="m", epoch=-3),
]

CONSUMER = [
    row("heartbeat of a stranger", consume, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row("heartbeat of an old epoch", consume, "FENCED_MEMBER_EPOCH", epoch=old(2)),
    row("heartbeat of the last epoch", consume, "FENCED_MEMBER_EPOCH", epoch=old(1)),
    row("heartbeat of an epoch to come", consume, "FENCED_MEMBER_EPOCH", epoch=old(-1)),
    row(
        "heartbeat of who was replaced",
        consume,
        "FENCED_INSTANCE_ID",
        member=REPLACED,
        instance=INSTANCE,
    ),
    row("heartbeat of no instance", consume, "UNKNOWN_MEMBER_ID", instance="other"),
    row("join as an instance that is there", come, "UNRELEASED_INSTANCE_ID", instance=INSTANCE),
    row("leave of a stranger", consume, "UNKNOWN_MEMBER_ID", member=STRANGER, epoch=-1),
    row(
        "leave for a while of the replaced",
        consume,
        "FENCED_INSTANCE_ID",
        member=REPLACED,
        epoch=-2,
        instance=INSTANCE,
    ),
    row("commit of a stranger", commit, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row(
        "commit of an old epoch",
        commit,
        {2: "UNSUPPORTED_VERSION", 9: "STALE_MEMBER_EPOCH"},
        epoch=old(1),
    ),
    row(
        "commit of an epoch to come",
        commit,
        {2: "UNSUPPORTED_VERSION", 9: "STALE_MEMBER_EPOCH"},
        epoch=old(-1),
    ),
    row("commit of the epoch in an older version", commit, {2: "UNSUPPORTED_VERSION", 9: "NONE"}),
    row("commit from outside", commit, "UNKNOWN_MEMBER_ID", member="", epoch=-1),
    row(
        "commit with too long a text", commit, "OFFSET_METADATA_TOO_LARGE", since=9, text=LONG_TEXT
    ),
    row("commit for a partition not its own", commit, "NONE", since=9, topic=ELSEWHERE),
    row("commit for no partition", commit, "UNKNOWN_TOPIC_OR_PARTITION", since=9, partition=9),
    row("fetch of a stranger", fetch, "UNKNOWN_MEMBER_ID", since=9, member=STRANGER),
    row("fetch of an old epoch", fetch, "STALE_MEMBER_EPOCH", since=9, epoch=old(1)),
    row("deletion", delete, "NON_EMPTY_GROUP"),
    row("deletion of an offset in use", delete_offset, "GROUP_SUBSCRIBED_TO_TOPIC"),
    row("classic heartbeat of a consumer", heartbeat, "UNKNOWN_MEMBER_ID"),
    row("classic sync of a consumer", sync, "UNKNOWN_MEMBER_ID"),
    row("classic leave of a stranger", leave, "UNKNOWN_MEMBER_ID", member=STRANGER),
    row("classic join of a consumer", join, "NONE"),
    row("classic join of a stranger", join, "NONE", member=STRANGER),
    row("classic join without an id", join, "MEMBER_ID_REQUIRED", since=4, member=""),
    row(
        "classic join as an instance that is there",
        join,
        "FENCED_INSTANCE_ID",
        since=5,
        member="x",
        instance=INSTANCE,
    ),
    row(
        "classic join of another type",
        join,
        "INCONSISTENT_GROUP_PROTOCOL",
        member="",
        protocol_type="connect",
    ),
    row(
        "classic join without a protocol",
        join,
        "INCONSISTENT_GROUP_PROTOCOL",
        member="",
        protocols=[],
    ),
    row("classic description", describe, {0: "NONE", 6: "GROUP_ID_NOT_FOUND"}),
]

CONNECT = [
    row("consumer joins", come, "GROUP_ID_NOT_FOUND"),
    row("consumer heartbeat", consume, "GROUP_ID_NOT_FOUND"),
    row("classic join as a consumer", join, "INCONSISTENT_GROUP_PROTOCOL", member=""),
    row("fetch with an epoch", fetch, "NONE", since=9, epoch=1),
    row("deletion of an offset", delete_offset, "NON_EMPTY_GROUP"),
]


# Groups that are asked


async def no_group(broker: Any) -> Group:
    """Return a name that no group has."""
    names = (TOPIC, ELSEWHERE)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    topics = (await broker.ask(request)).topics
    return Group(f"group-{uuid4()}", {topic.name or "": topic.topic_id for topic in topics})


async def classic_group(broker: Any, protocol_type: str = "consumer") -> Group:
    """Return a stable classic group whose one static member has replaced another."""
    group = await no_group(broker)
    newcomer = group._replace(instance=INSTANCE)
    joined = await broker.accepted(join(newcomer, 9, protocol_type=protocol_type))
    first = group._replace(member=joined.member_id, epoch=joined.generation_id)
    assigned = struct.pack(">h", 0) + encode(ConsumerProtocolAssignment(), 0)
    assignment = SyncGroupRequestAssignment(member_id=first.member, assignment=assigned)
    await broker.accepted(sync(first, 5, protocol_type=protocol_type, assignments=[assignment]))
    again = await broker.accepted(join(newcomer, 9, protocol_type=protocol_type))
    assert again.generation_id == first.epoch
    return first._replace(member=again.member_id, replaced=first.member)


async def connect_group(broker: Any) -> Group:
    """Return a group of protocol type connect, whose members are no consumers."""
    return await classic_group(broker, "connect")


async def consumer_group(broker: Any) -> Group:
    """Return a group of the consumer protocol whose one static member has replaced another.

    It is in its third epoch: each changed subscription makes one.
    """
    group = await no_group(broker)
    newcomer = group._replace(instance=INSTANCE)
    first = await broker.accepted(come(newcomer, 1))
    group = group._replace(replaced=first.member_id)
    gone = newcomer._replace(member=first.member_id, epoch=-2)
    await broker.accepted(consume(gone, 1))
    found = await broker.accepted(come(newcomer, 1))
    for names in ([TOPIC, "absent"], [TOPIC]):
        group = group._replace(member=found.member_id, epoch=found.member_epoch)
        found = await broker.accepted(consume(group, 1, subscribed_topic_names=names))
    assert found.member_epoch == first.member_epoch + 2
    return group._replace(epoch=found.member_epoch)


async def outcomes(
    broker: Any, make: Callable[[Any], Awaitable[Group]], rows: list[Row]
) -> dict[str, dict[int, str]]:
    """Ask everything of a table in every version that both sides have, each of a new group."""
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        for version in row.versions:
            request = row.request(await make(broker), version)
            if broker.serves(request, version):
                code = await broker.code_of(request, version)
                found.setdefault(row.name, {})[version] = code.name
    return found


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (no_group, NOBODY),
        (classic_group, CLASSIC),
        (connect_group, CONNECT),
        (consumer_group, CONSUMER),
    ],
    ids=["absent", "classic", "connect", "consumer"],
)
async def test_each_code_is_kafkas_in_every_version(
    broker: Any, make: Callable[[Any], Awaitable[Group]], rows: list[Row]
) -> None:
    found = await outcomes(broker, make, rows)
    assert found.keys() == {row.name for row in rows}
    wanted = {row.name: {version: row.code(version) for version in found[row.name]} for row in rows}
    assert found == wanted
