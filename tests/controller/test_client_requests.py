"""The list of forwarded requests, and tests of those without a module of their own."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.client_requests import DECISIONS
from ottla.controller.decision import Context, QuorumStatus, ReplicaStatus, decided
from ottla.controller.describe_quorum import describe_quorum, quorum_status
from ottla.controller.producer_ids import allocate_producer_ids
from ottla.controller.replication import elections
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.records import (
    BROKER_RESOURCE,
    config_record,
    feature_level_record,
    partition_change_record,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, Epoch, NodeId, Offset
from ottla.proto import controller_pb2 as pb
from ottla.raft.progress import QuorumProgress, ReplicaProgress
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey, Voter, VoterSet
from ottla.wire.apis import FORWARDED_KEYS
from ottla.wire.codec import decode, encode
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def cluster_of(*brokers: int) -> InMemoryController:
    cluster = InMemoryController()
    cluster.start(*brokers)
    return cluster


def create(cluster: InMemoryController, name: str, *replicas: int) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    cluster.forward(CreateTopicsRequest(topics=[topic]))


def test_an_api_key_without_a_decision_is_unsupported() -> None:
    with pytest.raises(RefusedError) as caught:
        InMemoryController().forward(HeartbeatRequest())

    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_the_forwarded_requests_are_these() -> None:
    assert DECISIONS.keys() == FORWARDED_KEYS


def elect(
    cluster: InMemoryController, election_type: int, *topics: str
) -> list[tuple[str, list[tuple[int, int]]]]:
    asked = [TopicPartitions(topic=name, partitions=[0]) for name in topics] if topics else None
    reply = cluster.forward(
        ElectLeadersRequest(election_type=election_type, topic_partitions=asked)
    )
    assert isinstance(reply, ElectLeadersResponse)
    results = decode(ElectLeadersResponse, 2, encode(reply, 2)).replica_election_results
    return [
        (one.topic, [(each.partition_id, each.error_code) for each in one.partition_result])
        for one in results
    ]


def test_a_preferred_election_gives_leadership_back() -> None:
    cluster = cluster_of(1, 2)
    create(cluster, "a", 1, 2)
    create(cluster, "b", 2, 1)
    cluster.kill(1)
    cluster.heartbeat(1)
    assert elect(cluster, 0, "a") == [("a", [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)])]
    cluster.alter_isr("a", 0, 2, 1)

    outcome = elect(cluster, 0)

    assert outcome == [("a", [(0, 0)])]
    assert cluster.state("a").leader == ONE
    assert elect(cluster, 0, "a", "c") == [
        ("a", [(0, ErrorCode.ELECTION_NOT_NEEDED)]),
        ("c", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]


def test_an_unclean_election_is_held_only_for_the_leaderless() -> None:
    cluster = cluster_of(1, 2)
    create(cluster, "a", 1, 2)
    cluster.alter_isr("a", 0, 1)
    assert elect(cluster, 1, "a") == [("a", [(0, ErrorCode.ELECTION_NOT_NEEDED)])]
    cluster.kill(1)
    assert cluster.state("a").leader == NO_NODE

    assert elect(cluster, 1, "a") == [("a", [(0, 0)])]
    assert (cluster.state("a").leader, cluster.state("a").isr) == (TWO, (TWO,))


def test_an_unclean_election_needs_a_live_replica() -> None:
    cluster = cluster_of(1)
    create(cluster, "a", 1)
    cluster.kill(1)

    assert elect(cluster, 1, "a") == [("a", [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)])]


def test_an_election_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(RefusedError):
        elect(cluster_of(1), 7, "a")


def test_a_run_of_rebalancing_gives_back_a_thousand_partitions() -> None:
    """Kafka's bound, features RE16."""
    cluster = cluster_of(1, 2)
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[1, 2])
        for index in range(1_001)
    ]
    topic = CreatableTopic(
        name="a", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    cluster.forward(CreateTopicsRequest(topics=[topic]))
    cluster.kill(1)
    cluster.heartbeat(1)
    for index in range(1_001):
        cluster.alter_isr("a", index, 2, 1)

    counts = []
    for _ in range(3):
        records = elections.rebalance(cluster.image, cluster.config)
        cluster.take(decided(cluster.image, records, None))
        counts.append(len(records))
    assert counts == [1_000, 1, 0]


def test_rebalancing_gives_back_a_bounded_number_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(1, 2)
    for name in ("a", "b", "c"):
        create(cluster, name, 1, 2)
    cluster.kill(1)
    cluster.heartbeat(1)
    for name in ("a", "b", "c"):
        cluster.alter_isr(name, 0, 2, 1)
    monkeypatch.setattr(elections, "PREFERRED_ELECTIONS_MAX", 2)

    first = elections.rebalance(cluster.image, cluster.config)
    cluster.take(decided(cluster.image, first, None))
    second = elections.rebalance(cluster.image, cluster.config)
    cluster.take(decided(cluster.image, second, None))

    assert (len(first), len(second)) == (2, 1)
    assert all(cluster.state(name).leader == ONE for name in ("a", "b", "c"))
    assert elections.rebalance(cluster.image, cluster.config) == ()


def test_a_topic_that_comes_to_allow_unclean_elections_gets_one() -> None:
    cluster = cluster_of(1, 2)
    create(cluster, "a", 1, 2)
    cluster.alter_isr("a", 0, 1)
    cluster.kill(1)
    assert elections.elect_leaderless(cluster.image, cluster.config) == ()
    allow = config_record(2, "a", "unclean.leader.election.enable", "true")
    cluster.take(decided(cluster.image, (allow,), None))

    records = elections.elect_leaderless(cluster.image, cluster.config)
    cluster.take(decided(cluster.image, records, None))

    assert cluster.state("a").leader == TWO


def test_a_replica_whose_directory_is_lost_does_not_lead() -> None:
    cluster = cluster_of(1, 2)
    create(cluster, "a", 1, 2)
    topic = cluster.image.topic("a")
    assert topic is not None
    lost = partition_change_record(topic.id, 0, directories=[UNASSIGNED, UUID(int=2)])
    cluster.take(decided(cluster.image, (lost,), None))

    cluster.kill(1)

    assert cluster.state("a").leader == NO_NODE


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = cluster_of(1)
    request = pb.AllocateProducerIdsRequest(
        broker_id=1, broker_epoch=cluster.image.brokers[ONE].epoch
    )

    blocks = [cluster.take(allocate_producer_ids(cluster.image, request)) for _ in range(3)]

    assert [(block.producer_id_start, block.producer_id_count) for block in blocks] == [
        (0, 1000),
        (1000, 1000),
        (2000, 1000),
    ]


def update(
    cluster: InMemoryController, name: str, level: int, *, upgrade_type: int = 1, version: int = 1
) -> UpdateFeaturesResponse:
    key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
    reply = cluster.forward(UpdateFeaturesRequest(feature_updates=[key]), version)
    assert isinstance(reply, UpdateFeaturesResponse)
    return decode(UpdateFeaturesResponse, version, encode(reply, version))


def test_a_feature_is_lowered_only_on_purpose() -> None:
    cluster = cluster_of(1)
    name = "eligible.leader.replicas.version"

    assert update(cluster, name, 0).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, name, 0, upgrade_type=2).error_code == 0
    assert name not in cluster.image.features
    assert update(cluster, name, 1).error_code == 0
    assert cluster.image.features[name] == 1


def test_the_version_of_transactions_goes_up_and_down() -> None:
    cluster = cluster_of(1)
    name = "transaction.version"

    assert cluster.image.features[name] == 2
    for level in (1, 0):
        assert update(cluster, name, level).error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert update(cluster, name, level, upgrade_type=2).error_code == 0
        assert cluster.image.features.get(name, 0) == level
    for level in (1, 2):
        assert update(cluster, name, level).error_code == 0
    assert update(cluster, name, 3).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.image.features[name] == 2


def test_eligible_replicas_are_cleared_when_elr_is_disabled() -> None:
    """Else the leader could commit without them, and they would count again later."""
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    cluster.alter_isr("a", 0, 1)
    before = cluster.state("a").elr

    reply = update(cluster, ELIGIBLE_LEADER_REPLICAS_VERSION, 0, upgrade_type=2)

    assert reply.error_code == 0
    assert (before, cluster.state("a").elr) == ((TWO,), ())


def test_eligible_replicas_stay_in_force_while_they_alone_can_lead() -> None:
    cluster = cluster_of(1)
    create(cluster, "a", 1)
    cluster.kill(1)

    reply = update(cluster, ELIGIBLE_LEADER_REPLICAS_VERSION, 0, upgrade_type=2)

    assert reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.state("a").elr == (ONE,)


def test_eligible_replicas_come_with_one_min_isr_for_the_whole_cluster() -> None:
    """KIP-966: the cluster's value is written down, and no broker keeps its own."""
    cluster = cluster_of(1)
    update(cluster, ELIGIBLE_LEADER_REPLICAS_VERSION, 0, upgrade_type=2)
    own = config_record(BROKER_RESOURCE, "1", "min.insync.replicas", "3")
    none = config_record(BROKER_RESOURCE, "", "min.insync.replicas", None)
    cluster.take(decided(cluster.image, (own, none), None))

    update(cluster, ELIGIBLE_LEADER_REPLICAS_VERSION, 1)

    assert cluster.image.config(BROKER_RESOURCE, "")["min.insync.replicas"] == "1"
    assert "min.insync.replicas" not in cluster.image.config(BROKER_RESOURCE, "1")


def test_a_cluster_of_an_earlier_metadata_version_rises_and_does_not_fall_back() -> None:
    """At 4.4-IV1 hosts of ACLs may be ranges, which no earlier release reads."""
    cluster = cluster_of(1)
    level_30 = feature_level_record("metadata.version", 30)
    cluster.take(decided(cluster.image, [level_30], None))

    assert update(cluster, "metadata.version", 32).error_code == 0
    assert cluster.image.features["metadata.version"] == 32
    for upgrade_type in (1, 2, 3):
        reply = update(cluster, "metadata.version", 31, upgrade_type=upgrade_type)
        assert reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.image.features["metadata.version"] == 32


@pytest.mark.parametrize(
    ("name", "level"), [("streams.version", 1), ("metadata.version", 34), ("metadata.version", 0)]
)
def test_an_unknown_feature_level_is_refused(name: str, level: int) -> None:
    reply = update(cluster_of(1), name, level, upgrade_type=2, version=2)

    assert reply.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert name in (reply.error_message or "")


def test_the_quorum_is_described_for_its_one_partition() -> None:
    voter = ReplicaStatus(
        id=NodeId(101),
        directory_id=UUID(int=500),
        end_offset=Offset(10),
        last_fetch_ms=1,
        last_caught_up_ms=2,
        endpoints=(("CONTROLLER", "localhost", 9093),),
    )
    status = QuorumStatus(
        leader_id=NodeId(101),
        leader_epoch=Epoch(3),
        high_watermark=Offset(9),
        voters=(voter,),
        observers=(),
        problems=("Voter 102 refuses.", "Voter 103 refuses."),
        warnings=("Its disk fills up.",),
    )
    request = DescribeQuorumRequest(
        topics=[
            TopicData(topic_name="__cluster_metadata", partitions=[PartitionData()]),
            TopicData(topic_name="a", partitions=[PartitionData(partition_index=1)]),
        ]
    )

    cluster = cluster_of(1)
    context = Context(config=cluster.config, rng=cluster.rng, quorum_status=lambda: status)
    for version in DescribeQuorumRequest.VERSIONS:
        asked = replace(context, api_version=version)
        reply = describe_quorum(cluster.image, asked, request).reply
        assert decode(DescribeQuorumResponse, version, encode(reply, version))

    [found], [unknown] = (topic.partitions for topic in reply.topics)
    assert (found.leader_id, found.leader_epoch, found.high_watermark) == (101, 3, 9)
    assert found.error_code == ErrorCode.NONE
    assert found.error_message == "Voter 102 refuses.\nVoter 103 refuses."
    assert (reply.error_code, reply.error_message) == (ErrorCode.NONE, "Its disk fills up.")
    assert [one.replica_directory_id for one in found.current_voters] == [UUID(int=500)]
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reply.nodes[0].listeners[0].port == 9093


@pytest.mark.parametrize(
    ("standing", "cure"),
    [
        (Standing.CATCHING_UP, "once it has caught up"),
        (Standing.AMNESIAC, "once every other controller has answered it"),
    ],
)
def test_the_quorum_s_status_names_a_voter_without_a_vote(standing: Standing, cure: str) -> None:
    def progress(node_id: int, standing: Standing) -> ReplicaProgress:
        return ReplicaProgress(
            key=ReplicaKey(NodeId(node_id), UUID(int=node_id)),
            end_offset=Offset(7),
            last_fetch_ms=1,
            last_caught_up_ms=1,
            standing=standing,
        )

    status = quorum_status(
        QuorumProgress(
            leader_id=NodeId(101),
            leader_epoch=Epoch(3),
            high_watermark=Offset(9),
            voters=(progress(101, Standing.FULL), progress(102, standing)),
            observers=(progress(1, Standing.FULL),),
        ),
        VoterSet((Voter(id=NodeId(101)), Voter(id=NodeId(102)))),
        problems=("Voter 103 refuses.",),
        now_ms=2,
        wall_ms=2,
    )

    other, problem = status.problems
    assert other == "Voter 103 refuses."
    assert problem.startswith("controller 102 follows without a vote")
    assert cure in problem
    assert "quorum.damaged" in problem
