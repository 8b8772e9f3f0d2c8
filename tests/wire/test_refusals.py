"""The refusal of each API has its error code in every place that its schema has for one."""

import random
from typing import Any

import pytest

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import EXPLAINED_MAX
from ottla.wire import apis
from ottla.wire.api import Scope
from ottla.wire.apis import API, request_class, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_examples import example
from ottla.wire.messages import (
    alter_client_quotas_request,
    alter_replica_log_dirs_request,
    alter_user_scram_credentials_request,
    create_topics_request,
    elect_leaders_request,
    find_coordinator_request,
    join_group_request,
    list_offsets_request,
    produce_request,
)
from ottla.wire.refusals import plan_of, refuse, refused, refused_element, run

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
WHY = "it is not allowed"
EXAMPLES = 10

REFUSED_AS_A_WHOLE = [
    (row.key, version)
    for row in API.values()
    if row.is_served
    and row.on_broker
    and (row.is_forwarded or any(need.scope is Scope.REQUEST for need in row.single_needs))
    for version in range(row.lowest, row.highest + 1)
]
AUTHORIZED_ONE_BY_ONE = [
    (row.key, version)
    for row in API.values()
    if row.parts is not None
    for version in range(max(row.lowest, row.parts.lists_from), row.highest + 1)
]


def random_request(key: int, version: int, seed: int) -> Any:
    kind = request_class(key)
    return example(kind, version, FuzzRng(random.Random(seed)))


@pytest.mark.parametrize(("key", "version"), REFUSED_AS_A_WHOLE)
def test_a_refusal_has_the_code_at_its_root_or_for_each_element(key: int, version: int) -> None:
    plan = plan_of(key, version)
    for seed in range(EXAMPLES):
        request = random_request(key, version, seed)
        answer: Any = run(refused(request, CODE, version, WHY))
        again: Any = decode(response_class(key), version, encode(answer, version))
        if plan.code:
            assert again.error_code == CODE
            if plan.message:
                assert again.error_message == WHY
        if plan.element is not None and plan.has_elements and not API[key].refusal.is_unique:
            # A path of one array; what AlterReplicaLogDirs nests is tested below.
            named = [getattr(request, path[0]) or () for path in plan.sources if len(path) == 1]
            if named:
                assert len(getattr(again, plan.into)) == sum(map(len, named))


@pytest.mark.parametrize(("key", "version"), AUTHORIZED_ONE_BY_ONE)
def test_an_element_that_is_refused_has_a_place_that_names_it(key: int, version: int) -> None:
    plan = plan_of(key, version)
    assert plan.element is not None
    (path,) = plan.sources
    for seed in range(EXAMPLES):
        request = random_request(key, version, seed)
        for element in getattr(request, path[0]):
            place = run(refused_element(key, version, element, CODE))
            if plan.element.named:
                assert getattr(place, plan.element.named) == element
            for source, name in plan.element.copied:
                assert getattr(place, name) == getattr(element, source)
            if plan.element.code:
                assert getattr(place, plan.element.code) == CODE
            answer = response_class(key)()
            setattr(answer, plan.into, [place])
            assert encode(answer, version)


def test_the_first_version_of_a_list_is_that_of_the_schema() -> None:
    assert "coordinator_keys" not in sources_of(apis.FIND_COORDINATOR, 3)
    assert "coordinator_keys" in sources_of(apis.FIND_COORDINATOR, apis.COORDINATOR_KEYS_FROM)
    assert "groups" not in sources_of(apis.OFFSET_FETCH, 7)
    assert "groups" in sources_of(apis.OFFSET_FETCH, apis.OFFSET_GROUPS_FROM)


def sources_of(key: int, version: int) -> list[str]:
    return [path[0] for path in plan_of(key, version).sources]


def test_elements_of_elements_have_the_code() -> None:
    request = produce_request.ProduceRequest(
        topic_data=[
            produce_request.TopicProduceData(
                name="a",
                partition_data=[produce_request.PartitionProduceData(index=at) for at in (3, 5)],
            )
        ]
    )
    answer: Any = run(refused(request, CODE, 9, WHY))
    (topic,) = answer.responses
    assert topic.name == "a"
    found = [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses]
    assert found == [(3, CODE, -1), (5, CODE, -1)]
    assert [one.error_message for one in topic.partition_responses] == [None, None]


def test_numbers_that_identify_nothing_are_not_repeated() -> None:
    partition = list_offsets_request.ListOffsetsPartition(
        partition_index=7, current_leader_epoch=4, timestamp=99
    )
    topic = list_offsets_request.ListOffsetsTopic(name="a", partitions=[partition])
    (place,) = run(refused_element(apis.LIST_OFFSETS, 7, topic, CODE)).partitions
    assert (place.partition_index, place.timestamp, place.leader_epoch) == (7, -1, -1)


@pytest.mark.parametrize(("version", "protocol"), [(6, ""), (7, None)])
def test_a_refused_join_repeats_the_member_and_has_no_protocol(
    version: int, protocol: str | None
) -> None:
    request = join_group_request.JoinGroupRequest(member_id="m", protocol_type="consumer")
    answer: Any = run(refused(request, CODE, version, WHY))
    assert (answer.error_code, answer.member_id) == (CODE, "m")
    assert answer.protocol_name == protocol
    assert answer.protocol_type is None


def test_an_unknown_coordinator_has_no_node() -> None:
    request = find_coordinator_request.FindCoordinatorRequest(key="g")
    answer: Any = run(refused(request, CODE, 3, WHY))
    assert (answer.error_code, answer.node_id, answer.port) == (CODE, -1, -1)
    assert not answer.error_message
    place = run(refused_element(apis.FIND_COORDINATOR, 4, "g", CODE))
    assert (place.key, place.error_code, place.node_id) == ("g", CODE, -1)


@pytest.mark.parametrize("version", [0, 1])
def test_refused_elections_have_the_code_for_each_partition_too(version: int) -> None:
    topics = [elect_leaders_request.TopicPartitions(topic="a", partitions=[4])]
    request = elect_leaders_request.ElectLeadersRequest(topic_partitions=topics)
    answer: Any = refuse(request, RefusedError(CODE, WHY), version)
    assert answer.error_code == (CODE if version else 0)
    (result,) = answer.replica_election_results
    (partition,) = result.partition_result
    assert (result.topic, partition.partition_id) == ("a", 4)
    assert (partition.error_code, partition.error_message) == (CODE, WHY)
    none_named = elect_leaders_request.ElectLeadersRequest(topic_partitions=None)
    assert run(refused(none_named, CODE, version)).replica_election_results == []  # type: ignore[attr-defined]


def test_a_user_named_twice_is_refused_once() -> None:
    module = alter_user_scram_credentials_request
    request = module.AlterUserScramCredentialsRequest(
        deletions=[module.ScramCredentialDeletion(name="al")],
        upsertions=[module.ScramCredentialUpsertion(name=name) for name in ("al", "bo")],
    )
    answer: Any = run(refused(request, CODE, 0))
    assert [(one.user, one.error_code) for one in answer.results] == [("al", CODE), ("bo", CODE)]


def test_a_refused_quota_repeats_its_entity() -> None:
    module = alter_client_quotas_request
    entity = [module.EntityData(entity_type="user", entity_name="al")]
    request = module.AlterClientQuotasRequest(entries=[module.EntryData(entity=entity)])
    (entry,) = run(refused(request, CODE, 1)).entries  # type: ignore[attr-defined]
    (part,) = entry.entity
    assert (entry.error_code, part.entity_type, part.entity_name) == (CODE, "user", "al")


def test_the_topics_of_all_directories_are_refused() -> None:
    module = alter_replica_log_dirs_request
    topics = [module.AlterReplicaLogDirTopic(name="a", partitions=[1, 2])]
    request = module.AlterReplicaLogDirsRequest(
        dirs=[module.AlterReplicaLogDir(path=path, topics=topics) for path in ("/x", "/y")]
    )
    answer: Any = run(refused(request, CODE, 2))
    assert [one.topic_name for one in answer.results] == ["a", "a"]
    assert [one.partition_index for one in answer.results[0].partitions] == [1, 2]


def test_a_refused_topic_has_no_settings() -> None:
    request = create_topics_request.CreateTopicsRequest(
        topics=[create_topics_request.CreatableTopic(name="a", num_partitions=9)]
    )
    (topic,) = run(refused(request, CODE, 7)).topics  # type: ignore[attr-defined]
    assert (topic.name, topic.error_code, topic.configs) == ("a", CODE, None)
    assert topic.num_partitions == -1


def test_the_first_elements_are_explained() -> None:
    request = create_topics_request.CreateTopicsRequest(
        topics=[
            create_topics_request.CreatableTopic(name=str(at)) for at in range(EXPLAINED_MAX + 1)
        ]
    )
    answer: Any = refuse(request, RefusedError(CODE, WHY), 7)
    messages = [topic.error_message for topic in answer.topics]
    assert messages == [WHY] * EXPLAINED_MAX + [None]
    unexplained: Any = run(refused(request, CODE, 7, WHY))
    assert {topic.error_message for topic in unexplained.topics} == {None}


def test_others_may_have_their_turn_after_each_element() -> None:
    request = create_topics_request.CreateTopicsRequest(
        topics=[create_topics_request.CreatableTopic(name=str(at)) for at in range(5)]
    )
    assert len(list(refused(request, CODE, 7))) == 5
