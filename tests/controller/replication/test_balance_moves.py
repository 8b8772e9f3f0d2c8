"""The moves of a balance: the plan in the metadata log, started a few at a time, and cancelled."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.decision import decided
from ottla.controller.replication import balance_moves
from ottla.controller.replication.balance_moves import MOVES_PER_BROKER, MoveStage, stage_of
from ottla.controller.replication.balance_plan import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    stored_moves,
)
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.balance.plan_text import MOVES_MAX, StoredMove, moves_text, parse_moves
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.balance import BALANCE_PLAN, BALANCE_RATE_MAX, BALANCE_RATE_MIN
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.resources import AlterOperation
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse

BROKERS = (1, 2, 3, 4, 5, 6)


def create(cluster: InMemoryController, *assignments: tuple[int, ...], name: str = "t") -> None:
    cluster.forward(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=list(one))
                        for index, one in enumerate(assignments)
                    ],
                )
            ]
        )
    )


def move(partition: int, before: tuple[int, ...], after: tuple[int, ...]) -> StoredMove:
    return StoredMove(
        TopicPartition("t", partition), tuple(map(NodeId, before)), tuple(map(NodeId, after))
    )


def configure(
    cluster: InMemoryController, changes: dict[str, str | None], *, broker: str = ""
) -> tuple[int, str | None]:
    reply = cluster.forward(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=BROKER_RESOURCE,
                    resource_name=broker,
                    configs=[
                        AlterableConfig(
                            name=key,
                            config_operation=(
                                AlterOperation.DELETE if value is None else AlterOperation.SET
                            ),
                            value=value,
                        )
                        for key, value in changes.items()
                    ],
                )
            ]
        )
    )
    assert isinstance(reply, IncrementalAlterConfigsResponse)
    return reply.responses[0].error_code, reply.responses[0].error_message


def set_plan(cluster: InMemoryController, *moves: StoredMove) -> tuple[int, str | None]:
    return configure(cluster, {BALANCE_PLAN: moves_text(moves)})


def cancel_plan(cluster: InMemoryController) -> None:
    assert configure(cluster, {BALANCE_PLAN: None})[0] == ErrorCode.NONE


def step(cluster: InMemoryController) -> None:
    records = balance_moves.advance(cluster.image, cluster.config)
    cluster.take(decided(cluster.image, records, None))


def catch_up(cluster: InMemoryController, partition: int) -> None:
    """Bring all replicas of a partition into its ISR, as its leader does when they caught up."""
    cluster.alter_isr("t", partition, *sorted(cluster.state("t", partition).replicas))


def fence(cluster: InMemoryController, broker: int) -> None:
    cluster.heartbeat(broker, want_fence=True)


def unfence(cluster: InMemoryController, broker: int) -> None:
    cluster.heartbeat(broker)


def moving(cluster: InMemoryController) -> list[int]:
    topic = cluster.image.topic("t")
    assert topic is not None
    return [index for index, one in topic.partitions.items() if one.adding or one.removing]


def settings(cluster: InMemoryController) -> dict[str, str]:
    return {
        key: value
        for key, value in cluster.image.config(BROKER_RESOURCE, "").items()
        if key != "min.insync.replicas"
    }


@pytest.fixture
def cluster() -> InMemoryController:
    made = InMemoryController(min_insync_replicas=2)
    made.start(*BROKERS)
    return made


def test_a_plan_starts_when_it_is_stored_and_ends_without_a_trace(
    cluster: InMemoryController,
) -> None:
    create(cluster, (1, 2), (1, 2))
    assert set_plan(cluster, move(0, (1, 2), (3, 2)), move(1, (1, 2), (2, 1))) == (0, None)
    assert moving(cluster) == [0]
    assert cluster.state("t", 1).leader == 2, "an election needs no copy"
    assert settings(cluster)[RATES[0]] == settings(cluster)[RATES[1]] == "20000000"
    lists = cluster.image.config(TOPIC_RESOURCE, "t")
    assert dict(lists) == {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3"}

    step(cluster)
    assert [one.at.partition for one in stored_moves(cluster.image)] == [0]
    catch_up(cluster, 0)
    assert cluster.state("t", 0).replicas == (3, 2)
    step(cluster)
    assert cluster.state("t", 0).leader == 3, "the preferred leader leads after the move"
    assert settings(cluster) == {}
    assert dict(cluster.image.config(TOPIC_RESOURCE, "t")) == {}


def test_a_broker_takes_part_in_two_copies_at_a_time(cluster: InMemoryController) -> None:
    create(cluster, *[(1, 2)] * 5)
    set_plan(cluster, *(move(index, (1, 2), (1, 3)) for index in range(5)))
    assert moving(cluster) == [0, 1]
    step(cluster)
    assert moving(cluster) == [0, 1]
    catch_up(cluster, 1)
    step(cluster)
    assert moving(cluster) == [0, 2]
    assert FOLLOWER_REPLICAS in cluster.image.config(TOPIC_RESOURCE, "t")
    assert cluster.image.config(TOPIC_RESOURCE, "t")[FOLLOWER_REPLICAS] == "0:3,2:3"


def test_removing_the_plan_cancels_what_is_under_way_and_its_throttle(
    cluster: InMemoryController,
) -> None:
    create(cluster, *[(1, 2)] * 5)
    set_plan(cluster, *(move(index, (1, 2), (1, 3)) for index in range(5)))
    catch_up(cluster, 0)
    cancel_plan(cluster)
    assert moving(cluster) == []
    assert [set(cluster.state("t", index).replicas) for index in range(3)] == [
        {1, 3},
        {1, 2},
        {1, 2},
    ]
    assert settings(cluster) == {}
    assert dict(cluster.image.config(TOPIC_RESOURCE, "t")) == {}
    step(cluster)
    assert moving(cluster) == []


@pytest.mark.parametrize("replicas", [None, [1, 4]], ids=["cancelled", "replaced"])
def test_a_partition_that_an_operator_decides_on_leaves_the_plan(
    cluster: InMemoryController, replicas: list[int] | None
) -> None:
    create(cluster, (1, 2), (1, 2))
    set_plan(cluster, move(0, (1, 2), (1, 3)), move(1, (1, 2), (1, 3)))
    asked = ReassignablePartition(partition_index=0, replicas=replicas)
    cluster.forward(
        AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[asked])])
    )
    assert [one.at.partition for one in stored_moves(cluster.image)] == [1]
    assert cluster.image.config(TOPIC_RESOURCE, "t")[FOLLOWER_REPLICAS] == "1:3"
    step(cluster)
    step(cluster)
    expected = {1, 2} if replicas is None else {1, 2, 3, 4}
    assert set(cluster.state("t", 0).replicas) == expected


def test_deleted_topics_and_moved_partitions_leave_the_plan(cluster: InMemoryController) -> None:
    create(cluster, (1, 2))
    set_plan(cluster, move(0, (1, 2), (1, 3)))
    cluster.forward(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    step(cluster)
    assert settings(cluster) == {}

    create(cluster, (1, 2))
    assert set_plan(cluster, move(0, (4, 5), (1, 3))) == (0, None)
    assert settings(cluster) == {}
    assert cluster.state("t").replicas == (1, 2)


def test_a_move_waits_for_weak_partitions_and_for_brokers_that_are_down_or_cordoned(
    cluster: InMemoryController,
) -> None:
    create(cluster, (1, 2), (1, 2), (1, 2))
    cluster.alter_isr("t", 0, 1)
    fence(cluster, 4)
    found = cluster.image.brokers[NodeId(5)].log_dirs
    cluster.heartbeat(5, cordoned_log_dirs=found)
    set_plan(
        cluster,
        move(0, (1, 2), (3, 2)),
        move(1, (1, 2), (1, 4)),
        move(2, (1, 2), (1, 5)),
    )
    assert moving(cluster) == []
    reasons = [
        balance_moves.obstacle_of(
            cluster.image, cluster.config, one, cluster.state("t", one.at.partition)
        )
        for one in stored_moves(cluster.image)
    ]
    assert reasons == ["broker 2 is not in sync", "broker 4 is down", "broker 5 is cordoned"]
    catch_up(cluster, 0)
    cluster.heartbeat(5, cordoned_log_dirs=())
    step(cluster)
    assert moving(cluster) == [0, 2]


def test_a_dead_broker_is_emptied(cluster: InMemoryController) -> None:
    create(cluster, (1, 2))
    fence(cluster, 2)
    set_plan(cluster, move(0, (1, 2), (1, 3)))
    assert moving(cluster) == [0]


def test_nothing_starts_while_two_hosts_are_gone(cluster: InMemoryController) -> None:
    create(cluster, (1, 2))
    fence(cluster, 5)
    fence(cluster, 6)
    set_plan(cluster, move(0, (1, 2), (1, 3)))
    assert moving(cluster) == []
    unfence(cluster, 6)
    step(cluster)
    assert moving(cluster) == [0]


def test_a_second_plan_and_a_foreign_throttle_are_refused(cluster: InMemoryController) -> None:
    create(cluster, (1, 2))
    configure(cluster, {RATES[0]: "5"})
    code, message = set_plan(cluster, move(0, (1, 2), (1, 3)))
    assert (code, "which the balance would replace" in str(message)) == (
        ErrorCode.INVALID_REQUEST,
        True,
    )
    configure(cluster, {RATES[0]: None})
    assert set_plan(cluster, move(0, (1, 2), (1, 3)))[0] == 0
    code, message = set_plan(cluster, move(0, (1, 2), (1, 4)))
    assert (code, str(message).startswith("A balance is in progress")) == (
        ErrorCode.INVALID_REQUEST,
        True,
    )


def test_the_throttle_stays_within_its_bounds(cluster: InMemoryController) -> None:
    create(cluster, (1, 2))
    plan = moves_text([move(0, (1, 2), (1, 3))])
    configure(cluster, {BALANCE_PLAN: plan, BALANCE_RATE_MAX: "900", BALANCE_RATE_MIN: "100"})
    assert settings(cluster)[RATES[0]] == "900"
    for given_rate, expected in (("5", "100"), ("5000", "900"), ("300", "300"), (None, "900")):
        configure(cluster, {RATES[0]: given_rate})
        step(cluster)
        assert settings(cluster)[RATES[0]] == expected


@pytest.mark.parametrize(
    "text",
    ["t:0:1,2>1", "t:0:1,1>1,2", "t:0:1>2;t:0:1>3", "t:0:1>x", "t:0", ";", "t:0:1>99999999999"],
)
def test_a_malformed_plan_is_refused(cluster: InMemoryController, text: str) -> None:
    code, message = configure(cluster, {BALANCE_PLAN: text})
    assert code == ErrorCode.INVALID_REQUEST
    assert "must be moves such as" in str(message)


def test_a_plan_belongs_to_the_cluster_and_not_to_a_broker_or_a_file(
    cluster: InMemoryController,
) -> None:
    plan = moves_text([move(0, (1, 2), (1, 3))])
    assert configure(cluster, {BALANCE_PLAN: plan}, broker="1")[0] == ErrorCode.INVALID_REQUEST
    with pytest.raises(ConfigError, match="belongs in no file"):
        load_broker_config({"node.id": "1", BALANCE_PLAN: plan})


def test_the_text_of_a_plan_is_bounded() -> None:
    moves = [move(index, (1,), (2,)) for index in range(MOVES_MAX)]
    assert parse_moves(moves_text(moves)) == tuple(moves)
    with pytest.raises(ValueError):
        parse_moves(moves_text([*moves, move(MOVES_MAX, (1,), (2,))]))


EVENTS = st.sampled_from(("step", "catch up", "fence", "unfence", "cancel"))


@given(
    st.lists(st.tuples(st.permutations(BROKERS), st.permutations(BROKERS)), max_size=8),
    st.lists(st.tuples(EVENTS, st.integers(0, 7)), max_size=40),
)
def test_whatever_happens_the_plan_ends_and_leaves_nothing(
    pairs: list[tuple[list[int], list[int]]], events: list[tuple[str, int]]
) -> None:
    cluster = InMemoryController(min_insync_replicas=1)
    cluster.start(*BROKERS)
    moves = [
        move(index, tuple(before[:2]), tuple(after[:2]))
        for index, (before, after) in enumerate(pairs)
    ]
    if not moves:
        return
    create(cluster, *(one.before for one in moves))
    set_plan(cluster, *moves)
    was_cancelled = False
    for event, number in events:
        if event == "step":
            step(cluster)
        elif event == "catch up" and number < len(moves):
            if cluster.state("t", number).leader > 0:
                alive = [
                    one
                    for one in cluster.state("t", number).replicas
                    if cluster.image.is_active(one)
                ]
                cluster.alter_isr("t", number, *alive)
        elif event == "fence":
            fence(cluster, number % 6 + 1)
        elif event == "unfence":
            unfence(cluster, number % 6 + 1)
        elif event == "cancel":
            was_cancelled = True
            cancel_plan(cluster)
        _check(cluster)
    for broker in BROKERS:
        unfence(cluster, broker)
    for _ in range(3 * len(moves) + 2):
        step(cluster)
        for index in range(len(moves)):
            catch_up(cluster, index)
        _check(cluster)
    assert settings(cluster) == {}
    assert dict(cluster.image.config(TOPIC_RESOURCE, "t")) == {}
    for one in moves:
        found = cluster.state("t", one.at.partition)
        assert stage_of(found, one) in (MoveStage.DONE, MoveStage.WAITING, MoveStage.GONE)
        assert was_cancelled or found.replicas == one.after
        assert events or found.leader == one.after[0]


def _check(cluster: InMemoryController) -> None:
    busy: Counter[int] = Counter()
    for one in stored_moves(cluster.image):
        if stage_of(cluster.state("t", one.at.partition), one) is MoveStage.MOVING:
            busy.update(one.brokers)
    assert max(busy.values(), default=0) <= MOVES_PER_BROKER
    if busy:
        assert settings(cluster).keys() >= set(RATES)
