"""Operators' requests about groups, replicas, settings and the cluster, against real brokers."""

from collections.abc import Sequence
from copy import copy
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
import trio

from ottla.client import (
    Admin,
    Append,
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ErrorCode,
    FeatureUpdateKind,
    GroupType,
    RefusedError,
    Subtract,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.admin_parts.admin_topics import TopicCalls
from ottla.client.network.cluster import Cluster
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.model.ids import NodeId
from ottla.model.settings.resources import ConfigSource
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
NODE = NodeId(1)


async def produce(bootstrap: str, count: int) -> None:
    async with open_producer(bootstrap) as producer:
        for _ in range(count):
            await producer.send("t", b"x", partition=0)


async def test_two_partitions_of_one_index_are_described_as_they_came(
    ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that names a partition twice, once without a leader, raises no TypeError."""
    await produce(ottla_cluster.bootstrap, 1)
    real = Cluster.metadata

    async def doubled(self: Cluster, topics: Sequence[str] | None = None) -> MetadataResponse:
        answer = await real(self, topics)
        for topic in answer.topics:
            topic.partitions += [copy(topic.partitions[0])]
            topic.partitions[-1].leader_id = -1
        return answer

    async with open_admin(ottla_cluster.bootstrap) as admin:
        monkeypatch.setattr(Cluster, "metadata", doubled)
        found = await admin.describe_topic("t")
    assert [one.partition for one in found.partitions].count(0) == 2


async def test_a_group_is_listed_described_and_deleted(ottla_cluster: ClusterUnderTest) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 3)
    config = ConsumerConfig(group_id="g", auto_offset_reset="earliest", client_id="reader")
    async with open_admin(bootstrap) as admin:
        assert await admin.list_groups() == []
        async with open_consumer(bootstrap, config) as consumer:
            consumer.subscribe(["t"])
            with trio.fail_after(60):
                await consumer.poll()
            (listed,) = await admin.list_groups()
            assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
            assert listed.coordinator == NODE
            assert await admin.list_groups_of(NODE, types=["classic"]) == [listed]
            assert await admin.list_groups(states=["Empty"]) == []
            described = await admin.describe_group("g")
            (member,) = described.members
            assert described.state == listed.state == "Stable"
            assert described.type is listed.type
            assert described.assignor
            assert (member.client_id, member.assignment) == ("reader", frozenset({A}))
            with pytest.raises(RefusedError) as refused:
                await admin.delete_group("g")
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        assert (await admin.describe_group("g")).state == "Empty"
        await admin.delete_group("g")
        assert await admin.list_groups() == []


async def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs(
    ottla_cluster: ClusterUnderTest,
) -> None:
    bootstrap = ottla_cluster.bootstrap
    await produce(bootstrap, 3)

    def read() -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        assert consumer.poll(10) is not None
        return consumer

    consumer = await trio.to_thread.run_sync(read)
    async with open_admin(bootstrap) as admin:
        described = await admin.describe_group("g")
        (listed,) = await admin.list_groups(types=[GroupType.CONSUMER])
        assert await admin.list_groups(types=[GroupType.CLASSIC]) == []
        await trio.to_thread.run_sync(consumer.close)
    (member,) = described.members
    assert listed.type is described.type is GroupType.CONSUMER
    assert (described.state, described.assignor) == ("Stable", "uniform")
    assert member.assignment == member.target == frozenset({A})
    assert described.group_epoch == described.assignment_epoch == member.member_epoch
    assert (member.type, member.topics, member.regex) == (GroupType.CONSUMER, ("t",), None)


async def test_there_is_nothing_to_describe_of_an_unknown_group(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        with pytest.raises(RefusedError) as refused:
            await admin.describe_group("unknown")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_of_a_group_are_set_read_and_deleted(ottla_cluster: ClusterUnderTest) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", partition_count=2)
        await admin.alter_group_offsets("g", {A: 5, B: 7})
        assert {at: one.offset for at, one in (await admin.group_offsets("g")).items()} == {
            A: 5,
            B: 7,
        }
        assert set(await admin.group_offsets("g", [B])) == {B}
        assert await admin.delete_group_offsets("g", [A]) == {A: ErrorCode.NONE}
        assert set(await admin.group_offsets("g")) == {B}
        (listed,) = await admin.list_groups(types=[GroupType.CLASSIC])
        assert listed.state == "Empty"


async def test_offsets_that_a_group_does_not_take_are_named_one_by_one(
    ottla_cluster: ClusterUnderTest,
) -> None:
    unknown = TopicPartition("t", 9)
    async with open_admin(ottla_cluster.bootstrap) as patient:
        await patient.create_topic("t", partition_count=1)
    await produce(ottla_cluster.bootstrap, 3)
    async with open_admin(ottla_cluster.bootstrap, timeout_s=1.0) as admin:
        config = ConsumerConfig(group_id="g", auto_offset_reset="earliest")
        async with open_consumer(ottla_cluster.bootstrap, config) as consumer:
            consumer.subscribe(["t"])
            with trio.fail_after(60):
                await consumer.poll()
            refused = await admin.try_alter_group_offsets("g", {A: 1})
        assert {at: one.code for at, one in refused.items()} == {A: ErrorCode.UNKNOWN_MEMBER_ID}
        with pytest.raises(RefusedError) as trouble:
            await admin.alter_group_offsets("g", {unknown: 1})
    assert trouble.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_of_several_topics_each_is_refused_or_done_on_its_own(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t")
        created = await admin.create_topics(["t", "u"], partition_count=2)
        grown = await admin.try_create_partitions({"u": 1, "t": 3}, is_rehearsal=True)
        deleted = await admin.delete_topics(["u", "none"])
        assert len((await admin.describe_topic("t")).partitions) == 1
    existing, made = created["t"], created["u"]
    assert isinstance(existing, RefusedError)
    assert "already exists" in existing.message
    assert made == (2, 1)
    assert grown["t"] is None
    assert grown["u"] is not None
    assert grown["u"].message != RefusedError(grown["u"].code).message, "the broker's own words"
    assert deleted["u"] is None
    assert deleted["none"] is not None
    assert deleted["none"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_settings_of_several_topics_are_asked_for_and_changed_by_one_request(
    ottla_cluster: ClusterUnderTest,
) -> None:
    there, gone = ConfigResource(ConfigKind.TOPIC, "t"), ConfigResource(ConfigKind.TOPIC, "gone")
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t")
        outcomes = await admin.try_alter_configs([there, gone], [("retention.bytes", "5000")])
        found = await admin.try_describe_configs([there, gone], keys=["retention.bytes"])
        entry = (await admin.describe_configs(there, has_synonyms=True))["retention.bytes"]
    assert outcomes[there] is None
    assert outcomes[gone] is not None
    assert isinstance(found[gone], RefusedError)
    settings = found[there]
    assert isinstance(settings, dict)
    assert {key: one.value for key, one in settings.items()} == {"retention.bytes": "5000"}
    assert (entry.default, entry.type) == ("-1", 5)


async def test_records_of_several_partitions_are_deleted_or_kept_each_on_its_own(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", partition_count=2)
        await produce(ottla_cluster.bootstrap, 3)
        outcomes = await admin.try_delete_records({A: 2, B: 9})
    assert outcomes[A] == 2
    kept = outcomes[B]
    assert isinstance(kept, RefusedError)
    assert kept.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_settings_are_appended_to_taken_from_and_replaced(
    ottla_cluster: ClusterUnderTest,
) -> None:
    topic = ConfigResource(ConfigKind.TOPIC, "t")

    async def own(admin: Admin) -> dict[str, str | None]:
        found = await admin.describe_configs(topic)
        return {key: e.value for key, e in found.items() if e.source is ConfigSource.TOPIC}

    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", configs={"retention.ms": "1000"})
        await admin.alter_configs(topic, {"cleanup.policy": Append("compact")})
        assert await own(admin) == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
        await admin.alter_configs(topic, {"cleanup.policy": Subtract("delete")})
        assert (await own(admin))["cleanup.policy"] == "compact"
        await admin.replace_configs(topic, {"segment.ms": "2000"}, is_rehearsal=True)
        await admin.replace_configs(topic, {"segment.ms": "3000"})
        assert await own(admin) == {"segment.ms": "3000"}


async def test_a_setting_tells_where_its_value_comes_from_and_what_it_means(
    ottla_cluster: ClusterUnderTest,
) -> None:
    topic = ConfigResource(ConfigKind.TOPIC, "t")
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("t", configs={"retention.bytes": "1000"})
        found = await admin.describe_configs(topic, has_synonyms=True, has_documentation=True)
        entry = found["retention.bytes"]
        brokers = await admin.broker_configs(NODE)
    assert entry.synonyms[0] == ("retention.bytes", "1000", ConfigSource.TOPIC)
    assert entry.synonyms[-1].source is ConfigSource.DEFAULT
    assert entry.documentation
    assert brokers["node.id"].is_read_only


async def test_log_directories_tell_what_lies_in_them(ottla_cluster: ClusterUnderTest) -> None:
    await produce(ottla_cluster.bootstrap, 10)
    async with open_admin(ottla_cluster.bootstrap) as admin:
        (found,) = await admin.describe_log_dirs(NODE, [A])
        assert found.error is ErrorCode.NONE
        assert found.usable_bytes
        assert set(found.replicas) == {A}
        assert found.replicas[A].size_bytes > 70
        assert not found.replicas[A].is_future
        assert set((await admin.describe_log_dirs(NODE))[0].replicas) >= {A}


async def test_a_leader_tells_of_the_producers_it_remembers(
    ottla_cluster: ClusterUnderTest,
) -> None:
    await produce(ottla_cluster.bootstrap, 3)
    async with open_admin(ottla_cluster.bootstrap) as admin:
        found = await admin.describe_producers([A])
    (producer,) = found[A]
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)
    assert producer.transaction_start is None


async def test_a_partition_moves_to_other_brokers_and_gets_its_preferred_leader() -> None:
    async with (
        open_test_cluster(broker_count=2) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic("t", partition_count=1, replication_factor=1)
        (before,) = (await admin.describe_topic("t")).partitions
        (old,) = before.replicas
        other = NodeId(3 - old)
        refused = await admin.alter_reassignments({TopicPartition("none", 0): [1]})
        assert refused == {TopicPartition("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        (unplaced,) = (await admin.try_alter_reassignments({A: [old, 9]})).values()
        assert unplaced is not None
        assert "9" in unplaced.message, "the broker's own words"
        assert [one.is_fenced for one in (await admin.describe_cluster()).brokers] == [False] * 2
        assert await admin.alter_reassignments({A: [other]}) == {A: ErrorCode.NONE}
        with trio.fail_after(60):
            while await admin.list_reassignments([A]):
                await trio.sleep(0.05)
            # The controller has ended the move; a broker knows of it a moment later.
            while (await admin.describe_topic("t")).partitions[0].replicas != (other,):
                await trio.sleep(0.05)
        assert await admin.list_reassignments() == {}
        assert await admin.elect_leaders([A]) == {A: ErrorCode.ELECTION_NOT_NEEDED}


async def test_the_quorum_and_the_features_are_described(ottla_cluster: ClusterUnderTest) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        quorum = await admin.describe_quorum()
        features = await admin.describe_features()
    (voter,) = quorum.voters
    assert voter.node == quorum.leader
    assert quorum.leader in quorum.addresses
    assert quorum.problems == ""
    assert 0 < quorum.high_watermark <= voter.end_offset
    assert NODE in {one.node for one in quorum.observers}
    metadata = features["metadata.version"]
    assert metadata.supported_min <= metadata.finalized <= metadata.supported_max


async def test_levels_of_features_are_changed_and_checked(ottla_cluster: ClusterUnderTest) -> None:
    name = "group.version"
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.update_features({name: 0}, kind=FeatureUpdateKind.SAFE_DOWNGRADE)
        await admin.update_features({name: 1}, is_dry_run=True)
        lowered = await admin.describe_features(NODE)
        with pytest.raises(RefusedError) as refusal:
            await admin.update_features({name: 1, "transaction.version": 9})
        await admin.update_features({name: 1})
        raised = await admin.describe_features()
    assert (lowered[name].finalized, raised[name].finalized) == (0, 1)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert "only supports versions 0-2" in refusal.value.message


async def test_changes_of_the_voters_are_refused_with_the_quorum_s_reason(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        (voter,) = (await admin.describe_quorum()).voters
        new, listeners = UUID(int=0xADD), {"CONTROLLER": ("localhost", 1)}
        for code, change in (
            (ErrorCode.VOTER_NOT_FOUND, admin.remove_voter(voter.node, voter.directory_id)),
            (ErrorCode.VOTER_NOT_FOUND, admin.remove_voter(999, new)),
            (ErrorCode.INVALID_REQUEST, admin.remove_voter(999, UUID(int=0))),
            (ErrorCode.DUPLICATE_VOTER, admin.add_voter(voter.node, new, listeners)),
            (ErrorCode.INVALID_REQUEST, admin.add_voter(999, new, {})),
            (ErrorCode.INVALID_REQUEST, admin.add_voter(999, new, {"L": ("", 1)})),
            (ErrorCode.REQUEST_TIMED_OUT, admin.add_voter(999, new, listeners)),
            (
                ErrorCode.REQUEST_TIMED_OUT,
                admin.add_voter(999, new, listeners, ack_when_committed=False),
            ),
        ):
            with pytest.raises(RefusedError) as caught:
                await change
            assert caught.value.code is code, caught.value
            assert caught.value.message
        assert [one.node for one in (await admin.describe_quorum()).voters] == [voter.node]


async def test_topics_of_an_old_broker_are_described_without_eligible_leaders() -> None:
    class OldCluster:
        async def request(self, request: Any, kind: Any) -> Any:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "no such request")

        async def version_of(self, api_key: int) -> int:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, "no such request")

        async def metadata(self, names: Any = None) -> MetadataResponse:
            partition = MetadataResponsePartition(partition_index=0, leader_id=-1)
            return MetadataResponse(
                topics=[
                    MetadataResponseTopic(name="t", partitions=[partition]),
                    MetadataResponseTopic(name="__internal"),
                ]
            )

    cluster: Any = OldCluster()
    calls = TopicCalls(cluster, client_id="c", timeout_s=1)
    topic = (await calls.describe_topics(["t"]))["t"]
    assert not isinstance(topic, RefusedError)
    assert [(one.leader, one.eligible) for one in topic.partitions] == [(None, None)]
    assert await calls.list_topic_names() == ["__internal", "t"]
