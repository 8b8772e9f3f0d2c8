"""Target assignments of large groups: computed in steps, while the group serves requests."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.coordinators import backlog
from ottla.broker.coordinators.backlog import STEPS_AT_ONCE
from ottla.jepsen.world.walk.group_requests import GroupRequest
from ottla.model.errors import ErrorCode
from ottla.node.network import steps

COUNT = 10_000


def work_off(groups: Any) -> int:
    """Take all steps; return their number."""
    count = 0
    while groups.shard.has_work:
        groups.shard.work(groups.now)
        count += 1
    groups.settle()
    return count


def partitions_of(asked: GroupRequest) -> dict[UUID, set[int]]:
    return {
        part.topic_id: set(part.partitions) for part in asked.answer.assignment.topic_partitions
    }


@pytest.fixture
def busy(groups: Any) -> Any:
    """A group of one member and many partitions, whose target job waits for the driver."""
    groups.topic = groups.make_topic("orders", COUNT)
    assert groups.enter("a").answer.member_epoch == 1
    groups.is_working = False
    return groups


def test_only_the_joining_member_of_a_large_group_waits_for_its_target(busy: Any) -> None:
    joined = busy.enter("b")
    assert not joined.is_answered
    assert busy.consumer_heartbeat("a", 1).answer.error_code == ErrorCode.NONE
    busy.commit(group_id="other")
    assert "other" in busy.shard.groups
    assert work_off(busy) > STEPS_AT_ONCE
    assert joined.answer.member_epoch == 2
    assert busy.consumers.target_epoch == 2
    assert len(busy.consumers.target_of("b")[busy.topic]) == COUNT // 2


def test_the_steps_are_small_where_partitions_are_many(busy: Any) -> None:
    busy.enter("b")
    # Each partition is looked at three times at least: gathered, kept or given, and written.
    assert work_off(busy) >= 3 * COUNT // steps.STEP_COST


def test_a_small_group_is_answered_at_once(groups: Any) -> None:
    groups.make_topic("orders", 100)
    groups.is_working = False
    assert groups.enter("a").answer.member_epoch == 1
    assert not groups.shard.has_work


def test_a_member_that_leaves_meanwhile_gets_nothing(busy: Any) -> None:
    joined = busy.enter("b")
    assert busy.consumer_heartbeat("b", -1).answer.member_epoch == -1
    work_off(busy)
    assert joined.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(busy.consumers.targets) == {"a"}
    busy.is_working = True
    busy.consumer_heartbeat("a", 1)
    assert len(busy.consumers.target_of("a")[busy.topic]) == COUNT
    busy.check_replay()


def test_who_joins_meanwhile_waits_for_the_next_target(busy: Any) -> None:
    second, third = busy.enter("b"), busy.enter("c")
    work_off(busy)
    assert (second.answer.member_epoch, third.answer.member_epoch) == (2, 3)
    sizes = sorted(len(target[busy.topic]) for target in busy.consumers.targets.values())
    assert sizes == [3_333, 3_333, 3_334]
    busy.check_replay()


def test_a_static_member_that_comes_back_meanwhile_has_what_its_old_id_was_given(
    busy: Any,
) -> None:
    busy.is_working = True
    busy.enter("s1", instance_id="s")
    busy.consumer_heartbeat("s1", -2, instance_id="s")
    busy.is_working = False
    busy.enter("b")
    again = busy.enter("s2", instance_id="s")
    work_off(busy)
    assert again.answer.error_code == ErrorCode.NONE
    targets = busy.consumers.targets
    assert set(targets) == {"a", "s2", "b"}
    given = [index for target in targets.values() for index in target[busy.topic]]
    assert sorted(given) == list(range(COUNT))
    busy.check_replay()


def test_a_topic_that_goes_meanwhile_is_nobodys(busy: Any) -> None:
    joined = busy.enter("b", ["orders", "users"])
    busy.drop_topic("orders")
    work_off(busy)
    assert joined.is_answered
    busy.is_working = True
    busy.consumer_heartbeat("a", 1)
    assert busy.consumers.targets == {"a": {}, "b": {}}


def test_who_subscribes_other_topics_meanwhile_is_given_none_but_those(busy: Any) -> None:
    users = busy.make_topic("users", 2)
    busy.enter("b")
    busy.consumer_heartbeat("a", 1, topics=["users"])
    for _ in range(COUNT):
        if busy.consumers.target_epoch > 1:
            break
        busy.shard.work(busy.now)
    assert set(busy.consumers.target_of("a")) <= {users}
    work_off(busy)


def test_a_deposed_leader_tells_those_who_wait(busy: Any) -> None:
    joined = busy.enter("b")
    assert not joined.is_answered
    busy.restart()
    assert joined.answer is ErrorCode.NOT_COORDINATOR


def test_a_group_that_ends_during_a_target_job_answers_its_waiting_members(busy: Any) -> None:
    joined = busy.enter("b")
    busy.consumer_heartbeat("b", -1)
    busy.consumer_heartbeat("a", -1)
    assert busy.delete().code is ErrorCode.NONE
    again = busy.enter("c")
    work_off(busy)
    assert joined.answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert again.answer.member_epoch == 1
    assert len(partitions_of(again)[busy.topic]) == COUNT


@pytest.mark.interpreted_only("sets a constant")
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_meanwhile_every_partition_comes_to_one_member(
    groups: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(steps, "STEP_COST", 1)
    monkeypatch.setattr(backlog, "STEPS_AT_ONCE", 1)
    random = Random(seed)
    groups.is_working = False
    groups.make_topic("orders", 12)
    groups.make_topic("users", 5)
    states: dict[str, tuple[int, dict[UUID, set[int]]]] = {}
    joining: dict[str, GroupRequest] = {}

    def consumer_heartbeat(name: str) -> None:
        epoch, owned = states[name]
        heard(name, groups.consumer_heartbeat(name, epoch, owned=owned))

    def heard(name: str, asked: GroupRequest) -> None:
        answer = asked.answer
        if isinstance(answer, ErrorCode) or answer.error_code != ErrorCode.NONE:
            states.pop(name, None)
            return
        owned = states.get(name, (0, {}))[1]
        if answer.assignment is not None:
            owned = partitions_of(asked)
        states[name] = (answer.member_epoch, owned)

    def settle_joins() -> None:
        for name in [name for name, asked in joining.items() if asked.is_answered]:
            heard(name, joining.pop(name))

    for number in range(120):
        action = random.choice(("join", "beat", "beat", "leave", "topics", "step", "step", "step"))
        if action == "join" and len(states) + len(joining) < 6:
            topics = random.choice((["orders"], ["users"], ["orders", "users"]))
            joining[f"m{number}"] = groups.enter(f"m{number}", topics)
        elif action == "beat" and states:
            consumer_heartbeat(random.choice(sorted(states)))
        elif action == "leave" and states:
            name = random.choice(sorted(states))
            groups.consumer_heartbeat(name, -1)
            del states[name]
        elif action == "topics" and not random.randrange(5):
            groups.grow_topic("orders", len(groups.topics.topic("orders").partitions) + 1)
        elif groups.shard.has_work:
            groups.shard.work(groups.now)
            groups.settle()
        settle_joins()
        if number % 10 == 0:
            groups.check_replay()
    groups.is_working = True
    for name in ("last-1", "last-2"):
        joining[name] = groups.enter(name, ["orders", "users"])
    for _ in range(12):
        groups.settle()
        settle_joins()
        for name in list(states):
            consumer_heartbeat(name)
    assert not joining
    held = sorted(
        (topic_id, i) for _, owned in states.values() for topic_id in owned for i in owned[topic_id]
    )
    there = [groups.topics.topic(name) for name in ("orders", "users")]
    assert held == sorted((topic.id, index) for topic in there for index in topic.partitions)
    groups.check_replay()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_get_partitions_with_a_replica_in_their_rack(groups: Any, assignor: str) -> None:
    topic = groups.make_topic_on("orders", [2, 2, 1, 1])
    groups.enter("a", rack_id="r1", assignor=assignor)
    groups.enter("b", rack_id="r2", assignor=assignor)
    assert groups.consumers.target_of("a") == {topic: {2, 3}}
    assert groups.consumers.target_of("b") == {topic: {0, 1}}
    groups.check_replay()


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_another_rack_of_a_broker_or_member_assigns_again(groups: Any, assignor: str) -> None:
    topic = groups.make_topic_on("orders", [2, 2, 1, 1])
    groups.enter("a", rack_id="r1", assignor=assignor)
    groups.enter("b", rack_id="r2", assignor=assignor)
    epoch = groups.consumers.group_epoch

    groups.move_broker(1, "r3")
    assert groups.consumers.group_epoch == epoch + 1
    groups.move_broker(2, "r1")
    assert groups.consumers.group_epoch == epoch + 2
    groups.consumer_heartbeat("b", epoch, rack_id="r3")
    assert groups.consumers.group_epoch == epoch + 3
    assert groups.consumers.target_of("a") == {topic: {0, 1}}
    assert groups.consumers.target_of("b") == {topic: {2, 3}}
    groups.check_replay()


def test_replicas_that_move_to_another_rack_assign_again(groups: Any) -> None:
    topic = groups.make_topic_on("orders", [1, 2])
    groups.make_topic_on("others", [1, 2])
    groups.enter("a", rack_id="r1")
    groups.enter("b", rack_id="r2")
    epoch = groups.consumers.group_epoch
    groups.move_partition("others", 0, 2)
    assert groups.consumers.group_epoch == epoch, "no member reads it"
    groups.move_partition("orders", 0, 2)
    groups.move_partition("orders", 1, 1)
    assert groups.consumers.group_epoch == epoch + 2
    groups.consumer_heartbeat("b", epoch)
    assert groups.consumers.target_of("a") == {topic: {1}}
    groups.check_replay()


def test_racks_count_only_if_a_member_has_one(groups: Any) -> None:
    """Kafka starts a new epoch for each group of the topic (KIP-1101), to no effect."""
    groups.make_topic_on("orders", [1, 2])
    groups.enter("a")
    epoch = groups.consumers.group_epoch
    groups.move_broker(1, "r3")
    groups.move_partition("orders", 0, 2)
    assert groups.consumers.group_epoch == epoch


def test_a_rack_that_changed_during_a_failover_assigns_again(groups: Any) -> None:
    groups.make_topic_on("orders", [1, 2])
    groups.enter("a", rack_id="r1")
    groups.enter("b", rack_id="r2")
    epoch = groups.consumers.group_epoch
    on_topics = groups.shard.on_topics
    groups.shard.on_topics = lambda *_: None
    groups.move_broker(1, "r3")
    assert groups.consumers.group_epoch == epoch
    groups.shard.on_topics = on_topics
    groups.fail_over(len(groups.log))
    assert groups.consumers.group_epoch == epoch + 1
