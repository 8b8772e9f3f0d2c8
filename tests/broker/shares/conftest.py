"""Share requests at the partitions of one broker, with a share persister in memory."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.coordinators.share_persister import SharePartitionKey
from ottla.broker.shares.led_share import DeliveryPorts
from ottla.broker.shares.share_apis import ShareApis
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.wire.apis import SHARE_ACKNOWLEDGE, SHARE_FETCH
from ottla.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch_request import AcknowledgementBatch as FetchAcknowledgement
from ottla.wire.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from ottla.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse
from tests.broker.share_state.memory_share_persister import MemorySharePersister

World = Any  # the class of the `world` fixture
Acks = dict[tuple[str, int], list[tuple[int, int, list[int]]]]


class ShareBench:
    """ShareFetch and ShareAcknowledge over the partitions of a `world`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.persister = MemorySharePersister()
        self.settings = ShareGroupSettings(offset_reset="earliest")
        self.is_enabled = True
        self.apis = ShareApis(
            table=world.table,
            ports=DeliveryPorts(
                persister=lambda: self.persister,
                purgatory=world.purgatory,
                clock=world.clock,
                settings_of=lambda group_id: self.settings,
            ),
            session_count_max=3,
            is_enabled=lambda: self.is_enabled,
            cold_reads=world.fetch_api.cold_reads,
            remote_fetches=world.fetch_api.remote_fetches,
            fetch_bytes_max=50_000_000,
        )

    async def add(self, topic: str = "t", *, start_offset: int = 0, **changes: Any) -> Any:
        """Add a partition that group g has initialised."""
        partition = await self.world.add(topic, **changes)
        self.initialize(partition, start_offset=start_offset)
        return partition

    def key(self, partition: Any, group_id: str = "g") -> SharePartitionKey:
        return SharePartitionKey(group_id, partition.topic_id, partition.index)

    def initialize(
        self, partition: Any, *, start_offset: int = 0, state_epoch: int = 1, group_id: str = "g"
    ) -> None:
        self.persister.initialize(
            self.key(partition, group_id),
            state_epoch=state_epoch,
            start_offset=start_offset,
            on_done=lambda code: None,
        )

    def topic_id(self, topic: str) -> UUID:
        found: UUID = self.world.table.image.topic_ids.get(topic, UUID(int=99))
        return found

    def fetch(
        self,
        *names: tuple[str, int],
        epoch: int,
        member_id: str = "m",
        acks: Acks | None = None,
        forgotten: tuple[tuple[str, int], ...] = (),
        version: int = 2,
        **changes: Any,
    ) -> Any:
        """Send a ShareFetch, and return the call."""
        acks = acks or {}
        values = {
            "group_id": "g",
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **changes,
        }
        request = ShareFetchRequest(
            member_id=member_id,
            share_session_epoch=epoch,
            topics=[
                FetchTopic(
                    topic_id=self.topic_id(topic),
                    partitions=[
                        FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                FetchAcknowledgement(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in acks.get((topic, index), ())
                            ],
                        )
                    ],
                )
                for topic, index in {**dict.fromkeys(names), **dict.fromkeys(acks)}
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=self.topic_id(topic), partitions=[index])
                for topic, index in forgotten
            ],
            **values,
        )
        call = self.world.call(SHARE_FETCH, version)
        return self.world.run(self.apis.fetch.handle, call, request)

    def acknowledge(
        self, acks: Acks, *, epoch: int, member_id: str = "m", is_renew_ack: bool = False
    ) -> Any:
        """Send a ShareAcknowledge, and return the call."""
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=member_id,
            share_session_epoch=epoch,
            is_renew_ack=is_renew_ack,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id(topic),
                    partitions=[
                        AcknowledgePartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in ranges
                            ],
                        )
                    ],
                )
                for (topic, index), ranges in acks.items()
            ],
        )
        call = self.world.call(SHARE_ACKNOWLEDGE, 2)
        return self.world.run(self.apis.acknowledge.handle, call, request)

    def append(self, partition: Any, *values: bytes) -> None:
        partition.append(
            self.world.batch(*values), acks=1, now_ms=self.world.clock.wall_ms(), mono_ms=1_000
        )


def parts(call: Any) -> list[PartitionData]:
    """Return the partitions of a response, and assert that it is no error."""
    response: ShareFetchResponse = call.response(ShareFetchResponse)
    assert response.error_code == 0
    return [part for topic in response.responses for part in topic.partitions]


def acquired(call: Any) -> list[tuple[int, int, int]]:
    """Return the acquired ranges of a response."""
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for part in parts(call)
        for one in part.acquired_records
    ]


def code_of(call: Any) -> int:
    """Return the error code of a whole ShareFetch response."""
    code: int = call.response(ShareFetchResponse).error_code
    return code


def ack_codes(call: Any) -> list[int]:
    """Return the error codes of the partitions of a ShareAcknowledge response."""
    response: ShareAcknowledgeResponse = call.response(ShareAcknowledgeResponse)
    assert response.error_code == 0
    return [part.error_code for topic in response.responses for part in topic.partitions]


@pytest.fixture
def bench(world: World) -> Iterator[ShareBench]:
    yield ShareBench(world)
