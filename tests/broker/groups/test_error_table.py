"""Whatever a group refuses is refused with Kafka's own code, in each version, over a real socket.

The codes are those of Apache Kafka 4.1, asked with this very table: with KAFKA_BOOTSTRAP=host:port
in the environment the tests ask that broker instead of ours.
"""

import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
import trio

from ottla.client.connection import Connection, open_connection
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.apis import API, response_class
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
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

OTHER_BROKER = os.environ.get("KAFKA_BOOTSTRAP")
TOPIC, ELSEWHERE = "error-table", "error-table-elsewhere"
STRANGER = "stranger"
INSTANCE = "i"
SESSION_MS, REBALANCE_MS = 45_000, 300_000
METADATA_BYTES_MAX = 4_096
TOPIC_IDS_FROM = 10
"""The first version of OffsetCommit and OffsetFetch that names topics by id."""


class Group(NamedTuple):
    """A group as it is when it is asked."""

    id: str
    topic_ids: Mapping[str, UUID] = {}
    epoch: int = -1
    """Its generation, or its member's epoch."""
    member: str = ""
    """Its one member, which is static."""
    replaced: str = ""
    """Who was that instance before."""


@dataclass(frozen=True)
class Row:
    """One wrong thing to do, and what it is answered since which version."""

    name: str
    ask: Callable[[Group, int], Message]
    codes: Mapping[int, str]

    def expected(self, version: int) -> str:
        """Return the code for a version."""
        return self.codes[max(first for first in self.codes if first <= version)]


def heartbeat(g: Group, version: int, **changes: Any) -> Message:
    values = {"group_id": g.id, "member_id": g.member, "generation_id": g.epoch, **changes}
    return HeartbeatRequest(**values)


def subscription(*topics: str) -> bytes:
    return struct.pack(">h", 0) + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def join(g: Group, version: int, *, name: str = "range", **changes: Any) -> Message:
    protocol = JoinGroupRequestProtocol(name=name, metadata=subscription(TOPIC))
    values = {
        "group_id": g.id,
        "member_id": g.member,
        "protocol_type": "consumer",
        "protocols": [protocol],
        "session_timeout_ms": SESSION_MS,
        **({"rebalance_timeout_ms": REBALANCE_MS} if version >= 1 else {}),
        **changes,
    }
    return JoinGroupRequest(**values)


def sync(g: Group, version: int, **changes: Any) -> Message:
    values = {"group_id": g.id, "member_id": g.member, "generation_id": g.epoch, **changes}
    if version >= 5:
        values = {"protocol_type": "consumer", "protocol_name": "range", **values}
    return SyncGroupRequest(**values)


def leave(g: Group, version: int, member: str = "", instance: str | None = None) -> Message:
    if version < 3:
        return LeaveGroupRequest(group_id=g.id, member_id=member)
    identity = MemberIdentity(member_id=member, group_instance_id=instance)
    return LeaveGroupRequest(group_id=g.id, members=[identity])


def commit(
    g: Group,
    version: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    text: str = "",
    **changes: Any,
) -> Message:
    position = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata=text
    )
    topic_id = g.topic_ids.get(topic, UUID(int=77))
    named: dict[str, Any] = {"topic_id": topic_id} if version >= TOPIC_IDS_FROM else {"name": topic}
    values = {
        "group_id": g.id,
        "member_id": g.member,
        "generation_id_or_member_epoch": g.epoch,
        "topics": [OffsetCommitRequestTopic(**named, partitions=[position])],
        **changes,
    }
    return OffsetCommitRequest(**values)


def fetch(g: Group, version: int, **changes: Any) -> Message:
    if version < 8:
        asked = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
        return OffsetFetchRequest(group_id=changes.get("group_id", g.id), topics=[asked])
    named: dict[str, Any] = (
        {"topic_id": g.topic_ids[TOPIC]} if version >= TOPIC_IDS_FROM else {"name": TOPIC}
    )
    topics = [OffsetFetchRequestTopics(**named, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(**{"group_id": g.id, "topics": topics, **changes})
    return OffsetFetchRequest(groups=[group])


def delete_offset(g: Group, version: int, topic: str = TOPIC) -> Message:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    return OffsetDeleteRequest(group_id=g.id, topics=topics)


def consume(g: Group, version: int, **changes: Any) -> Message:
    values = {"group_id": g.id, "member_id": g.member, "member_epoch": g.epoch, **changes}
    return ConsumerGroupHeartbeatRequest(**values)


def come(g: Group, version: int, **changes: Any) -> Message:
    """Ask to join by the consumer protocol."""
    values = {
        "member_id": str(uuid4()),
        "member_epoch": 0,
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
        **changes,
    }
    return consume(g, version, **values)


LONG_TEXT = "x" * (METADATA_BYTES_MAX + 1)
NAMELESS: dict[str, Any] = {"group_id": ""}
FENCED: dict[str, Any] = {"group_instance_id": INSTANCE}

CLASSIC = [
    Row(
        "heartbeat of a stranger",
        lambda g, v: heartbeat(g, v, member_id=STRANGER),
        {0: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "heartbeat of an old generation",
        lambda g, v: heartbeat(g, v, generation_id=0),
        {0: "ILLEGAL_GENERATION"},
    ),
    Row(
        "heartbeat of who was the instance before",
        lambda g, v: heartbeat(g, v, member_id=g.replaced, **FENCED),
        {3: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "heartbeat of an instance nobody has",
        lambda g, v: heartbeat(g, v, group_instance_id="other"),
        {3: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "join of a stranger", lambda g, v: join(g, v, member_id=STRANGER), {0: "UNKNOWN_MEMBER_ID"}
    ),
    Row(
        "join of who was the instance before",
        lambda g, v: join(g, v, member_id=g.replaced, **FENCED),
        {5: "FENCED_INSTANCE_ID"},
    ),
    Row("join without an id", lambda g, v: join(g, v, member_id=""), {4: "MEMBER_ID_REQUIRED"}),
    Row(
        "join without a protocol",
        lambda g, v: join(g, v, protocols=[]),
        {0: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "join by another protocol",
        lambda g, v: join(g, v, name="other"),
        {0: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "join by another type",
        lambda g, v: join(g, v, protocol_type="connect"),
        {0: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "join with too short a session",
        lambda g, v: join(g, v, session_timeout_ms=1),
        {0: "INVALID_SESSION_TIMEOUT"},
    ),
    Row(
        "join with too long a session",
        lambda g, v: join(g, v, session_timeout_ms=2_000_000_000),
        {0: "INVALID_SESSION_TIMEOUT"},
    ),
    Row(
        "sync of a stranger", lambda g, v: sync(g, v, member_id=STRANGER), {0: "UNKNOWN_MEMBER_ID"}
    ),
    Row(
        "sync of an old generation",
        lambda g, v: sync(g, v, generation_id=0),
        {0: "ILLEGAL_GENERATION"},
    ),
    Row(
        "sync of who was the instance before",
        lambda g, v: sync(g, v, member_id=g.replaced, **FENCED),
        {3: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "sync by another protocol",
        lambda g, v: sync(g, v, protocol_name="other"),
        {5: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "sync by another type",
        lambda g, v: sync(g, v, protocol_type="connect"),
        {5: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row("leave of a stranger", lambda g, v: leave(g, v, STRANGER), {0: "UNKNOWN_MEMBER_ID"}),
    Row(
        "leave of who was the instance before",
        lambda g, v: leave(g, v, g.replaced, INSTANCE),
        {3: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "leave of an instance nobody has",
        lambda g, v: leave(g, v, "", "other"),
        {3: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "commit of a stranger",
        lambda g, v: commit(g, v, member_id=STRANGER),
        {2: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "commit of an old generation",
        lambda g, v: commit(g, v, generation_id_or_member_epoch=0),
        {2: "ILLEGAL_GENERATION"},
    ),
    Row(
        "commit of who was the instance before",
        lambda g, v: commit(g, v, member_id=g.replaced, **FENCED),
        {7: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "commit from outside",
        lambda g, v: commit(g, v, member_id="", generation_id_or_member_epoch=-1),
        {2: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "commit with too long a text",
        lambda g, v: commit(g, v, text=LONG_TEXT),
        {2: "OFFSET_METADATA_TOO_LARGE"},
    ),
    Row("commit for a partition not its own", lambda g, v: commit(g, v, partition=1), {2: "NONE"}),
    Row(
        "commit for no partition",
        lambda g, v: commit(g, v, partition=9),
        {2: "UNKNOWN_TOPIC_OR_PARTITION"},
    ),
    Row(
        "commit for no topic",
        lambda g, v: commit(g, v, topic="none"),
        {2: "UNKNOWN_TOPIC_OR_PARTITION", 10: "UNKNOWN_TOPIC_ID"},
    ),
    Row(
        "fetch with an epoch",
        lambda g, v: fetch(g, v, member_id=g.member, member_epoch=9),
        {9: "NONE"},
    ),
    Row("deletion", lambda g, v: DeleteGroupsRequest(groups_names=[g.id]), {0: "NON_EMPTY_GROUP"}),
    Row("deletion of an offset in use", delete_offset, {0: "GROUP_SUBSCRIBED_TO_TOPIC"}),
    Row(
        "deletion of no topic's offset",
        lambda g, v: delete_offset(g, v, "none"),
        {0: "UNKNOWN_TOPIC_OR_PARTITION"},
    ),
    Row(
        "description as a consumer group",
        lambda g, v: ConsumerGroupDescribeRequest(group_ids=[g.id]),
        {0: "GROUP_ID_NOT_FOUND"},
    ),
]

NOBODY = [
    Row(
        "heartbeat",
        lambda g, v: heartbeat(g, v, member_id="m", generation_id=1),
        {0: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "heartbeat without a group",
        lambda g, v: heartbeat(g, v, **NAMELESS),
        {0: "INVALID_GROUP_ID"},
    ),
    Row("join with an id", lambda g, v: join(g, v, member_id="m"), {0: "UNKNOWN_MEMBER_ID"}),
    Row("join without an id", lambda g, v: join(g, v), {4: "MEMBER_ID_REQUIRED"}),
    Row("join without a group", lambda g, v: join(g, v, **NAMELESS), {0: "INVALID_GROUP_ID"}),
    Row("sync", lambda g, v: sync(g, v, member_id="m", generation_id=1), {0: "UNKNOWN_MEMBER_ID"}),
    Row("sync without a group", lambda g, v: sync(g, v, **NAMELESS), {0: "INVALID_GROUP_ID"}),
    Row(
        "sync without a protocol",
        lambda g, v: sync(g, v, protocol_name=None),
        {5: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row("leave", lambda g, v: leave(g, v, "m"), {0: "UNKNOWN_MEMBER_ID"}),
    Row("leave without a group", lambda g, v: leave(Group(""), v, "m"), {0: "INVALID_GROUP_ID"}),
    Row(
        "commit of a generation",
        lambda g, v: commit(g, v, member_id="m", generation_id_or_member_epoch=1),
        {2: "ILLEGAL_GENERATION", 9: "GROUP_ID_NOT_FOUND"},
    ),
    Row("commit without a group", lambda g, v: commit(g, v, **NAMELESS), {2: "NONE"}),
    Row("fetch without a group", lambda g, v: fetch(g, v, **NAMELESS), {1: "NONE"}),
    Row(
        "fetch with an epoch", lambda g, v: fetch(g, v, member_id="m", member_epoch=1), {9: "NONE"}
    ),
    Row(
        "deletion", lambda g, v: DeleteGroupsRequest(groups_names=[g.id]), {0: "GROUP_ID_NOT_FOUND"}
    ),
    Row("deletion of an offset", delete_offset, {0: "GROUP_ID_NOT_FOUND"}),
    Row(
        "deletion of an offset without a group",
        lambda g, v: delete_offset(Group(""), v),
        {0: "INVALID_GROUP_ID"},
    ),
    Row(
        "description",
        lambda g, v: DescribeGroupsRequest(groups=[g.id]),
        {0: "NONE", 6: "GROUP_ID_NOT_FOUND"},
    ),
    Row(
        "description as a consumer group",
        lambda g, v: ConsumerGroupDescribeRequest(group_ids=[g.id]),
        {0: "GROUP_ID_NOT_FOUND"},
    ),
    Row(
        "description as a consumer group without a name",
        lambda g, v: ConsumerGroupDescribeRequest(group_ids=[""]),
        {0: "INVALID_GROUP_ID"},
    ),
    Row(
        "consumer heartbeat",
        lambda g, v: consume(g, v, member_id="m", member_epoch=1),
        {0: "GROUP_ID_NOT_FOUND"},
    ),
    Row(
        "consumer joins without a group",
        lambda g, v: come(g, v, **NAMELESS),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins without an id",
        lambda g, v: come(g, v, member_id=""),
        {1: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins without a subscription",
        lambda g, v: come(g, v, subscribed_topic_names=None),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins without a rebalance timeout",
        lambda g, v: come(g, v, rebalance_timeout_ms=-1),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins with partitions",
        lambda g, v: come(g, v, topic_partitions=None),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins with an empty instance",
        lambda g, v: come(g, v, instance_id=""),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins with an empty rack",
        lambda g, v: come(g, v, rack_id=""),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer joins with an assignor nobody has",
        lambda g, v: come(g, v, server_assignor="other"),
        {0: "UNSUPPORTED_ASSIGNOR"},
    ),
    Row(
        "consumer joins with half an expression",
        lambda g, v: come(g, v, subscribed_topic_names=None, subscribed_topic_regex="("),
        {1: "INVALID_REGULAR_EXPRESSION"},
    ),
    Row(
        "static consumer leaves without a name",
        lambda g, v: consume(g, v, member_id="m", member_epoch=-2),
        {0: "INVALID_REQUEST"},
    ),
    Row(
        "consumer of an epoch below all",
        lambda g, v: consume(g, v, member_id="m", member_epoch=-3),
        {0: "INVALID_REQUEST"},
    ),
]

CONSUMER = [
    Row(
        "heartbeat of a stranger",
        lambda g, v: consume(g, v, member_id=STRANGER),
        {0: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "heartbeat of an old epoch",
        lambda g, v: consume(g, v, member_epoch=g.epoch - 2),
        {0: "FENCED_MEMBER_EPOCH"},
    ),
    Row(
        "heartbeat of the last epoch",
        lambda g, v: consume(g, v, member_epoch=g.epoch - 1),
        {0: "FENCED_MEMBER_EPOCH"},
    ),
    Row(
        "heartbeat of an epoch to come",
        lambda g, v: consume(g, v, member_epoch=g.epoch + 1),
        {0: "FENCED_MEMBER_EPOCH"},
    ),
    Row(
        "heartbeat of who was the instance before",
        lambda g, v: consume(g, v, member_id=g.replaced, instance_id=INSTANCE),
        {0: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "heartbeat of an instance nobody has",
        lambda g, v: consume(g, v, instance_id="other"),
        {0: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "join as an instance that is there",
        lambda g, v: come(g, v, instance_id=INSTANCE),
        {0: "UNRELEASED_INSTANCE_ID"},
    ),
    Row(
        "leave of a stranger",
        lambda g, v: consume(g, v, member_id=STRANGER, member_epoch=-1),
        {0: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "leave for a while of who was the instance before",
        lambda g, v: consume(g, v, member_id=g.replaced, member_epoch=-2, instance_id=INSTANCE),
        {0: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "commit of a stranger",
        lambda g, v: commit(g, v, member_id=STRANGER),
        {2: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "commit of an old epoch",
        lambda g, v: commit(g, v, generation_id_or_member_epoch=g.epoch - 1),
        {2: "UNSUPPORTED_VERSION", 9: "STALE_MEMBER_EPOCH"},
    ),
    Row(
        "commit of an epoch to come",
        lambda g, v: commit(g, v, generation_id_or_member_epoch=g.epoch + 1),
        {2: "UNSUPPORTED_VERSION", 9: "STALE_MEMBER_EPOCH"},
    ),
    Row("commit of the epoch in an older version", commit, {2: "UNSUPPORTED_VERSION", 9: "NONE"}),
    Row(
        "commit from outside",
        lambda g, v: commit(g, v, member_id="", generation_id_or_member_epoch=-1),
        {2: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "commit with too long a text",
        lambda g, v: commit(g, v, text=LONG_TEXT),
        {9: "OFFSET_METADATA_TOO_LARGE"},
    ),
    Row(
        "commit for a partition not its own",
        lambda g, v: commit(g, v, topic=ELSEWHERE),
        {9: "NONE"},
    ),
    Row(
        "commit for no partition",
        lambda g, v: commit(g, v, partition=9),
        {9: "UNKNOWN_TOPIC_OR_PARTITION"},
    ),
    Row(
        "fetch of a stranger",
        lambda g, v: fetch(g, v, member_id=STRANGER, member_epoch=g.epoch),
        {9: "UNKNOWN_MEMBER_ID"},
    ),
    Row(
        "fetch of an old epoch",
        lambda g, v: fetch(g, v, member_id=g.member, member_epoch=g.epoch - 1),
        {9: "STALE_MEMBER_EPOCH"},
    ),
    Row("deletion", lambda g, v: DeleteGroupsRequest(groups_names=[g.id]), {0: "NON_EMPTY_GROUP"}),
    Row("deletion of an offset in use", delete_offset, {0: "GROUP_SUBSCRIBED_TO_TOPIC"}),
    Row("classic heartbeat of a consumer", heartbeat, {0: "UNKNOWN_MEMBER_ID"}),
    Row("classic sync of a consumer", sync, {0: "UNKNOWN_MEMBER_ID"}),
    Row(
        "classic leave of a stranger", lambda g, v: leave(g, v, STRANGER), {0: "UNKNOWN_MEMBER_ID"}
    ),
    Row("classic join of a consumer", join, {0: "NONE"}),
    Row("classic join of a stranger", lambda g, v: join(g, v, member_id=STRANGER), {0: "NONE"}),
    Row(
        "classic join without an id",
        lambda g, v: join(g, v, member_id=""),
        {4: "MEMBER_ID_REQUIRED"},
    ),
    Row(
        "classic join as an instance that is there",
        lambda g, v: join(g, v, member_id="x", **FENCED),
        {5: "FENCED_INSTANCE_ID"},
    ),
    Row(
        "classic join of another type",
        lambda g, v: join(g, v, member_id="", protocol_type="connect"),
        {0: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "classic join without a protocol",
        lambda g, v: join(g, v, member_id="", protocols=[]),
        {0: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "classic description",
        lambda g, v: DescribeGroupsRequest(groups=[g.id]),
        {0: "NONE", 6: "GROUP_ID_NOT_FOUND"},
    ),
]

CONNECT = [
    Row("consumer joins", come, {0: "GROUP_ID_NOT_FOUND"}),
    Row("consumer heartbeat", consume, {0: "GROUP_ID_NOT_FOUND"}),
    Row(
        "classic join as a consumer",
        lambda g, v: join(g, v, member_id=""),
        {0: "INCONSISTENT_GROUP_PROTOCOL"},
    ),
    Row(
        "fetch with an epoch",
        lambda g, v: fetch(g, v, member_id=g.member, member_epoch=1),
        {9: "NONE"},
    ),
    Row("deletion of an offset", delete_offset, {0: "NON_EMPTY_GROUP"}),
]


# How a broker is asked


@asynccontextmanager
async def open_coordinator() -> AsyncIterator[Connection]:
    """Open a connection to the coordinator of all groups, where there is the topic, too."""
    if OTHER_BROKER is not None:
        ((host, port),) = parse_bootstrap(OTHER_BROKER)
        async with open_connection(host, port) as connection:
            await prepare(connection)
            yield connection
        return
    async with open_test_cluster(settings={"offsets.topic.num.partitions": "1"}) as cluster:
        ((host, port),) = parse_bootstrap(cluster.bootstrap)
        async with open_connection(host, port) as connection:
            await prepare(connection)
            yield connection


async def prepare(connection: Connection) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in (TOPIC, ELSEWHERE)
    ]
    await connection.request(CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    find = FindCoordinatorRequest(coordinator_keys=["g"])
    with trio.fail_after(30):
        while (await connection.request(find, FindCoordinatorResponse)).coordinators[0].error_code:
            await trio.sleep(0.1)


async def ask(connection: Connection, request: Message, version: int | None = None) -> Any:
    """Ask again while the coordinator loads its groups."""
    with trio.fail_after(30):
        while True:
            answer = await connection.request(request, response_class(request.API_KEY), version)
            if code_of(answer) not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            ):
                return answer
            await trio.sleep(0.1)


def code_of(answer: Any) -> ErrorCode:
    """Return the first error an answer has: of the whole, or of the one thing asked for."""
    code = getattr(answer, "error_code", 0)
    if code:
        return ErrorCode(code)
    for name in ("groups", "topics", "partitions", "members", "results"):
        for part in getattr(answer, name, None) or ():
            if hasattr(part, "__slots__"):
                code = code_of(part)
                if code:
                    return code
    return ErrorCode.NONE


async def no_group(connection: Connection) -> Group:
    """Return a name that no group has."""
    names = (TOPIC, ELSEWHERE)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    topics = (await connection.request(request, MetadataResponse)).topics
    return Group(f"group-{uuid4()}", {topic.name or "": topic.topic_id for topic in topics})


async def classic_group(connection: Connection, protocol_type: str = "consumer") -> Group:
    """Return a stable group whose one static member has replaced another."""
    group = await no_group(connection)
    options = {"protocol_type": protocol_type, "group_instance_id": INSTANCE}
    joined = await accepted(connection, join(group, 9, **options))
    first = group._replace(member=joined.member_id, epoch=joined.generation_id)
    assigned = struct.pack(">h", 0) + encode(ConsumerProtocolAssignment(), 0)
    assignment = SyncGroupRequestAssignment(member_id=first.member, assignment=assigned)
    await accepted(
        connection, sync(first, 5, protocol_type=protocol_type, assignments=[assignment])
    )
    again = await accepted(connection, join(group, 9, **options))
    assert again.generation_id == first.epoch
    return first._replace(member=again.member_id, replaced=first.member)


async def connect_group(connection: Connection) -> Group:
    """Return such a group whose members are no consumers."""
    return await classic_group(connection, "connect")


async def consumer_group(connection: Connection) -> Group:
    """Return a group of the consumer protocol whose one static member has replaced another.

    It is in its third epoch: each other subscription makes one.
    """
    group = await no_group(connection)
    first = await accepted(connection, come(group, 1, instance_id=INSTANCE))
    group = group._replace(replaced=first.member_id)
    gone = {"member_id": first.member_id, "member_epoch": -2, "instance_id": INSTANCE}
    await accepted(connection, consume(group, 1, **gone))
    found = await accepted(connection, come(group, 1, instance_id=INSTANCE))
    for names in ([TOPIC, "absent"], [TOPIC]):
        group = group._replace(member=found.member_id, epoch=found.member_epoch)
        found = await accepted(connection, consume(group, 1, subscribed_topic_names=names))
    assert found.member_epoch == first.member_epoch + 2
    return group._replace(epoch=found.member_epoch)


async def accepted(connection: Connection, request: Message) -> Any:
    """Return the answer to something nobody refuses, in the newest version of both."""
    answer = await ask(connection, request)
    assert code_of(answer) is ErrorCode.NONE, answer
    return answer


async def outcomes(
    connection: Connection, make: Callable[[Connection], Awaitable[Group]], rows: list[Row]
) -> dict[str, dict[int, str]]:
    """Ask everything of a table in every version that both sides have, each of a new group."""
    request = ApiVersionsRequest(client_software_name="table", client_software_version="1")
    served = {
        one.api_key: range(one.min_version, one.max_version + 1)
        for one in (await connection.request(request, ApiVersionsResponse)).api_keys
    }
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        group = await make(connection)
        api_key = row.ask(group, max(row.codes)).API_KEY
        for version in API[api_key].advertised:
            if version in served.get(api_key, ()) and version >= min(row.codes):
                group = await make(connection)
                answer = await ask(connection, row.ask(group, version), version)
                found.setdefault(row.name, {})[version] = code_of(answer).name
    return found


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (no_group, NOBODY),
        (classic_group, CLASSIC),
        (connect_group, CONNECT),
        (consumer_group, CONSUMER),
    ],
    ids=["nobody", "classic", "connect", "consumer"],
)
async def test_each_code_is_kafkas_in_every_version(
    make: Callable[[Connection], Awaitable[Group]], rows: list[Row]
) -> None:
    async with open_coordinator() as connection:
        found = await outcomes(connection, make, rows)
    assert found.keys() == {row.name for row in rows}
    wanted = {
        row.name: {version: row.expected(version) for version in found[row.name]} for row in rows
    }
    assert found == wanted
