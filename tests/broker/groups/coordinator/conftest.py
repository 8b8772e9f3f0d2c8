"""The group coordinator of one broker over real logs, with its clients."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.groups.group_apis import (
    register_group_apis,
)
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.replicas.partition import Partition
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.turn_end import TurnEnd
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
COMPACT = TopicConfig(cleanup_policy=("compact",))


class Rng:
    """Deals ids."""

    def __init__(self, world: Any) -> None:
        self.dealt = 0

    def uuid(self) -> int:
        self.dealt += 1
        return self.dealt


class CoordinatorBench:
    """One broker's coordinator and its handlers, over the partitions of `world`."""

    def __init__(self, world: Any, config: GroupConfig = CONFIG) -> None:
        self.world = world
        self.handlers: dict[int, Callable[..., Any]] = {}
        self.metadata = MetadataCache()
        self.turn_end = TurnEnd()
        self.coordinator = GroupCoordinator(
            config,
            local_id=NodeId(1),
            table=world.table,
            purgatory=world.purgatory,
            clock=world.clock,
            rng=Rng(world),  # type: ignore[arg-type]
            turn_end=self.turn_end,
        )
        register_group_apis(
            self,  # type: ignore[arg-type]
            config=config,
            coordinator=self.coordinator,
            metadata=self.metadata,
            transactions=world.coordinators,
            timeout_ms=700,
        )

    def register(self, api_key: int, handler: Callable[..., Any], **_: object) -> None:
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

    async def consumer_heartbeat(
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

    def code_of_commit(self, call: Any) -> ErrorCode:
        """Return the error code of a commit."""
        ((part,),) = [topic.partitions for topic in call.response(OffsetCommitResponse).topics]
        return ErrorCode(part.error_code)

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
        )


@asynccontextmanager
async def coordinated(
    world: Any, *, config: GroupConfig = CONFIG, **partition: Any
) -> AsyncIterator[tuple[CoordinatorBench, Partition]]:
    """Run a coordinator that leads the one partition of the offsets topic."""
    await world.add("orders")
    led = await world.add(OFFSETS_TOPIC, config=COMPACT, **partition)
    async with trio.open_nursery() as nursery:
        made = CoordinatorBench(world, config)
        nursery.start_soon(CoordinatorDriver(made.coordinator).run)
        await made.publish()
        yield made, led
        nursery.cancel_scope.cancel()


@pytest.fixture(name="coordinated")
def _coordinated() -> Callable[..., Any]:
    """Return a function that runs a coordinator for the length of a block."""
    return coordinated


@pytest.fixture
def make_coordinator() -> type[CoordinatorBench]:
    """Return the class of coordinator benches, for another one over the same partitions."""
    return CoordinatorBench
