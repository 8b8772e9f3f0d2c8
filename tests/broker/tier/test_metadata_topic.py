"""The metadata topic of a real cluster, as a broker writes and reads it."""

import pytest
import trio

from ottla.broker.tier.metadata_topic import REMOTE_METADATA_TOPIC
from ottla.broker.tier.metadata_topic_driver import MetadataTopic
from ottla.broker.tier.tier_alarms import TierAlarms
from ottla.client.admin import open_admin
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicIdPartition
from ottla.model.settings.storage.tier import TierConfig
from ottla.node.clock_driver import RealClock
from ottla.storage.tier.remote_segment import RemoteSegmentRemoval, RemoteSegmentState
from ottla.wire.messages.create_topics_request import CreatableTopic
from tests.broker.tier.remote_segments import PARTITION, TOPIC_ID, segment, update

TIMEOUT_S = 60
SETTINGS = TierConfig(
    metadata_partition_count=2,
    metadata_replication_factor=1,
    metadata_min_isr=1,
)


class Reader:
    """A reader and writer of the metadata topic in a task of its own."""

    def __init__(self, cluster: ClusterUnderTest, nursery: trio.Nursery) -> None:
        host, _, port = cluster.bootstrap.partition(",")[0].rpartition(":")
        self._cluster = cluster
        self.attempts: list[CreatableTopic] = []
        self.topic = MetadataTopic(
            SETTINGS,
            address=lambda: (host, int(port)),
            create_topic=self._create,
            clock=RealClock(),
            alarms=TierAlarms(),
        )
        nursery.start_soon(self.topic.run)
        nursery.start_soon(self._follow)

    async def _create(self, topic: CreatableTopic) -> None:
        self.attempts.append(topic)
        if len(self.attempts) == 1:
            raise RefusedError(ErrorCode.NOT_CONTROLLER, "no controller")
        async with open_admin(self._cluster.bootstrap) as admin:
            await admin.create_topic(
                topic.name,
                partition_count=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs={each.name: each.value or "" for each in topic.configs},
            )

    async def _follow(self) -> None:
        (broker,) = self._cluster.brokers.values()
        while True:
            self.topic.on_image(broker.core.metadata.image)
            await trio.sleep(0.05)


async def test_records_are_read_back_by_their_writer_and_by_later_readers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, trio.open_nursery() as nursery:
            writer = Reader(cluster, nursery).topic
            writer.assign(PARTITION)
            assert list((await writer.wait_ready(PARTITION)).all_segments()) == []
            first, second = segment(1, 0, 9), segment(2, 10, 19)
            for record in (
                first,
                update(first, RemoteSegmentState.COPY_FINISHED),
                second,
                update(second, RemoteSegmentState.DELETE_STARTED),
                RemoteSegmentRemoval(second.id),
            ):
                await writer.write("orders", record)
            found = writer.metadata_of(PARTITION)
            assert found is not None
            assert [each.id for each in found.all_segments()] == [first.id]

            reader = Reader(cluster, nursery).topic
            reader.assign(PARTITION)
            found = await reader.wait_ready(PARTITION)
            assert [(each.id, each.state.name) for each in found.all_segments()] == [
                (first.id, "COPY_FINISHED")
            ]
            # Partitions that are added later are loaded beside those that are loaded.
            others = [TopicIdPartition(TOPIC_ID, index) for index in (1, 2)]
            for other in others:
                third = segment(3 + other.partition, 0, 5, partition=other)
                writer.assign(other)
                await writer.wait_ready(other)
                await writer.write("orders", third)
                reader.assign(other)
                found = await reader.wait_ready(other)
                assert [each.id for each in found.all_segments()] == [third.id]
            assert reader.states.refused_count == writer.states.refused_count == 0
            # A reader without tiered partitions waits silently, and continues with the next one.
            for partition in (PARTITION, *others):
                reader.unassign(partition)
            await trio.sleep(0.1)
            reader.assign(PARTITION)
            assert len(list((await reader.wait_ready(PARTITION)).all_segments())) == 1
            assert "without a subscription" not in caplog.text
            nursery.cancel_scope.cancel()


async def test_without_a_tiered_partition_nothing_is_created() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, trio.open_nursery() as nursery:
            idle = Reader(cluster, nursery)
            await trio.sleep(0)
            async with open_admin(cluster.bootstrap) as admin:
                topics = await admin.list_topics()
            assert REMOTE_METADATA_TOPIC not in topics
            assert idle.attempts == []
            nursery.cancel_scope.cancel()
