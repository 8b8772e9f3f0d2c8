"""The coordinator over real logs: what is acknowledged is committed, and the next leader has it."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.broker.groups.coordinator_driver import GroupCoordinator
from ottla.broker.groups.group_apis import (
    CONSUMER_GROUP_HEARTBEAT,
    GROUP_API_KEYS,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    register_group_apis,
)
from ottla.broker.groups.placement import OFFSETS_TOPIC
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.partition import Partition
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.topic import TopicConfig
from ottla.wire.apis import API, request_class
from ottla.wire.batch import batches
from ottla.wire.codec_examples import example
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
COMPACT = TopicConfig(cleanup_policy=("compact",))


class Rng:
    """Deals ids."""

    def __init__(self, world: Any) -> None:
        self.dealt = 0

    def uuid(self) -> int:
        self.dealt += 1
        return self.dealt


class Coordinated:
    """One broker's coordinator and its handlers, over the partitions of `world`."""

    def __init__(self, world: Any, config: GroupConfig = CONFIG) -> None:
        self.world = world
        self.handlers: dict[int, Callable[..., Any]] = {}
        self.metadata = MetadataCache()
        self.coordinator = GroupCoordinator(
            config,
            local_id=NodeId(1),
            table=world.table,
            purgatory=world.purgatory,
            clock=world.clock,
            rng=Rng(world),  # type: ignore[arg-type]
            on_flush_due=world.flushes_due.append,
        )
        register_group_apis(
            self,  # type: ignore[arg-type]
            config=config,
            coordinator=self.coordinator,
            metadata=self.metadata,
        )

    def register(self, api_key: int, handler: Callable[..., Any]) -> None:
        self.handlers[api_key] = handler

    async def publish(self) -> None:
        image = self.world.table.image
        self.metadata.image = replace(image, features=PersistentMap({"group.version": 1}))
        await self.coordinator.publish(MetadataDelta.between(self.coordinator.image, image), image)
        await trio.testing.wait_all_tasks_blocked()

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Call a handler, and let the turn end."""
        highest = API[request.API_KEY].latest_stable
        call = self.world.call(request.API_KEY, highest if version is None else version)
        self.world.run(self.handlers[request.API_KEY], call, request)
        await trio.testing.wait_all_tasks_blocked()
        return call

    async def beat(
        self, member_id: str, epoch: int, *, regex: str | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat of the consumer protocol, which joins with epoch 0."""
        is_joining = epoch == 0
        call = await self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000 if is_joining else -1,
                subscribed_topic_names=["orders"] if is_joining else None,
                subscribed_topic_regex=regex,
                topic_partitions=[] if is_joining else None,
            )
        )
        answer: ConsumerGroupHeartbeatResponse = call.response(ConsumerGroupHeartbeatResponse)
        return answer

    async def commit(self, offset: int, *, group_id: str = "g", version: int = 9) -> Any:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name="orders", partitions=[part])
        return await self.ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), version)

    async def fetched(self, group_id: str = "g") -> tuple[ErrorCode, int]:
        topic = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        call = await self.ask(OffsetFetchRequest(group_id=group_id, topics=[topic]), 7)
        answer = call.response(OffsetFetchResponse)
        offsets = [one.committed_offset for found in answer.topics for one in found.partitions]
        return ErrorCode(answer.error_code), *offsets


def code_of_commit(call: Any) -> ErrorCode:
    ((part,),) = [topic.partitions for topic in call.response(OffsetCommitResponse).topics]
    return ErrorCode(part.error_code)


@asynccontextmanager
async def coordinated(
    world: Any, *, config: GroupConfig = CONFIG, **partition: Any
) -> AsyncIterator[tuple[Coordinated, Partition]]:
    """Run a coordinator that leads the one partition of the offsets topic."""
    await world.add("orders")
    led = await world.add(OFFSETS_TOPIC, config=COMPACT, **partition)
    async with trio.open_nursery() as nursery:
        made = Coordinated(world, config)
        nursery.start_soon(made.coordinator.run)
        await made.publish()
        yield made, led
        nursery.cancel_scope.cancel()


def replicate(world: Any, partition: Partition, follower: int = 2) -> None:
    """Let a follower have all there is."""
    assert partition.log is not None
    if partition.on_follower_fetch(
        NodeId(follower),
        end_offset=partition.log.end_offset,
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    ):
        world.purgatory.wake(partition.high_watermark_key)


async def test_a_commit_is_answered_when_all_in_sync_replicas_have_it(world: Any) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        call = await groups.commit(42)
        assert not call.is_completed
        replicate(world, led)
        assert code_of_commit(call) is ErrorCode.NONE
        assert await groups.fetched() == (ErrorCode.NONE, 42)


async def test_a_commit_that_is_not_replicated_in_time_is_not_acknowledged(world: Any) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        call = await groups.commit(42)
        world.pass_time(CONFIG.offsets_commit_timeout_ms)
        assert code_of_commit(call) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        replicate(world, led)
        assert await groups.fetched() == (ErrorCode.NONE, 42), "it is committed after all"


async def test_a_commit_is_refused_at_once_while_too_few_replicas_are_in_sync(world: Any) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        led.apply_config(TopicConfig(min_insync_replicas=2), 0)
        led.isr = frozenset((NodeId(1),))
        call = await groups.commit(42)
        assert code_of_commit(call) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert led.log is not None
        assert led.log.end_offset == 0


async def test_commits_of_one_turn_are_one_batch(world: Any) -> None:
    async with coordinated(world) as (groups, led):
        calls = []
        for number in range(5):
            call = world.call(OFFSET_COMMIT, 9)
            part = OffsetCommitRequestPartition(partition_index=0, committed_offset=number)
            topic = OffsetCommitRequestTopic(name="orders", partitions=[part])
            request = OffsetCommitRequest(group_id=f"g{number}", topics=[topic])
            world.run(groups.handlers[OFFSET_COMMIT], call, request)
            calls.append(call)
        await trio.testing.wait_all_tasks_blocked()
        assert [code_of_commit(call) for call in calls] == [ErrorCode.NONE] * 5
        assert led.log is not None
        read = led.log.read(
            Offset(0), bytes_max=1_000_000, end_offset=led.log.end_offset, at_least_one=True
        )
        assert read.slice is not None
        (found,) = batches(read.slice.read())
        assert found[1].record_count == 5


async def test_the_next_leader_finds_what_was_committed(world: Any) -> None:
    async with coordinated(world) as (groups, _):
        for offset in range(200):
            await groups.commit(offset)
            await groups.commit(offset, group_id="other")
    async with trio.open_nursery() as nursery:
        after = Coordinated(world)
        nursery.start_soon(after.coordinator.run)
        image = world.table.image
        after.metadata.image = image
        await after.coordinator.publish(MetadataDelta(image), image)
        assert await_code(after) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.testing.wait_all_tasks_blocked()
        assert await after.fetched() == (ErrorCode.NONE, 199)
        assert await after.fetched("other") == (ErrorCode.NONE, 199)
        nursery.cancel_scope.cancel()


def await_code(groups: Coordinated) -> ErrorCode:
    """Ask for the groups without letting a turn end."""
    call = groups.world.call(HEARTBEAT, 4)
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    groups.world.run(groups.handlers[HEARTBEAT], call, request)
    listed = groups.world.call(LIST_GROUPS, 5)
    groups.world.run(groups.handlers[LIST_GROUPS], listed, ListGroupsRequest())
    code = call.response(HeartbeatResponse).error_code
    assert listed.response(ListGroupsResponse).error_code == code
    return ErrorCode(code)


async def test_a_deposed_leader_sends_everybody_away(world: Any) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        request = join_request()
        joined = (await groups.ask(request, 3)).response(JoinGroupResponse)
        part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        sync = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=joined.member_id, assignments=[part]
        )
        waiting_sync = await groups.ask(sync, 4)
        held_join = await groups.ask(request, 3)
        waiting_commit = await groups.commit(1, group_id="simple")
        state = world.state(replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1)
        world.know(OFFSETS_TOPIC, state)
        led.apply(state, COMPACT, world.clock.now_ms)
        world.purgatory.wake(led.high_watermark_key)
        await groups.publish()
        moved = ErrorCode.NOT_COORDINATOR
        assert waiting_sync.response(SyncGroupResponse).error_code == moved
        assert held_join.response(JoinGroupResponse).error_code == moved
        assert code_of_commit(waiting_commit) is moved
        assert code_of_commit(await groups.commit(2)) is moved
        assert (await groups.fetched())[0] is moved


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )


async def test_what_could_not_be_appended_is_not_remembered(world: Any) -> None:
    async with coordinated(world) as (groups, led):
        await groups.commit(1)
        assert led.log is not None
        roomy = led.log.config
        led.log.config = replace(roomy, segment_bytes=100)
        assert code_of_commit(await groups.commit(2)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        led.log.config = roomy
        assert await groups.fetched() == (ErrorCode.NONE, 1)
        assert code_of_commit(await groups.commit(3)) is ErrorCode.NONE


async def test_a_log_that_lies_makes_no_coordinator(world: Any) -> None:
    led = await world.add(OFFSETS_TOPIC)
    records = world.batch(b"a record without a key")
    led.append_of_coordinator(bytes(records), now_ms=world.clock.wall_ms(), mono_ms=0)
    async with trio.open_nursery() as nursery:
        groups = Coordinated(world)
        nursery.start_soon(groups.coordinator.run)
        await groups.publish()
        assert (await groups.fetched())[0] is ErrorCode.NOT_COORDINATOR
        (problem,) = groups.coordinator.problems()
        assert problem == (
            "the groups of __consumer_offsets-0 cannot be loaded: "
            "a record of __consumer_offsets has no key"
        )
        assert groups.coordinator.metrics()["groups.partitions.loading"] == 0
        nursery.cancel_scope.cancel()


async def test_offsets_of_a_deleted_topic_are_forgotten(world: Any) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(5)
        before = world.table.image
        after = replace(
            before,
            topics=before.topics.delete(before.topic_ids["orders"]),
            topic_ids=before.topic_ids.delete("orders"),
        )
        world.table.image = groups.metadata.image = after
        await groups.coordinator.publish(MetadataDelta.between(before, after), after)
        await trio.testing.wait_all_tasks_blocked()
        assert await groups.fetched() == (ErrorCode.NONE, -1)


EVERY_VERSION = [
    (key, version) for key in sorted(GROUP_API_KEYS) for version in API[key].advertised
]


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
async def test_every_version_is_answered_for_a_group_that_does_not_exist(
    world: Any, key: int, version: int
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
async def test_a_group_without_a_name_is_refused(world: Any, request_: Message) -> None:
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
    world: Any, session_ms: int
) -> None:
    request = join_request()
    request.session_timeout_ms = session_ms
    async with coordinated(world) as (groups, _):
        answer = (await groups.ask(request)).response(JoinGroupResponse)
        assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)],
)
async def test_a_commit_for_a_topic_nobody_knows_is_refused(
    world: Any, version: int, code: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="nobody's", partitions=[part])
        request = OffsetCommitRequest(group_id="g", topics=[topic])
        assert code_of_commit(await groups.ask(request, version)) is code


async def test_offsets_are_fetched_by_topic_id_too(world: Any) -> None:
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
        ({"group_instance_id": "i" * 8_192}, ErrorCode.INVALID_REQUEST),
        ({"protocol_type": "t" * 8_192}, ErrorCode.INVALID_REQUEST),
        (
            {"protocols": [JoinGroupRequestProtocol(name="p" * 8_192)]},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_texts_that_no_record_could_hold_are_refused(
    world: Any, change: dict[str, Any], code: ErrorCode
) -> None:
    request = join_request()
    for name, value in change.items():
        setattr(request, name, value)
    async with coordinated(world) as (groups, _):
        assert (await groups.ask(request)).response(JoinGroupResponse).error_code == code


class SeededRng(random.Random):
    """Chance that repeats itself."""

    def below(self, bound: int) -> int:
        return self.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128))


@pytest.mark.parametrize("key", sorted(GROUP_API_KEYS))
async def test_random_requests_of_every_version_are_answered_or_held(world: Any, key: int) -> None:
    """Whatever comes, nothing breaks, and another coordinator can take over what was written."""
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
            groups.coordinator._on_time(world.clock.now_ms)
        await groups.publish()
    async with trio.open_nursery() as nursery:
        after = Coordinated(world)
        nursery.start_soon(after.coordinator.run)
        await after.publish()
        assert (await after.fetched("nobody")) == (ErrorCode.NONE, -1)
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


async def test_a_coordinator_that_is_only_becoming_one_says_so(world: Any) -> None:
    """The metadata is here, its logs are being made: to look elsewhere would cost seconds."""
    await world.add(OFFSETS_TOPIC, is_log_there=False)
    groups = Coordinated(world)
    assert (await groups.fetched())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.know(OFFSETS_TOPIC, world.state(replicas=(1, 2), leader=2))
    assert (await groups.fetched())[0] is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("pauses_ms", "code"),
    [
        ([30_000], ErrorCode.NONE),
        ([500] * 30, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_broker_that_stood_still_ends_no_session_but_silence_does(
    world: Any, pauses_ms: list[int], code: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        joined = (await groups.ask(join_request(), 3)).response(JoinGroupResponse)
        for pause_ms in pauses_ms:
            world.clock.now_ms += pause_ms
            groups.coordinator._on_time(world.clock.now_ms)
            groups.coordinator._next_deadline_ms()
        beat = HeartbeatRequest(group_id="g", member_id=joined.member_id, generation_id=1)
        assert (await groups.ask(beat)).response(HeartbeatResponse).error_code == code


# ---- the consumer protocol


def count_of(answer: ConsumerGroupHeartbeatResponse) -> int | None:
    """Return how many partitions a member was given; None when it was told nothing."""
    if answer.assignment is None:
        return None
    return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)


async def test_a_consumer_is_told_of_topics_that_are_made_and_grow(world: Any) -> None:
    async with coordinated(world) as (groups, _):
        assert count_of(await groups.beat("a", 0, regex="log-.*")) == 1
        world.know("orders", world.state(), 1)
        world.know("log-1", world.state())
        world.know("other", world.state())
        await groups.publish()
        assert count_of(await groups.beat("a", 1)) == 3
        metrics = groups.coordinator.metrics()
        assert metrics["groups.consumer.members"] == 1
        assert metrics["groups.consumer.rebalances"] == 2


async def test_with_many_topics_a_regex_is_resolved_meanwhile(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.groups.topic_view.AT_ONCE_COUNT", 1)
    async with coordinated(world) as (groups, _):
        assert count_of(await groups.beat("a", 0, regex="__consumer.*")) == 1
        assert count_of(await groups.beat("a", 1)) == 2


async def test_consumers_go_on_with_the_next_leader(world: Any) -> None:
    async with coordinated(world) as (groups, _):
        await groups.beat("a", 0)
        await groups.beat("b", 0)
    async with trio.open_nursery() as nursery:
        after = Coordinated(world)
        nursery.start_soon(after.coordinator.run)
        await after.publish()
        assert (await after.beat("b", 2)).error_code == ErrorCode.NONE
        assert (await after.beat("c", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        nursery.cancel_scope.cancel()


async def test_a_heartbeat_is_answered_when_all_in_sync_replicas_have_it(world: Any) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        call = await groups.ask(request)
        assert not call.is_completed
        replicate(world, led)
        assert call.response(ConsumerGroupHeartbeatResponse).member_epoch == 1


async def test_consumers_need_the_group_version_and_the_protocol(world: Any) -> None:
    async with coordinated(world) as (groups, _):
        groups.metadata.image = world.table.image
        answer = await groups.beat("a", 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        classic = Coordinated(world, replace(CONFIG, rebalance_protocols=("classic",)))
        classic.metadata.image = replace(
            world.table.image, features=PersistentMap({"group.version": 1})
        )
        call = world.call(CONSUMER_GROUP_HEARTBEAT, 1)
        world.run(classic.handlers[CONSUMER_GROUP_HEARTBEAT], call, ConsumerGroupHeartbeatRequest())
        code = call.response(ConsumerGroupHeartbeatResponse).error_code
        assert code == ErrorCode.UNSUPPORTED_VERSION
