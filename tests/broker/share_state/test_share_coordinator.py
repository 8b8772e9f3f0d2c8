"""The share coordinator over real logs: requests, replication, failover, pruning."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.coordinators.share_persister import SharePartitionKey, ShareState, StateBatch
from ottla.broker.replicas.partition import Partition
from ottla.broker.share_state.local_share_persister import LocalSharePersister
from ottla.broker.share_state.pruning_driver import ShareStatePruner
from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.broker.share_state.share_state_apis import ShareStateApis
from ottla.metadata.delta import MetadataDelta
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.model.settings.share_state import ShareStateConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.wire.apis import API, response_class
from ottla.wire.codec_types import Message
from ottla.wire.messages import delete_share_group_state_request as deleted
from ottla.wire.messages import initialize_share_group_state_request as initialized
from ottla.wire.messages import read_share_group_state_request as states
from ottla.wire.messages import read_share_group_state_summary_request as summaries
from ottla.wire.messages import write_share_group_state_request as written

World = Any  # the class of the `world` fixture, in conftest.py
E = ErrorCode


class ShareStatesHere:
    """One broker's share coordinator and its handlers, over the partitions of `world`."""

    def __init__(self, world: World, config: ShareStateConfig) -> None:
        self.world = world
        self.handlers: dict[int, Callable[..., Any]] = {}
        self.coordinator = ShareCoordinator(
            config,
            local_id=NodeId(1),
            table=world.table,
            purgatory=world.purgatory,
            clock=world.clock,
        )
        self.persister = LocalSharePersister(self.coordinator)
        ShareStateApis(self.coordinator).register(self)  # type: ignore[arg-type]

    def register(self, api_key: int, handler: Callable[..., Any]) -> None:
        self.handlers[api_key] = handler

    async def publish(self) -> None:
        image = self.world.table.image
        await self.coordinator.publish(MetadataDelta.between(self.coordinator.image, image), image)
        await trio.testing.wait_all_tasks_blocked()

    async def call(self, request: Message) -> Any:
        """Send a request, and return its call once the turn has ended."""
        call = self.world.call(request.API_KEY, API[request.API_KEY].highest)
        self.world.run(self.handlers[request.API_KEY], call, request)
        await trio.testing.wait_all_tasks_blocked()
        return call

    async def ask(self, request: Message) -> list[Any]:
        """Return the results of all partitions in a response."""
        call = await self.call(request)
        response = call.response(response_class(request.API_KEY))
        return [result for topic in response.results for result in topic.partitions]


@asynccontextmanager
async def running(world: World, config: ShareStateConfig) -> AsyncIterator[ShareStatesHere]:
    """Run a coordinator over the partitions of `world`."""
    here = ShareStatesHere(world, config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CoordinatorDriver(here.coordinator).run)
        await here.publish()
        yield here
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def coordinated(
    world: World, state: ShareStateConfig | None = None, **partition: Any
) -> AsyncIterator[tuple[ShareStatesHere, Partition]]:
    """Run a coordinator that leads the one partition of the share states."""
    await world.add("orders")
    led = await world.add(SHARE_STATE_TOPIC, **partition)
    async with running(world, state or ShareStateConfig()) as here:
        yield here, led


def topic_id(world: World, name: str = "orders") -> UUID:
    found: UUID = world.table.image.topic_ids[name]
    return found


def initialize(world: World, *partitions: int, **changes: Any) -> Message:
    fields = {"state_epoch": 1, "start_offset": 0, **changes}
    return initialized.InitializeShareGroupStateRequest(
        group_id="g",
        topics=[
            initialized.InitializeStateData(
                topic_id=topic_id(world),
                partitions=[
                    initialized.PartitionData(partition=index, **fields)
                    for index in partitions or (0,)
                ],
            )
        ],
    )


def write(world: World, *batches: StateBatch, group_id: str = "g", **changes: Any) -> Message:
    fields = {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, **changes}
    return written.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=[
            written.WriteStateData(
                topic_id=topic_id(world),
                partitions=[
                    written.PartitionData(
                        partition=0,
                        state_batches=[written.StateBatch(**one._asdict()) for one in batches],
                        **fields,
                    )
                ],
            )
        ],
    )


def read(world: World, leader_epoch: int = 0) -> Message:
    return states.ReadShareGroupStateRequest(
        group_id="g",
        topics=[
            states.ReadStateData(
                topic_id=topic_id(world),
                partitions=[states.PartitionData(partition=0, leader_epoch=leader_epoch)],
            )
        ],
    )


def read_summary(world: World) -> Message:
    return summaries.ReadShareGroupStateSummaryRequest(
        group_id="g",
        topics=[
            summaries.ReadStateSummaryData(
                topic_id=topic_id(world), partitions=[summaries.PartitionData(partition=0)]
            )
        ],
    )


def delete(world: World) -> Message:
    return deleted.DeleteShareGroupStateRequest(
        group_id="g",
        topics=[
            deleted.DeleteStateData(
                topic_id=topic_id(world), partitions=[deleted.PartitionData(partition=0)]
            )
        ],
    )


def codes(results: list[Any]) -> list[int]:
    return [result.error_code for result in results]


async def test_the_five_requests_create_read_change_and_delete_a_state(world: World) -> None:
    async with coordinated(world) as (here, _):
        assert codes(await here.ask(initialize(world, start_offset=-1))) == [0]
        assert codes(await here.ask(write(world, StateBatch(3, 5, 2, 1), start_offset=3))) == [0]
        (state,) = await here.ask(read(world, leader_epoch=4))
        assert (state.error_code, state.error_message) == (0, None)
        assert (state.state_epoch, state.start_offset) == (1, 3)
        (batch,) = state.state_batches
        assert (batch.first_offset, batch.last_offset, batch.delivery_state) == (3, 5, 2)
        (summary,) = await here.ask(read_summary(world))
        assert (summary.leader_epoch, summary.start_offset) == (4, 3)
        (refused,) = await here.ask(write(world, leader_epoch=3))
        assert refused.error_code == E.FENCED_LEADER_EPOCH
        assert codes(await here.ask(delete(world))) == [0]
        (state,) = await here.ask(read(world, leader_epoch=4))
        assert state.error_code == E.INVALID_REQUEST
        assert state.error_message == "The share partition is not initialized yet."


async def test_each_partition_of_a_request_has_its_own_outcome(world: World) -> None:
    async with coordinated(world) as (here, _):
        results = await here.ask(initialize(world, 0, 7, -1))
        assert [(one.partition, one.error_code) for one in results] == [
            (0, 0),
            (7, E.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, E.INVALID_REQUEST),
        ]


async def test_a_request_with_many_partitions_is_answered_in_steps(world: World) -> None:
    async with coordinated(world) as (here, _):
        results = await here.ask(initialize(world, *range(500)))
        assert [one.partition for one in results] == list(range(500))
        assert codes(results) == [0] + [E.UNKNOWN_TOPIC_OR_PARTITION] * 499
        assert results[1].error_message is None, "a usual message would multiply the response"


async def test_a_request_without_group_is_answered_empty(world: World) -> None:
    async with coordinated(world) as (here, _):
        assert await here.ask(write(world, group_id=" ")) == []
        (refused,) = await here.ask(write(world, group_id="g" * 9_000))
        assert refused.error_code == E.INVALID_GROUP_ID


async def test_an_answer_waits_until_its_record_is_committed(world: World) -> None:
    async with coordinated(world, replicas=(1, 2)) as (here, led):
        call = await here.call(initialize(world))
        summary = await here.call(read_summary(world))
        assert not call.is_completed
        assert not summary.is_completed, "a state that may be truncated is not shown"
        assert led.log is not None
        led.on_follower_fetch(
            NodeId(2),
            end_offset=led.log.end_offset,
            log_start_offset=Offset(0),
            broker_epoch=10,
            now_ms=world.clock.now_ms,
        )
        assert call.is_completed
        assert summary.is_completed


async def test_a_write_that_is_not_replicated_in_time_is_answered_as_unavailable(
    world: World,
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (here, _):
        call = await here.call(initialize(world))
        world.pass_time(4_999)
        assert not call.is_completed
        world.pass_time(1)
        response = call.response(response_class(83))
        (result,) = response.results[0].partitions
        assert result.error_code == E.COORDINATOR_NOT_AVAILABLE


async def test_the_next_coordinator_has_the_same_states(world: World) -> None:
    async with coordinated(world) as (here, _):
        await here.ask(initialize(world))
        for offset in range(5):
            await here.ask(write(world, StateBatch(offset, offset, 2, offset % 2 + 1)))
        (before,) = await here.ask(read(world, leader_epoch=2))
    async with running(world, ShareStateConfig()) as after:
        (found,) = await after.ask(read(world, leader_epoch=2))
        assert found == before
        assert codes(await after.ask(write(world, leader_epoch=1))) == [E.FENCED_LEADER_EPOCH]


async def test_a_broker_that_does_not_lead_refuses(world: World) -> None:
    await world.add("orders")
    await world.add(SHARE_STATE_TOPIC, replicas=(2,), leader=2)
    async with running(world, ShareStateConfig()) as here:
        assert codes(await here.ask(initialize(world))) == [E.NOT_COORDINATOR]
        found: list[Any] = []
        key = SharePartitionKey("g", topic_id(world), 0)
        here.persister.read(key, leader_epoch=0, on_done=found.append)
        here.persister.delete(key, on_done=found.append)
        assert found == [ShareState(E.NOT_COORDINATOR), E.NOT_COORDINATOR]


async def test_the_state_of_a_deleted_topic_is_deleted_now_or_at_the_next_load(
    world: World,
) -> None:
    async with coordinated(world) as (here, led):
        await here.ask(initialize(world))
        request = read_summary(world)
        image = world.table.image
        gone = topic_id(world)
        without = type(image)(
            brokers=image.brokers,
            topics=image.topics.delete(gone),
            topic_ids=image.topic_ids.delete("orders"),
        )
        world.table.image = without
        async with running(world, ShareStateConfig()) as after:
            (shard,) = after.coordinator.shards()
            assert not shard.states
        await here.publish()
        (shard,) = here.coordinator.shards()
        await trio.testing.wait_all_tasks_blocked()
        assert not shard.states
        assert codes(await here.ask(request)) == [E.UNKNOWN_TOPIC_OR_PARTITION]
        assert led.log is not None
        assert led.log.end_offset == 3, "a snapshot, and a tombstone of each coordinator"


@pytest.mark.parametrize("updates", [0, 2])
async def test_redundant_records_are_deleted(world: World, updates: int) -> None:
    config = ShareStateConfig(updates_per_snapshot=updates)
    async with coordinated(world, config) as (here, led):
        pruner = ShareStatePruner(here.coordinator)
        await here.ask(initialize(world))
        for offset in range(6):
            await here.ask(write(world, StateBatch(2 * offset, 2 * offset, 2, 1)))
        (before,) = await here.ask(read(world))
        assert led.log is not None
        assert led.log.log_start_offset == 0
        await pruner.prune()
        assert led.log.log_start_offset == 6
        assert here.coordinator.pruned_ends == {0: 6}
        await pruner.prune()
        assert led.log.log_start_offset == 6
        async with running(world, config) as after:
            (found,) = await after.ask(read(world))
            assert found == before


async def test_too_few_replicas_refuse_a_write_and_not_a_summary(world: World) -> None:
    config = TopicConfig(min_insync_replicas=2)
    async with coordinated(world, config=config, replicas=(1, 2)) as (here, led):
        state = world.state(replicas=(1, 2), isr=(1,), partition_epoch=1)
        led.apply(state, config, world.clock.now_ms)
        assert codes(await here.ask(initialize(world))) == [E.COORDINATOR_NOT_AVAILABLE]
        assert codes(await here.ask(read_summary(world))) == [0]
        assert codes(await here.ask(read(world))) == [E.INVALID_REQUEST]
