"""Validation of group APIs in every version, before any group is looked up."""

import random
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.groups.offsets.offset_apis import OFFSETS_PER_COST, OffsetApis
from ottla.broker.groups.offsets.offset_commit_api import COMMITS_PER_PIECE
from ottla.model.errors import ErrorCode
from ottla.node.network.steps import STEP_COST
from ottla.wire.apis import API, HEARTBEAT, JOIN_GROUP, OFFSET_FETCH, SYNC_GROUP, request_class
from ottla.wire.codec_examples import example
from ottla.wire.codec_types import Message
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.offset_delete_response import OffsetDeleteResponse
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.sync_group_request import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.sync_group_response import SyncGroupResponse

GROUP_KEYS = (8, 9, *range(11, 17), 28, 42, 47, 68, 69)
"""OffsetCommit to ConsumerGroupDescribe."""
EVERY_VERSION = [(key, version) for key in GROUP_KEYS for version in API[key].advertised]


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
async def test_every_version_is_answered_for_a_group_that_does_not_exist(
    world: Any, coordinated: Any, key: int, version: int
) -> None:
    request = request_class(key)()
    for name in ("group_id",):
        if hasattr(request, name):
            setattr(request, name, "g")
    for name in ("groups", "groups_names"):
        if hasattr(request, name) and not isinstance(request, OffsetFetchRequest):
            setattr(request, name, ["g"])
    async with coordinated(world) as (groups, _):
        call = await groups.ask(request, version)
        assert call.is_completed


@pytest.mark.parametrize(
    "request_",
    [
        JoinGroupRequest(session_timeout_ms=10_000),
        SyncGroupRequest(protocol_name="p", protocol_type="t"),
        HeartbeatRequest(),
    ],
)
async def test_a_group_without_a_name_is_refused(
    world: Any, coordinated: Any, request_: Message
) -> None:
    async with coordinated(world) as (groups, _):
        call = await groups.ask(request_)
        kinds = {
            JOIN_GROUP: JoinGroupResponse,
            SYNC_GROUP: SyncGroupResponse,
            HEARTBEAT: HeartbeatResponse,
        }
        answer: Any = call.response(kinds[request_.API_KEY])
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
async def test_a_session_that_is_too_short_or_too_long_is_refused(
    world: Any, coordinated: Any, session_ms: int
) -> None:
    async with coordinated(world) as (groups, _):
        request = groups.join_request()
        request.session_timeout_ms = session_ms
        answer = (await groups.ask(request)).response(JoinGroupResponse)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)],
)
async def test_a_commit_for_an_unknown_topic_is_refused(
    world: Any, coordinated: Any, version: int, code: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="absent", partitions=[part])
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        assert groups.code_of_commit(await groups.ask(request, version)) is code


async def test_offsets_are_fetched_by_topic_id_too(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(42)
        topic_id = world.table.image.topic_ids["orders"]
        for topics in (
            None,
            [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])],
        ):
            asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
            call = await groups.ask(OffsetFetchRequest(groups=[asked, asked]), OFFSET_FETCH + 1)
            for group in call.response(OffsetFetchResponse).groups:
                (found,) = group.topics
                assert found.topic_id == topic_id
                assert found.partitions[0].committed_offset == 42


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"group_id": "g" * 8_192}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "i" * 250}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 8_192}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": [JoinGroupRequestProtocol(name="p")] * 10_001},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"protocols": [JoinGroupRequestProtocol(name="p", metadata=bytes(2 << 20))]},
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        ({"protocol_type": "t" * 8_192}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": [JoinGroupRequestProtocol(name="p" * 8_192)]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_texts_that_no_record_could_hold_are_refused(
    world: Any, coordinated: Any, change: dict[str, Any], code: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        request = groups.join_request()
        for name, value in change.items():
            setattr(request, name, value)
        assert (await groups.ask(request)).response(JoinGroupResponse).error_code == code


async def test_lists_that_no_group_needs_are_refused(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        leaves = LeaveGroupRequest(group_id="g", members=[MemberIdentity()] * 10_001)
        left = (await groups.ask(leaves)).response(LeaveGroupResponse)
        assert left.error_code == ErrorCode.INVALID_REQUEST
        sync = SyncGroupRequest(
            group_id="g",
            protocol_type="t",
            protocol_name="p",
            assignments=[SyncGroupRequestAssignment()] * 10_001,
        )
        synced = (await groups.ask(sync)).response(SyncGroupResponse)
        assert synced.error_code == ErrorCode.INVALID_REQUEST


async def test_the_id_made_of_the_longest_instance_id_fits_into_every_answer(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, _):
        for version in range(5, 10):
            request = groups.join_request()
            request.group_id = f"g{version}"
            request.group_instance_id = "\N{GRINNING FACE}" * 249
            call = await groups.ask(request, version)
            answer = call.response(JoinGroupResponse)
            assert answer.error_code == ErrorCode.NONE
            assert answer.member_id.startswith(request.group_instance_id)
            sync = SyncGroupRequest(
                group_id=request.group_id,
                member_id=answer.member_id,
                group_instance_id=request.group_instance_id,
                generation_id=1,
                protocol_type="consumer",
                protocol_name="range",
            )
            synced = (await groups.ask(sync, 5)).response(SyncGroupResponse)
            assert synced.error_code == ErrorCode.NONE


class SeededRng(random.Random):
    """Chance that repeats itself."""

    def below(self, bound: int) -> int:
        return self.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128))


@pytest.mark.parametrize("key", GROUP_KEYS)
async def test_random_requests_of_every_version_are_answered_or_held(
    world: Any, coordinated: Any, make_coordinator: Any, key: int
) -> None:
    """No request breaks the coordinator, and another one can load the records that they wrote."""
    rng = SeededRng(key)
    async with coordinated(world) as (groups, _):
        await groups.commit(1)
        for version in API[key].advertised:
            for _ in range(30):
                request = example(request_class(key), version, rng)
                if rng.random() < 0.8:
                    tame(request)
                call = await groups.ask(request, version)
                assert call.is_completed or key in (JOIN_GROUP, SYNC_GROUP)
            world.pass_time(10_000)
            groups.coordinator.on_time(world.clock.now_ms)
        await groups.publish()
    async with trio.open_nursery() as nursery:
        after = make_coordinator(world)
        nursery.start_soon(CoordinatorDriver(after.coordinator).run)
        await after.publish()
        assert (await after.fetched("absent")) == (ErrorCode.NONE, -1)
        nursery.cancel_scope.cancel()


def tame(request: Any) -> None:
    """Let a random request get further than its first check."""
    for name, value in (
        ("group_id", "g"),
        ("session_timeout_ms", 10_000),
        ("protocol_type", "consumer"),
        ("member_id", ""),
        ("group_instance_id", None),
        ("generation_id_or_member_epoch", -1),
    ):
        if hasattr(request, name):
            setattr(request, name, value)
    for topic in getattr(request, "topics", None) or ():
        if hasattr(topic, "name"):
            topic.name = "orders"


async def test_a_group_and_a_partition_fetched_often_are_answered_once(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(42)
        topic = OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 0, 7] * 200)
        asked = OffsetFetchRequestGroup(group_id="g", topics=[topic] * 3)
        call = await groups.ask(OffsetFetchRequest(groups=[asked] * 4), 8)
        (group,) = call.response(OffsetFetchResponse).groups
        (found,) = group.topics
        assert [(one.partition_index, one.committed_offset) for one in found.partitions] == [
            (0, 42),
            (7, -1),
        ]


@pytest.mark.interpreted_only("its own class stands for a request's context")
def test_groups_of_many_offsets_are_collected_few_in_a_step() -> None:
    asked: list[str] = []

    class CoordinatorDouble:
        """Knows very many offsets of every group."""

        def perform(self, group_id: str, responder: Any, *_: Any, **__: Any) -> None:
            asked.append(group_id)
            responder([("orders", index, None) for index in range(STEP_COST * OFFSETS_PER_COST)])

    class Context:
        api_version = 8
        permissions = None

        @property
        def slot(self) -> Any:
            return self

        def complete_begun(self, _: Any) -> None:
            pass

    coordinator: Any = CoordinatorDouble()
    context: Any = Context()
    metadata: Any = None
    groups = [OffsetFetchRequestGroup(group_id=str(at), topics=None) for at in range(5)]
    steps = OffsetApis(coordinator, metadata)._fetch(context, OffsetFetchRequest(groups=groups))
    assert [len(asked) for _ in steps] == [1, 2, 3, 4, 5]


async def test_very_many_offsets_are_committed_piece_by_piece(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        parts = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
            for index in [0, 99] * COMMITS_PER_PIECE
        ]
        topic = OffsetCommitRequestTopic(name="orders", partitions=parts)
        request = OffsetCommitRequest(group_id="g", topics=[topic] * 2)
        call = await groups.ask(request, 9)
        topics = call.response(OffsetCommitResponse).topics
        assert [len(one.partitions) for one in topics] == [2 * COMMITS_PER_PIECE] * 2
        for one in topics:
            codes = {part.partition_index: part.error_code for part in one.partitions}
            assert codes == {0: 0, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_offsets_deleted_often_are_answered_once(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(42)
        parts = [OffsetDeleteRequestPartition(partition_index=index) for index in [0, 7, 0] * 400]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("orders", "x")]
        call = await groups.ask(OffsetDeleteRequest(group_id="g", topics=topics * 2))
        answered = call.response(OffsetDeleteResponse).topics
        assert [
            (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
            for topic in answered
        ] == [("orders", [(0, 0), (7, 0)]), ("x", [(0, 3), (7, 3)])]
