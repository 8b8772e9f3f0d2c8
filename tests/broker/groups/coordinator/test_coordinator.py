"""The coordinator over real logs: acknowledged changes are committed, and the next leader has
them."""

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinators.log_replay import LogReplay
from ottla.broker.coordinators.shard_coordinator import RELOAD_MS_FIRST, RELOAD_MS_MAX
from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.groups.shard import GroupShard
from ottla.broker.replicas.partition import Partition
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.apis import CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, LIST_GROUPS, OFFSET_COMMIT
from ottla.wire.batch import batches
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.delete_groups_response import DeleteGroupsResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.list_groups_request import ListGroupsRequest
from ottla.wire.messages.list_groups_response import ListGroupsResponse
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse
from ottla.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.messages.sync_group_response import SyncGroupResponse

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)


def replicate(world: Any, partition: Partition, follower: int = 2) -> None:
    """Let a follower have all there is."""
    assert partition.log is not None
    partition.on_follower_fetch(
        NodeId(follower),
        end_offset=partition.log.end_offset,
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )


async def test_a_commit_is_answered_when_all_in_sync_replicas_have_it(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        call = await groups.commit(42)
        assert not call.is_completed
        replicate(world, led)
        assert groups.code_of_commit(call) is ErrorCode.NONE
        assert await groups.fetched() == (ErrorCode.NONE, 42)


async def test_a_commit_that_is_not_replicated_in_time_is_not_acknowledged(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        call = await groups.commit(42)
        world.pass_time(CONFIG.offsets_commit_timeout_ms)
        assert groups.code_of_commit(call) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        replicate(world, led)
        assert await groups.fetched() == (ErrorCode.NONE, 42), "it is committed after all"


async def test_a_commit_is_refused_at_once_while_too_few_replicas_are_in_sync(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        led.apply_config(TopicConfig(min_insync_replicas=2), 0)
        led.isr = frozenset((NodeId(1),))
        call = await groups.commit(42)
        assert groups.code_of_commit(call) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert led.log is not None
        assert led.log.end_offset == 0


async def test_commits_of_one_turn_are_one_batch(world: Any, coordinated: Any) -> None:
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
        assert [groups.code_of_commit(call) for call in calls] == [ErrorCode.NONE] * 5
        assert led.log is not None
        read = led.log.read(
            Offset(0), bytes_max=1_000_000, end_offset=led.log.end_offset, at_least_one=True
        )
        assert read.slice is not None
        (found,) = batches(read.slice.read())
        assert found[1].record_count == 5


async def test_commits_of_a_turn_that_serves_requests_are_written_and_answered_at_its_end(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, led):
        assert led.log is not None
        groups.turn_end.begin()
        calls = [commit_now(groups, offset) for offset in (3, 1, 2)]
        assert not any(call.is_completed for call in calls)
        assert led.log.end_offset == 0
        groups.turn_end.end(UnexpectedErrors())
        assert [groups.code_of_commit(call) for call in calls] == [ErrorCode.NONE] * 3
        assert led.log.end_offset == 3
        assert await groups.fetched() == (ErrorCode.NONE, 2), "the last of the group counts"


async def test_commits_of_a_turn_whose_log_fails_are_refused_and_forgotten(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, led):
        await groups.commit(1)
        groups.turn_end.begin()
        calls = [commit_now(groups, offset) for offset in (2, 3)]
        assert led.log is not None
        roomy = led.log.config
        led.log.config = replace(roomy, segment_bytes=100)
        groups.turn_end.end(UnexpectedErrors())
        codes = [groups.code_of_commit(call) for call in calls]
        assert codes == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 2
        led.log.config = roomy
        await trio.testing.wait_all_tasks_blocked()
        assert await groups.fetched() == (ErrorCode.NONE, 1)


async def test_a_coordinator_that_is_deposed_within_a_turn_writes_nothing_of_it(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, led):
        assert led.log is not None
        groups.turn_end.begin()
        call = commit_now(groups, 2)
        groups.coordinator._resign(groups.coordinator._led[0])
        groups.turn_end.end(UnexpectedErrors())
        assert groups.code_of_commit(call) is ErrorCode.NOT_COORDINATOR
        assert led.log.end_offset == 0


def commit_now(groups: Any, offset: int) -> Any:
    """Commit without letting a turn end."""
    call = groups.world.call(OFFSET_COMMIT, 9)
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[part])
    request = OffsetCommitRequest(group_id="g", topics=[topic])
    groups.world.run(groups.handlers[OFFSET_COMMIT], call, request)
    return call


async def test_the_next_leader_finds_what_was_committed(
    world: Any, coordinated: Any, make_coordinator: Any
) -> None:
    async with coordinated(world) as (groups, _):
        for offset in range(200):
            await groups.commit(offset)
            await groups.commit(offset, group_id="other")
    async with trio.open_nursery() as nursery:
        after = make_coordinator(world)
        nursery.start_soon(CoordinatorDriver(after.coordinator).run)
        image = world.table.image
        after.metadata.image = image
        await after.coordinator.publish(MetadataDelta(image), image)
        assert await_code(after) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await trio.testing.wait_all_tasks_blocked()
        assert await after.fetched() == (ErrorCode.NONE, 199)
        assert await after.fetched("other") == (ErrorCode.NONE, 199)
        nursery.cancel_scope.cancel()


def await_code(groups: Any) -> ErrorCode:
    """Ask for the groups without letting a turn end."""
    call = groups.world.call(HEARTBEAT, 4)
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    groups.world.run(groups.handlers[HEARTBEAT], call, request)
    listed = groups.world.call(LIST_GROUPS, 5)
    groups.world.run(groups.handlers[LIST_GROUPS], listed, ListGroupsRequest())
    code = call.response(HeartbeatResponse).error_code
    assert listed.response(ListGroupsResponse).error_code == code
    return ErrorCode(code)


async def test_a_deposed_leader_sends_everybody_away(world: Any, coordinated: Any) -> None:
    async with coordinated(world, replicas=(1, 2)) as (groups, led):
        request = groups.join_request()
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
        led.apply(state, TopicConfig(cleanup_policy=("compact",)), world.clock.now_ms)
        await groups.publish()
        moved = ErrorCode.NOT_COORDINATOR
        assert waiting_sync.response(SyncGroupResponse).error_code == moved
        assert held_join.response(JoinGroupResponse).error_code == moved
        assert groups.code_of_commit(waiting_commit) is moved
        assert groups.code_of_commit(await groups.commit(2)) is moved
        assert (await groups.fetched())[0] is moved


async def test_what_could_not_be_appended_is_not_remembered(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (groups, led):
        await groups.commit(1)
        assert led.log is not None
        roomy = led.log.config
        led.log.config = replace(roomy, segment_bytes=100)
        assert groups.code_of_commit(await groups.commit(2)) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        led.log.config = roomy
        assert await groups.fetched() == (ErrorCode.NONE, 1)
        assert groups.code_of_commit(await groups.commit(3)) is ErrorCode.NONE


@pytest.mark.interpreted_only("replaces a method")
async def test_a_shard_on_a_full_disk_is_loaded_again_seldom_and_serves_when_there_is_room(
    world: Any, coordinated: Any, autojump_clock: trio.testing.MockClock
) -> None:
    append = Partition.append_of_coordinator
    tries: list[float] = []
    is_full = False

    def append_if_room(partition: Partition, *arguments: Any, **options: Any) -> Any:
        tries.append(trio.current_time())
        if is_full:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")
        return append(partition, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "append_of_coordinator", append_if_room)
        async with coordinated(world) as (groups, _):
            await groups.commit(1)
            # What is loaded has something to write each time: the topic of its offsets is gone.
            image = groups.metadata.image
            gone = replace(image, topic_ids=image.topic_ids.delete("orders"))
            is_full = True
            tries.clear()
            groups.coordinator.image = gone
            assert groups.code_of_commit(await groups.commit(2)) is ErrorCode.NOT_COORDINATOR
            await trio.sleep(60)
            assert 3 < len(tries) < 20
            is_full = False
            await trio.sleep(RELOAD_MS_MAX / 1_000 + 1)
            assert await groups.fetched() == (ErrorCode.NONE, -1)
            tries.clear()
            await trio.sleep(60)
            assert not tries


async def test_offsets_of_a_deleted_topic_are_forgotten(world: Any, coordinated: Any) -> None:
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


async def test_a_coordinator_that_is_only_becoming_one_says_so(
    world: Any, make_coordinator: Any
) -> None:
    """The metadata is here, its logs are being made: to look elsewhere would cost seconds."""
    await world.add(OFFSETS_TOPIC, is_log_there=False)
    groups = make_coordinator(world)
    assert (await groups.fetched())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.know(OFFSETS_TOPIC, world.state(replicas=(1, 2), leader=2))
    assert (await groups.fetched())[0] is ErrorCode.NOT_COORDINATOR


async def test_version_1_says_an_error_of_the_whole_in_each_of_very_many_partitions(
    world: Any, make_coordinator: Any
) -> None:
    await world.add(OFFSETS_TOPIC, is_log_there=False)
    groups = make_coordinator(world)
    topic = OffsetFetchRequestTopic(name="orders", partition_indexes=list(range(3_000)))
    call = await groups.ask(OffsetFetchRequest(group_id="g", topics=[topic]), 1)
    (found,) = call.response(OffsetFetchResponse).topics
    assert [one.partition_index for one in found.partitions] == list(range(3_000))
    codes = {one.error_code for one in found.partitions}
    assert codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.mark.parametrize(
    ("pauses_ms", "code"),
    [
        ([30_000], ErrorCode.NONE),
        ([500] * 30, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_broker_that_stood_still_ends_no_session_but_silence_does(
    world: Any, coordinated: Any, pauses_ms: list[int], code: ErrorCode
) -> None:
    async with coordinated(world) as (groups, _):
        joined = (await groups.ask(groups.join_request(), 3)).response(JoinGroupResponse)
        for pause_ms in pauses_ms:
            world.clock.now_ms += pause_ms
            groups.coordinator.on_time(world.clock.now_ms)
            groups.coordinator.next_deadline_ms()
        consumer_heartbeat = HeartbeatRequest(
            group_id="g", member_id=joined.member_id, generation_id=1
        )
        assert (await groups.ask(consumer_heartbeat)).response(HeartbeatResponse).error_code == code


# ---- the consumer protocol


def count_of(answer: ConsumerGroupHeartbeatResponse) -> int | None:
    """Return the number of partitions assigned to a member, or None if it got no assignment."""
    if answer.assignment is None:
        return None
    return sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)


async def test_a_consumer_is_assigned_topics_that_are_created_and_grow(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (groups, _):
        assert count_of(await groups.consumer_heartbeat("a", 0, regex="log-.*")) == 1
        world.know("orders", world.state(), 1)
        world.know("log-1", world.state())
        world.know("other", world.state())
        await groups.publish()
        assert count_of(await groups.consumer_heartbeat("a", 1)) == 3
        metrics = groups.coordinator.metrics()
        assert metrics["groups.consumer.members"] == 1
        assert metrics["groups.consumer.rebalances"] == 2


async def test_with_many_topics_a_regex_is_resolved_meanwhile(
    world: Any, coordinated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.groups.consumer.topic_view.SLICE_COST", 1)
    async with coordinated(world) as (groups, _):
        assert count_of(await groups.consumer_heartbeat("a", 0, regex="__consumer.*")) == 1
        assert count_of(await groups.consumer_heartbeat("a", 1)) == 2


async def test_consumers_go_on_with_the_next_leader(
    world: Any, coordinated: Any, make_coordinator: Any
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.consumer_heartbeat("a", 0)
        await groups.consumer_heartbeat("b", 0)
    async with trio.open_nursery() as nursery:
        after = make_coordinator(world)
        nursery.start_soon(CoordinatorDriver(after.coordinator).run)
        await after.publish()
        assert (await after.consumer_heartbeat("b", 2)).error_code == ErrorCode.NONE
        assert (await after.consumer_heartbeat("c", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        nursery.cancel_scope.cancel()


async def test_a_heartbeat_is_answered_when_all_in_sync_replicas_have_it(
    world: Any, coordinated: Any
) -> None:
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


async def test_consumers_need_the_group_version_and_the_protocol(
    world: Any, coordinated: Any, make_coordinator: Any
) -> None:
    async with coordinated(world) as (groups, _):
        groups.metadata.image = world.table.image
        answer = await groups.consumer_heartbeat("a", 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        classic = make_coordinator(world, replace(CONFIG, rebalance_protocols=("classic",)))
        classic.metadata.image = replace(
            world.table.image, features=PersistentMap({"group.version": 1})
        )
        call = world.call(CONSUMER_GROUP_HEARTBEAT, 1)
        world.run(classic.handlers[CONSUMER_GROUP_HEARTBEAT], call, ConsumerGroupHeartbeatRequest())
        code = call.response(ConsumerGroupHeartbeatResponse).error_code
        assert code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_unexpected_error_ends_one_request_and_no_group(
    world: Any,
    coordinated: Any,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(7)
        held = await groups.ask(groups.join_request(), 3)
        monkeypatch.setattr(GroupShard, "delete_group", lambda *_: 1 // 0)
        call = await groups.ask(DeleteGroupsRequest(groups_names=["other"]), 2)
        (result,) = call.response(DeleteGroupsResponse).results
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert held.is_completed
        await trio.sleep(RELOAD_MS_FIRST / 1_000 + 1)
        assert await groups.fetched() == (ErrorCode.NONE, 7)
        assert groups.code_of_commit(await groups.commit(8)) is ErrorCode.NONE


@pytest.mark.interpreted_only("replaces a method")
async def test_an_unexpected_error_refuses_the_earlier_commits_of_its_turn(
    world: Any,
    coordinated: Any,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with coordinated(world) as (groups, led):
        monkeypatch.setattr(GroupShard, "delete_group", lambda *_: 1 // 0)
        groups.turn_end.begin()
        calls = [commit_now(groups, offset) for offset in (1, 2)]
        await groups.ask(DeleteGroupsRequest(groups_names=["other"]), 2)
        groups.turn_end.end(UnexpectedErrors())
        codes = [groups.code_of_commit(call) for call in calls]
        assert codes == [ErrorCode.NOT_COORDINATOR] * 2
        assert led.log is not None
        assert led.log.end_offset == 0
        await trio.sleep(RELOAD_MS_FIRST / 1_000 + 1)
        assert await groups.fetched() == (ErrorCode.NONE, -1)


@pytest.mark.interpreted_only("replaces a method")
async def test_an_unexpected_error_in_a_timer_ends_no_coordinator(
    world: Any,
    coordinated: Any,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(7)
        with monkeypatch.context() as patched:
            patched.setattr(GroupShard, "on_topics", lambda *_: 1 // 0)
            await world.add("more")
            await groups.publish()
        await trio.sleep(RELOAD_MS_FIRST / 1_000 + 1)
        assert await groups.fetched() == (ErrorCode.NONE, 7)


@pytest.mark.interpreted_only("replaces a method")
async def test_an_unexpected_error_in_a_log_write_answers_every_waiting_request(
    world: Any,
    coordinated: Any,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(7)
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "append_of_coordinator", lambda *_, **__: 1 // 0)
            call = await groups.commit(8)
        assert groups.code_of_commit(call) is ErrorCode.UNKNOWN_SERVER_ERROR
        await trio.sleep(RELOAD_MS_FIRST / 1_000 + 1)
        assert await groups.fetched() == (ErrorCode.NONE, 7)
        assert groups.code_of_commit(await groups.commit(9)) is ErrorCode.NONE


@pytest.mark.interpreted_only("replaces a method")
async def test_an_unexpected_error_while_groups_resume_is_a_visible_problem(
    world: Any, coordinated: Any, make_coordinator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinated(world) as (groups, _):
        await groups.commit(7)
        monkeypatch.setattr(GroupShard, "resume_in_steps", lambda *_: 1 // 0)
        async with trio.open_nursery() as nursery:
            later = make_coordinator(world)
            nursery.start_soon(CoordinatorDriver(later.coordinator).run)
            await later.publish()
            assert (await later.fetched())[0] is ErrorCode.NOT_COORDINATOR
            (problem,) = later.coordinator.problems()
            assert problem.endswith("cannot be loaded: integer division or modulo by zero")
            nursery.cancel_scope.cancel()


async def test_groups_are_loaded_again_once_their_log_can_be_read(
    world: Any,
    coordinated: Any,
    make_coordinator: Any,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A broker without a free file descriptor stays leader: nothing else would load them."""

    async def refuse(replay: LogReplay) -> None:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "too many open files")

    async with coordinated(world) as (groups, _):
        await groups.commit(7)
        async with trio.open_nursery() as nursery:
            with monkeypatch.context() as patched:
                patched.setattr(LogReplay, "replay_part", refuse)
                later = make_coordinator(world)
                nursery.start_soon(CoordinatorDriver(later.coordinator).run)
                await later.publish()
                await trio.sleep(10 * RELOAD_MS_FIRST / 1_000)
                assert (await later.fetched())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                (problem,) = later.coordinator.problems()
                assert problem.endswith(
                    "cannot be loaded yet: KAFKA_STORAGE_ERROR: too many open files"
                )
            await trio.sleep(RELOAD_MS_MAX / 1_000)
            assert await later.fetched() == (ErrorCode.NONE, 7)
            assert not list(later.coordinator.problems())
            nursery.cancel_scope.cancel()
