"""Cost of one client's request for the controller: counted in work, not in seconds."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.describe_quorum import PARTITIONS_MAX
from ottla.controller.replication import topics
from ottla.controller.replication.assignments import check_manual, place_more
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import EXPLAINED_MAX
from ottla.model.ids import METADATA_TOPIC
from ottla.wire.api import CostBounds
from ottla.wire.apis import API, INCREMENTAL_ALTER_CONFIGS
from ottla.wire.messages import describe_quorum_request as describe_quorum
from ottla.wire.messages import list_partition_reassignments_request as list_reassignments
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

NAMES_COUNT = 200


def new(name: str, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController()
    cluster.start(1, 2, 3)
    cluster.forward(CreateTopicsRequest(topics=[new(f"old.{at}") for at in range(NAMES_COUNT)]))
    return cluster


def test_new_names_are_held_against_all_others_once(
    cluster: InMemoryController, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: Counter[str] = Counter()
    look_through = PersistentMap.__iter__

    def counting(self: PersistentMap[Any, Any]) -> Iterator[Any]:
        looked["keys"] += len(self)
        return look_through(self)

    monkeypatch.setattr(PersistentMap, "__iter__", counting)
    asked = [new(f"new_{at}") for at in range(NAMES_COUNT)]
    answer: Any = cluster.forward(CreateTopicsRequest(topics=asked, validate_only=True))
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.NONE}
    assert looked["keys"] < 20 * NAMES_COUNT


def test_names_of_one_request_collide_with_each_other(cluster: InMemoryController) -> None:
    answer: Any = cluster.forward(CreateTopicsRequest(topics=[new("a.b"), new("a_b"), new("c.d")]))
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]


class CountedId(int):
    """A node id that counts how often it is compared."""

    compared_count = 0

    def __eq__(self, other: object) -> bool:
        CountedId.compared_count += 1
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


@pytest.mark.parametrize("is_repeated", [False, True])
def test_an_assignment_of_many_brokers_is_looked_through_once(
    cluster: InMemoryController, is_repeated: bool
) -> None:
    ids: Any = tuple(CountedId(at % 900 if is_repeated else at) for at in range(1, 2_000))
    CountedId.compared_count = 0
    with pytest.raises(RefusedError) as caught:
        check_manual(cluster.image, ids, None)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert CountedId.compared_count < 5 * len(ids)


def test_topics_that_would_grow_too_much_are_not_placed_first(
    cluster: InMemoryController, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[int] = []

    def counting(image: Any, grown: Any, partition_count: int, *rest: Any) -> Any:
        placed.append(partition_count)
        return place_more(image, grown, partition_count, *rest)

    monkeypatch.setattr(topics, "place_more", counting)
    asked = [
        CreatePartitionsTopic(name=f"old.{at}", count=4_001, assignments=None) for at in range(50)
    ]
    answer: Any = cluster.forward(CreatePartitionsRequest(topics=asked, validate_only=True))
    codes = Counter(topic.error_code for topic in answer.results)
    assert codes == {ErrorCode.NONE: 2, ErrorCode.POLICY_VIOLATION: 48}
    assert placed == [4_000, 4_000]


def test_a_request_that_places_too_many_replicas_is_refused(cluster: InMemoryController) -> None:
    answer: Any = cluster.forward(
        CreateTopicsRequest(topics=[new("wide", partitions=9_000, replicas=100)])
    )
    assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION


def test_a_request_of_too_many_changes_is_refused_as_a_whole(
    cluster: InMemoryController, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = API[INCREMENTAL_ALTER_CONFIGS]
    monkeypatch.setitem(API, row.key, replace(row, cost=CostBounds(records_max=10)))
    resources = [
        AlterConfigsResource(
            resource_type=2,
            resource_name=f"old.{at}",
            configs=[AlterableConfig(name="retention.ms", value="1")],
        )
        for at in range(11)
    ]
    with pytest.raises(RefusedError) as caught:
        cluster.forward(IncrementalAlterConfigsRequest(resources=resources))
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_what_is_asked_twice_is_answered_once(cluster: InMemoryController) -> None:
    """Four bytes of a request must not cost an answer of hundreds each."""
    twice = [TopicPartitions(topic="old.1", partitions=[0] * 50)] * 3
    elected: Any = cluster.forward(ElectLeadersRequest(election_type=0, topic_partitions=twice))
    (result,) = elected.replica_election_results
    assert [one.partition_id for one in result.partition_result] == [0]

    partition = describe_quorum.PartitionData(partition_index=0)
    topic = describe_quorum.TopicData(topic_name=METADATA_TOPIC, partitions=[partition] * 50)
    described: Any = cluster.forward(describe_quorum.DescribeQuorumRequest(topics=[topic] * 3))
    assert [len(one.partitions) for one in described.topics] == [1]

    moving = list_reassignments.ListPartitionReassignmentsTopics(
        name="old.1", partition_indexes=[0] * 50
    )
    listed: Any = cluster.forward(
        list_reassignments.ListPartitionReassignmentsRequest(topics=[moving] * 3)
    )
    assert listed.topics == []


def test_a_feature_named_twice_is_refused(cluster: InMemoryController) -> None:
    update = FeatureUpdateKey(
        feature="eligible.leader.replicas.version", max_version_level=1, upgrade_type=1
    )
    answer: Any = cluster.forward(UpdateFeaturesRequest(feature_updates=[update, update]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_partitions_that_are_not_there_are_explained_a_thousand_times_at_most(
    cluster: InMemoryController,
) -> None:
    asked = [TopicPartitions(topic="new", partitions=list(range(EXPLAINED_MAX + 10)))]
    answer: Any = cluster.forward(ElectLeadersRequest(election_type=0, topic_partitions=asked))
    (topic,) = answer.replica_election_results
    codes = {partition.error_code for partition in topic.partition_result}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    explained = [partition.error_message is not None for partition in topic.partition_result]
    assert explained == [True] * EXPLAINED_MAX + [False] * 10


def test_more_partitions_than_can_have_a_quorum_are_refused_at_once(
    cluster: InMemoryController,
) -> None:
    partitions = [
        describe_quorum.PartitionData(partition_index=at) for at in range(PARTITIONS_MAX + 1)
    ]
    topic = describe_quorum.TopicData(topic_name=METADATA_TOPIC, partitions=partitions)
    with pytest.raises(RefusedError, match="Only __cluster_metadata-0") as refused:
        cluster.forward(describe_quorum.DescribeQuorumRequest(topics=[topic]))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
