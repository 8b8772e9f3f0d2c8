"""Operators' requests against a real broker."""

import pytest

from ottla.client import ErrorCode, RefusedError, TopicPartition, open_admin, open_producer
from ottla.client.testing import ClusterUnderTest

A = TopicPartition("t", 0)


async def test_a_topic_from_its_creation_to_its_end(ottla_cluster: ClusterUnderTest) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", partition_count=2, configs={"retention.ms": "1000"})
        assert await admin.list_topics() == ["t"]
        described = await admin.describe_topic("t")
        assert [(one.partition, one.leader, one.replicas) for one in described.partitions] == [
            (0, 1, (1,)),
            (1, 1, (1,)),
        ]
        await admin.create_partitions("t", 3)
        assert len((await admin.describe_topic("t")).partitions) == 3
        await admin.delete_topic("t")
        with pytest.raises(RefusedError) as refused:
            await admin.describe_topic("t")
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_are_described_together_with_eligible_leaders(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("a", partition_count=2)
        await admin.create_topic("b", partition_count=2)
        assert await admin.list_topic_names() == ["a", "b"]
        found = await admin.describe_topics(["b", "a", "none"])
        refused = found.pop("none")
        assert isinstance(refused, RefusedError)
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for name, topic in found.items():
            assert not isinstance(topic, RefusedError)
            assert topic.name == name
            assert [one.eligible for one in topic.partitions] == [(), ()]
            assert topic.topic_id == (await admin.describe_topic(name)).topic_id
        for count, complete in ((1, {"a": False}), (2, {"a": True}), (3, {"a": True, "b": False})):
            cut = await admin.describe_topics(["a", "b"], partition_count_max=count)
            known = {
                name: topic.is_complete
                for name, topic in cut.items()
                if not isinstance(topic, RefusedError)
            }
            assert known == complete
        assert await admin.describe_topics([]) == {}


async def test_a_rehearsal_creates_nothing_and_says_what_would_be_refused(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", partition_count=2, is_rehearsal=True)
        assert await admin.list_topics() == []
        with pytest.raises(RefusedError) as refused:
            await admin.create_topic("no spaces", is_rehearsal=True)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_settings_are_read_changed_and_given_back(ottla_cluster: ClusterUnderTest) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t")
        before = (await admin.topic_configs("t"))["retention.ms"]
        await admin.alter_topic_configs("t", {"retention.ms": "5000"})
        assert (await admin.topic_configs("t"))["retention.ms"].value == "5000"
        await admin.alter_topic_configs("t", {"retention.ms": None})
        assert (await admin.topic_configs("t"))["retention.ms"] == before
        with pytest.raises(RefusedError) as refused:
            await admin.alter_topic_configs("t", {"retention.ms": "soon"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_a_cluster_says_who_it_is(ottla_cluster: ClusterUnderTest) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        described = await admin.describe_cluster()
    (broker,) = described.brokers
    assert f"{broker.host}:{broker.port}" == ottla_cluster.bootstrap
    assert described.cluster_id == ottla_cluster.brokers[broker.node].cluster_id


async def test_records_are_deleted_up_to_an_offset(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        for _ in range(5):
            await producer.send("t", b"x")
    async with open_admin(ottla_cluster.bootstrap) as admin:
        assert await admin.delete_records({A: 3}) == {A: 3}
        found = await admin.list_offsets({A: -2})
        assert found[A].offset == 3
        assert await admin.delete_records({A: -1}) == {A: 5}
