"""Topics made, grown and deleted, with the answers admin clients know from Kafka."""

from uuid import UUID

import pytest

from ottla.controller.replication.topics import check_topic_name
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.controller import ControllerConfig
from ottla.wire.codec import decode, encode
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController(
        config=ControllerConfig(
            num_partitions=2, default_replication_factor=3, topic_defaults={"segment.ms": "5000"}
        )
    )
    cluster.start(1, 2, 3)
    return cluster


def topic(
    name: str = "a",
    partition_count: int = 1,
    replication_factor: int = 1,
    *,
    assigned: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assigned or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def create(
    cluster: InMemoryController,
    *topics: CreatableTopic,
    validate_only: bool = False,
    version: int = 7,
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    reply = cluster.forward(request, version)
    assert isinstance(reply, CreateTopicsResponse)
    return decode(CreateTopicsResponse, version, encode(reply, version)).topics


@pytest.mark.parametrize("version", CreateTopicsRequest.VERSIONS)
def test_a_topic_is_created_in_every_version(cluster: InMemoryController, version: int) -> None:
    [result] = create(cluster, topic("a", 3, 2), version=version)

    created = cluster.image.topic("a")
    assert created is not None
    assert (result.name, result.error_code) == ("a", 0)
    assert len(created.partitions) == 3
    assert all(len(state.replicas) == 2 for state in created.partitions.values())
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 2)
    if version >= 7:
        assert result.topic_id == created.id


def test_minus_one_takes_the_defaults_of_the_cluster(cluster: InMemoryController) -> None:
    [result] = create(cluster, topic("a", -1, -1))

    assert (result.num_partitions, result.replication_factor) == (2, 3)


def test_the_answer_tells_every_setting_and_who_set_it(cluster: InMemoryController) -> None:
    [result] = create(cluster, topic(configs={"retention.ms": "1000"}))

    assert result.configs is not None
    by_name = {config.name: (config.value, config.config_source) for config in result.configs}
    assert by_name["retention.ms"] == ("1000", 1)
    assert by_name["min.insync.replicas"] == ("1", 3)
    assert by_name["segment.ms"] == ("5000", 4)
    assert by_name["cleanup.policy"] == ("delete", 5)


def test_validate_only_answers_the_same_and_writes_nothing(cluster: InMemoryController) -> None:
    before = cluster.image

    [result] = create(cluster, topic("a", 3, 2), validate_only=True)

    assert (result.error_code, result.num_partitions) == (0, 3)
    assert cluster.image == before


def test_one_bad_topic_leaves_the_others_alone(cluster: InMemoryController) -> None:
    good, bad = create(cluster, topic("good"), topic("bad/name"))

    assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert list(cluster.image.topic_ids) == ["good"]


@pytest.mark.parametrize(
    ("asked", "code", "sentence"),
    [
        (
            topic(replication_factor=4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 "
            "cannot be reached because only 3 broker(s) are registered.",
        ),
        (
            topic(replication_factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            topic(partition_count=0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            topic(partition_count=10_001),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'there' already exists."),
        (
            topic("of_a.kind"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'of_a.kind' collides with existing topic: of.a.kind",
        ),
        (
            topic("__cluster_metadata"),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            topic(configs={"no.such.key": "1"}),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: no.such.key",
        ),
        (
            topic(configs={"retention.ms": None}),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            topic(configs={"remote.storage.enable": "true"}),
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage.",
        ),
        (
            topic(assigned={0: [1]}),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        ),
        (
            topic(replication_factor=-1, assigned={0: [1]}),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            topic("a", -1, -1, assigned={0: [1], 2: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            topic("a", -1, -1, assigned={0: []}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            topic("a", -1, -1, assigned={0: [1, 1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            topic("a", -1, -1, assigned={0: [9]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            topic("a", -1, -1, assigned={0: [1, 2], 1: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is "
            "not consistent with previous partitions, which have 2 replica(s).",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else None,
)
def test_what_cannot_be_created_is_refused_in_kafkas_words(
    cluster: InMemoryController, asked: CreatableTopic, code: ErrorCode, sentence: str
) -> None:
    create(cluster, topic("there"), topic("of.a.kind"))
    before = cluster.image

    [result] = create(cluster, asked)

    assert (result.error_code, result.error_message) == (code, sentence)
    assert result.configs is None
    assert cluster.image == before


def test_a_name_given_twice_is_refused_once(cluster: InMemoryController) -> None:
    results = create(cluster, topic("a"), topic("b"), topic("a"))

    assert [(one.name, one.error_code) for one in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
    ]


def test_names_collide_within_one_request_too(cluster: InMemoryController) -> None:
    results = create(cluster, topic("of.a"), topic("of_a"))

    assert [one.error_code for one in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_an_assignment_is_followed_and_only_the_living_are_in_sync(
    cluster: InMemoryController,
) -> None:
    cluster.kill(3)

    create(cluster, topic("a", -1, -1, assigned={1: [2, 1], 0: [3, 1]}))

    first, second = cluster.state("a", 0), cluster.state("a", 1)
    assert (first.replicas, first.isr, first.leader) == ((3, 1), (1,), 1)
    assert (second.replicas, second.isr, second.leader) == ((2, 1), (2, 1), 2)
    [fenced] = create(cluster, topic("b", -1, -1, assigned={0: [3]}))
    assert fenced.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_broker_with_one_directory_gets_its_replicas_there(cluster: InMemoryController) -> None:
    cluster.register(4, directories=2)
    cluster.heartbeat(4)

    create(cluster, topic("a", -1, -1, assigned={0: [1, 4]}))

    assert cluster.state("a").directories[0] == cluster.image.brokers[NodeId(1)].log_dirs[0]
    assert cluster.state("a").directories[1].int == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a" * 250, "Ünder", "a b", "a\n"])
def test_a_name_that_is_no_file_name_is_no_topic(name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        check_topic_name(name)

    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "...", "a" * 249, "A.b_c-1"])
def test_a_name_of_letters_digits_dots_and_dashes_is_fine(name: str) -> None:
    check_topic_name(name)


def delete(
    cluster: InMemoryController,
    *states: DeleteTopicState,
    names: list[str] | None = None,
    version: int = 6,
) -> list[tuple[str | None, int]]:
    request = DeleteTopicsRequest(topics=list(states), topic_names=names or [])
    reply = cluster.forward(request, version)
    assert isinstance(reply, DeleteTopicsResponse)
    decoded = decode(DeleteTopicsResponse, version, encode(reply, version))
    return [(one.name, one.error_code) for one in decoded.responses]


def test_topics_are_deleted_by_name_and_by_id(cluster: InMemoryController) -> None:
    create(cluster, topic("a"), topic("b"), topic("c"))
    by_id = cluster.image.topic_ids["b"]

    old = delete(cluster, names=["a", "absent"], version=1)
    new = delete(cluster, DeleteTopicState(topic_id=by_id), DeleteTopicState(name="c"))

    assert old == [("a", 0), ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert new == [("b", 0), ("c", 0)]
    assert not cluster.image.topics
    assert not cluster.image.partitions_by_broker


def test_what_cannot_be_deleted_is_refused(cluster: InMemoryController) -> None:
    create(cluster, topic("a"))
    topic_id = cluster.image.topic_ids["a"]
    unknown = DeleteTopicState(topic_id=UUID(int=7))

    assert delete(cluster, unknown) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert delete(cluster, DeleteTopicState()) == [(None, ErrorCode.INVALID_REQUEST)]
    both = DeleteTopicState(name="a", topic_id=topic_id)
    assert delete(cluster, both) == [("a", ErrorCode.INVALID_REQUEST)]
    twice = [DeleteTopicState(name="a"), DeleteTopicState(topic_id=topic_id)]
    assert delete(cluster, *twice) == [("a", ErrorCode.INVALID_REQUEST)]
    assert "a" in cluster.image.topic_ids


def test_deletion_can_be_switched_off() -> None:
    cluster = InMemoryController(config=ControllerConfig(delete_topic_enable=False))
    cluster.start(1)
    create(cluster, topic("a"))

    assert delete(cluster, names=["a"], version=2) == [("a", ErrorCode.INVALID_REQUEST)]
    assert delete(cluster, names=["a"], version=3) == [("a", ErrorCode.TOPIC_DELETION_DISABLED)]


def grow(
    cluster: InMemoryController,
    name: str,
    count: int,
    assigned: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> CreatePartitionsTopicResult:
    assignments = None
    if assigned is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=assignments)],
        validate_only=validate_only,
    )
    reply = cluster.forward(request)
    assert isinstance(reply, CreatePartitionsResponse)
    [result] = decode(CreatePartitionsResponse, 3, encode(reply, 3)).results
    return result


def test_a_topic_grows_and_its_partitions_stay(cluster: InMemoryController) -> None:
    create(cluster, topic("a", 2, 2))
    before = [cluster.state("a", index) for index in range(2)]

    assert grow(cluster, "a", 3).error_code == 0
    assert grow(cluster, "a", 4, [[3, 1]]).error_code == 0

    assert [cluster.state("a", index) for index in range(2)] == before
    assert len(cluster.state("a", 2).replicas) == 2
    assert cluster.state("a", 3).replicas == (3, 1)


def test_growth_that_is_only_validated_writes_nothing(cluster: InMemoryController) -> None:
    create(cluster, topic("a"))
    before = cluster.image

    assert grow(cluster, "a", 5, validate_only=True).error_code == 0
    assert cluster.image == before


@pytest.mark.parametrize(
    ("name", "count", "assigned", "code", "sentence"),
    [
        (
            "a",
            2,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "Topic already has 2 partition(s).",
        ),
        (
            "a",
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            "a",
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "a",
            20_000,
            None,
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_growth_that_is_none_is_refused(
    cluster: InMemoryController,
    name: str,
    count: int,
    assigned: list[list[int]] | None,
    code: ErrorCode,
    sentence: str,
) -> None:
    create(cluster, topic("a", 2, 1))

    result = grow(cluster, name, count, assigned)

    assert (result.error_code, result.error_message) == (code, sentence)


def test_a_topic_that_is_not_there_does_not_grow(cluster: InMemoryController) -> None:
    assert grow(cluster, "absent", 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
