"""Members of a consumer group: how they join, share topics, stay and leave (KIP-848)."""

from typing import Any
from uuid import UUID

import pytest

from ottla.model.errors import ErrorCode
from ottla.model.settings.groups import GroupConfig

SESSION_MS = 45_000
REBALANCE_MS = 60_000


def given(answer: Any) -> dict[UUID, set[int]] | None:
    """Return the assignment that a heartbeat's answer has."""
    if answer.assignment is None:
        return None
    return {one.topic_id: set(one.partitions) for one in answer.assignment.topic_partitions}


def consumer_heartbeat(groups: Any, member_id: str, epoch: int, **more: Any) -> Any:
    """Send a heartbeat that is taken; return its answer."""
    answer = groups.consumer_heartbeat(member_id, epoch, **more).answer
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    groups.check_replay()
    return answer


def enter(groups: Any, member_id: str, *topics: str, **more: Any) -> Any:
    answer = groups.enter(member_id, topics or ("orders",), **more).answer
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    groups.check_replay()
    return answer


def share(groups: Any, topic: UUID, *member_ids: str) -> dict[str, set[int]]:
    """Send heartbeats of all members in turn until nothing moves; return each one's partitions of a
    topic."""
    for _ in range(4):
        for member_id in member_ids:
            member = groups.consumers.members[member_id]
            consumer_heartbeat(groups, member_id, member.member_epoch, owned=member.assigned)
    return {
        member_id: set(groups.consumers.members[member_id].assigned.get(topic, ()))
        for member_id in member_ids
    }


# ---- joining


def test_the_first_member_gets_everything_with_its_first_answer(groups: Any) -> None:
    topic = groups.make_topic("orders", 3)
    answer = enter(groups, "a")
    assert (answer.member_id, answer.member_epoch, given(answer)) == ("a", 1, {topic: {0, 1, 2}})
    assert answer.heartbeat_interval_ms == 5_000
    assert groups.consumers.state == "Stable"


def test_a_second_member_gets_what_the_first_gave_up(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    enter(groups, "a")
    second = enter(groups, "b")
    assert (second.member_epoch, given(second)) == (2, {})
    assert groups.consumers.state == "Reconciling"
    answer = consumer_heartbeat(groups, "a", 1)
    kept = given(answer)
    assert kept is not None
    assert answer.member_epoch == 1
    assert len(kept[topic]) == 2
    assert given(consumer_heartbeat(groups, "b", 2)) is None, "the first has not given anything up"
    assert consumer_heartbeat(groups, "a", 1, owned=kept).member_epoch == 2
    assert given(consumer_heartbeat(groups, "b", 2)) == {topic: {0, 1, 2, 3} - kept[topic]}
    assert groups.consumers.state == "Stable"


def test_an_old_version_leaves_the_id_to_the_coordinator(groups: Any) -> None:
    groups.make_topic("orders")
    answer = enter(groups, "")
    assert answer.member_id in groups.consumers.members
    assert answer.member_id


def test_a_member_of_no_topic_that_exists_waits_for_it(groups: Any) -> None:
    assert given(enter(groups, "a", "orders")) == {}
    topic = groups.make_topic("orders", 2)
    assert given(consumer_heartbeat(groups, "a", 1)) == {topic: {0, 1}}


def test_an_answer_leaves_when_it_is_committed(groups: Any) -> None:
    groups.make_topic("orders")
    groups.is_committing = False
    asked = groups.enter("a")
    assert not asked.is_answered
    groups.commit_log()
    assert asked.answer.member_epoch == 1


def test_a_join_whose_answer_was_lost_may_be_repeated(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a")
    again = enter(groups, "a")
    assert (again.member_epoch, given(again)) == (1, {topic: {0, 1}})


def test_a_full_group_refuses_new_members_and_serves_its_own(make_groups: Any) -> None:
    groups = make_groups(GroupConfig(consumer_size_max=1))
    groups.make_topic("orders")
    enter(groups, "a")
    assert groups.enter("b").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    consumer_heartbeat(groups, "a", 1)


def test_a_member_too_large_for_the_log_is_refused_and_changes_nothing(groups: Any) -> None:
    groups.record_bytes_max = 1_000
    many = [f"topic-{n}" for n in range(200)]
    assert groups.enter("a", many).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not groups.shard.groups
    enter(groups, "a")
    written = len(groups.log)
    assert groups.consumer_heartbeat("a", 1, topics=many).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(groups.log) == written


def test_a_static_member_with_an_oversized_id_replaces_no_member(
    groups: Any,
) -> None:
    groups.make_topic("orders", 4)
    enter(groups, "a", instance_id="i")
    groups.consumer_heartbeat("a", -2, instance_id="i")
    written = len(groups.log)
    groups.record_bytes_max = 1_000
    asked = groups.enter("b" * 1_000, instance_id="i")
    assert asked.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (len(groups.log), list(groups.consumers.members)) == (written, ["a"])


def test_a_regex_of_too_many_topics_for_one_record_is_kept_in_memory_alone(groups: Any) -> None:
    groups.record_bytes_max = 1_000
    topics = [groups.make_topic(f"topic-{number:03}", 1) for number in range(200)]
    answer = groups.enter("a", [], regex="topic-.*").answer
    assert set(given(answer) or {}) == set(topics)
    assert not [key for key, _ in groups.log if key.startswith(b"\x00\x10")]


# ---- epochs


def test_an_epoch_ahead_or_far_behind_is_fenced_and_may_rejoin(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a")
    assert groups.consumer_heartbeat("a", 7).code is ErrorCode.FENCED_MEMBER_EPOCH
    groups.make_topic("more")
    consumer_heartbeat(groups, "a", 1, topics=("orders", "more"))
    groups.grow_topic("orders", 3)
    consumer_heartbeat(groups, "a", 2)
    assert groups.consumer_heartbeat("a", 1).code is ErrorCode.FENCED_MEMBER_EPOCH
    again = enter(groups, "a")
    assert given(again) == {topic: {0, 1, 2}}


def test_a_living_members_id_cannot_join_again(groups: Any) -> None:
    groups.make_topic("orders", 2)
    enter(groups, "a")
    groups.grow_topic("orders", 3)
    consumer_heartbeat(groups, "a", 1)
    groups.grow_topic("orders", 4)
    consumer_heartbeat(groups, "a", 2)
    assert groups.enter("a").code is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_taken_from_who_missed_the_answer(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a")
    groups.grow_topic("orders", 3)
    assert consumer_heartbeat(groups, "a", 1).member_epoch == 2
    assert groups.consumer_heartbeat("a", 1).code is ErrorCode.FENCED_MEMBER_EPOCH, (
        "it does not say what it owns"
    )
    enter(groups, "a")
    groups.grow_topic("orders", 4)
    assert consumer_heartbeat(groups, "a", 2).member_epoch == 3
    again = consumer_heartbeat(groups, "a", 2, owned={topic: [0, 1]})
    assert again.member_epoch == 3


def test_the_epoch_before_with_partitions_it_lost_is_fenced(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a")
    enter(groups, "b")
    share(groups, topic, "a", "b")
    groups.grow_topic("orders", 4)
    consumer_heartbeat(groups, "a", 2)
    code = groups.consumer_heartbeat("a", 2, owned={topic: [0, 1, 2, 3]}).code
    assert code is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [1, -1])
def test_who_is_not_in_the_group_is_unknown(groups: Any, epoch: int) -> None:
    groups.make_topic("orders")
    enter(groups, "a")
    assert groups.consumer_heartbeat("b", epoch).code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_a_group_that_is_not_there_is_not_made_by_who_does_not_join(
    groups: Any, epoch: int
) -> None:
    assert (
        groups.consumer_heartbeat("a", epoch, instance_id="i").code is ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert not groups.shard.groups


# ---- leaving, timers


def test_what_a_member_leaves_is_shared_out_with_the_next_heartbeat(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    enter(groups, "a")
    enter(groups, "b")
    share(groups, topic, "a", "b")
    left = consumer_heartbeat(groups, "b", -1)
    assert (left.member_id, left.member_epoch) == ("b", -1)
    assert groups.consumers.state == "Assigning"
    assert given(consumer_heartbeat(groups, "a", 2)) == {topic: {0, 1, 2, 3}}


def test_the_last_one_out_leaves_an_empty_group(groups: Any) -> None:
    groups.make_topic("orders")
    enter(groups, "a")
    consumer_heartbeat(groups, "a", -1)
    assert groups.consumers.state == "Empty"
    assert enter(groups, "b").member_epoch == 3


def test_a_silent_member_is_out_after_its_session(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a")
    enter(groups, "b")
    share(groups, topic, "a", "b")
    groups.pass_time(SESSION_MS - 1)
    consumer_heartbeat(groups, "a", 2)
    groups.pass_time(1)
    assert list(groups.consumers.members) == ["a"]
    assert given(consumer_heartbeat(groups, "a", 2)) == {topic: {0, 1}}


def test_what_two_silent_members_leave_behind_may_be_parted_but_neither_half(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a")
    enter(groups, "b")
    share(groups, topic, "a", "b")

    groups.mono_ms += SESSION_MS
    groups.shard.on_time(groups.now)

    writes = groups.shard.take_effects().writes
    assert len(writes) == 2
    assert all(any(value is None for _, value in write) for write in writes)
    assert not groups.consumers.members


def test_who_does_not_give_up_in_time_is_out(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a", rebalance_ms=20_000)
    enter(groups, "b")
    consumer_heartbeat(groups, "a", 1)
    groups.pass_time(19_999)
    consumer_heartbeat(groups, "a", 1, owned={topic: [0, 1]})
    assert "a" in groups.consumers.members
    groups.pass_time(1)
    assert groups.consumer_heartbeat("a", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert given(consumer_heartbeat(groups, "b", 2)) == {topic: {0, 1}}


def test_who_gave_up_in_time_stays(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a", rebalance_ms=20_000)
    enter(groups, "b")
    share(groups, topic, "a", "b")
    groups.pass_time(20_001)
    assert set(groups.consumers.members) == {"a", "b"}


def test_a_process_that_stood_still_counts_nobodys_silence(groups: Any) -> None:
    groups.make_topic("orders", 2)
    enter(groups, "a")
    groups.mono_ms += 10 * SESSION_MS
    groups.shard.restart_sessions(groups.now)
    groups.settle()
    assert "a" in groups.consumers.members


# ---- static members


def test_a_static_member_that_left_for_a_while_gets_its_own_back(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    enter(groups, "a", instance_id="i")
    enter(groups, "b")
    has = share(groups, topic, "a", "b")
    epoch = groups.consumers.group_epoch
    away = consumer_heartbeat(groups, "a", -2, instance_id="i")
    assert away.member_epoch == -2
    assert given(consumer_heartbeat(groups, "b", epoch)) is None, "its partitions are kept for it"
    back = enter(groups, "a2", instance_id="i")
    assert (back.member_epoch, given(back)) == (epoch, {topic: has["a"]})
    assert groups.consumers.group_epoch == epoch, "no other member was disturbed"
    assert set(groups.consumers.members) == {"a2", "b"}


def test_a_static_member_that_does_not_come_back_is_out_after_its_session(groups: Any) -> None:
    groups.make_topic("orders", 4)
    enter(groups, "a", instance_id="i")
    consumer_heartbeat(groups, "a", -2, instance_id="i")
    groups.pass_time(SESSION_MS)
    assert not groups.consumers.members
    assert not groups.consumers.static_members


def test_an_instance_id_in_use_is_not_given_to_another(groups: Any) -> None:
    groups.make_topic("orders")
    enter(groups, "a", instance_id="i")
    assert groups.enter("b", instance_id="i").code is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_member_may_repeat_its_join(groups: Any) -> None:
    groups.make_topic("orders")
    enter(groups, "a", instance_id="i")
    assert enter(groups, "a", instance_id="i").member_epoch == 1


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_a_static_member_that_was_replaced_is_fenced(groups: Any, epoch: int) -> None:
    groups.make_topic("orders")
    enter(groups, "a", instance_id="i")
    consumer_heartbeat(groups, "a", -2, instance_id="i")
    enter(groups, "b", instance_id="i")
    assert (
        groups.consumer_heartbeat("a", epoch, instance_id="i").code is ErrorCode.FENCED_INSTANCE_ID
    )
    assert (
        groups.consumer_heartbeat("a", epoch, instance_id="j").code is ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_static_member_leaves_for_good_too(groups: Any) -> None:
    groups.make_topic("orders")
    enter(groups, "a", instance_id="i")
    consumer_heartbeat(groups, "a", -1, instance_id="i")
    assert groups.consumers.state == "Empty"
    assert not groups.consumers.static_members


# ---- subscriptions and topics


def test_another_subscription_is_another_epoch(groups: Any) -> None:
    orders, bills = groups.make_topic("orders", 1), groups.make_topic("bills", 1)
    enter(groups, "a", "orders")
    answer = consumer_heartbeat(groups, "a", 1, topics=("bills",), owned={orders: [0]})
    assert (answer.member_epoch, given(answer)) == (1, {})
    answer = consumer_heartbeat(groups, "a", 1, owned={})
    assert (answer.member_epoch, given(answer)) == (2, {bills: {0}})


def test_a_full_heartbeat_is_answered_with_the_whole_assignment(groups: Any) -> None:
    orders = groups.make_topic("orders", 1)
    enter(groups, "a")
    assert given(consumer_heartbeat(groups, "a", 1)) is None
    full = consumer_heartbeat(
        groups, "a", 1, topics=("orders",), owned={orders: [0]}, rebalance_ms=REBALANCE_MS
    )
    assert given(full) == {orders: {0}}
    assert groups.consumers.group_epoch == 1


def test_a_topic_that_grows_is_reassigned(groups: Any) -> None:
    topic = groups.make_topic("orders", 1)
    enter(groups, "a")
    groups.grow_topic("orders", 3)
    assert groups.consumers.group_epoch == 2
    assert given(consumer_heartbeat(groups, "a", 1)) == {topic: {0, 1, 2}}


def test_a_topic_that_is_deleted_is_given_up(groups: Any) -> None:
    orders, bills = groups.make_topic("orders", 1), groups.make_topic("bills", 1)
    enter(groups, "a", "orders", "bills")
    groups.drop_topic("orders")
    assert given(consumer_heartbeat(groups, "a", 1, owned={orders: [0], bills: [0]})) == {
        bills: {0}
    }
    assert consumer_heartbeat(groups, "a", 1, owned={bills: [0]}).member_epoch == 2


def test_other_topics_do_not_disturb_a_group(groups: Any) -> None:
    groups.make_topic("orders")
    enter(groups, "a")
    written = len(groups.log)
    groups.make_topic("others")
    groups.drop_topic("others")
    assert len(groups.log) == written


def test_a_topic_recreated_under_its_name_is_another_topic(groups: Any) -> None:
    first = groups.make_topic("orders", 1)
    enter(groups, "a")
    groups.drop_topic("orders")
    second = groups.make_topic("orders", 1)
    assert given(consumer_heartbeat(groups, "a", 1, owned={first: [0]})) == {}
    assert given(consumer_heartbeat(groups, "a", 1, owned={})) == {second: {0}}


# ---- regular expressions


def test_a_regex_means_the_topics_there_are_and_those_to_come(groups: Any) -> None:
    first = groups.make_topic("log-1", 1)
    groups.make_topic("other", 1)
    answer = groups.enter("a", None, regex="log-.*").answer
    assert given(answer) == {first: {0}}
    second = groups.make_topic("log-2", 1)
    assert given(consumer_heartbeat(groups, "a", 1)) == {first: {0}, second: {0}}
    groups.drop_topic("log-1")
    assert given(consumer_heartbeat(groups, "a", 2, owned={second: [0]})) == {second: {0}}


def test_names_and_a_regex_add_up(groups: Any) -> None:
    first, second = groups.make_topic("log-1", 1), groups.make_topic("orders", 1)
    answer = enter(groups, "a", "orders", regex="log-.*")
    assert given(answer) == {first: {0}, second: {0}}


def test_who_subscribes_by_a_regex_that_the_group_knows_gets_its_share(groups: Any) -> None:
    topic = groups.make_topic("log-1", 4)
    groups.make_topic("orders", 1)
    groups.enter("a", None, regex="log-.*")
    groups.enter("b", None, regex="log-.*")
    enter(groups, "c", "orders")
    consumer_heartbeat(groups, "c", 3, topics=(), regex="log-.*")
    has = share(groups, topic, "a", "b", "c")
    assert sorted(map(len, has.values())) == [1, 1, 2]


def test_an_unused_regex_is_deleted(groups: Any) -> None:
    groups.make_topic("log-1", 1)
    enter(groups, "a", regex="log-.*")
    enter(groups, "b", regex="log-.*")
    consumer_heartbeat(groups, "a", -1)
    assert groups.consumers.regexes
    consumer_heartbeat(groups, "b", 2, regex="")
    assert not groups.consumers.regexes


def test_what_is_no_regex_is_refused_and_changes_nothing(groups: Any) -> None:
    assert groups.enter("a", regex="(").code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not groups.shard.groups
    assert not groups.log
    groups.make_topic("orders")
    enter(groups, "a")
    written = len(groups.log)
    assert groups.consumer_heartbeat("a", 1, regex="(").code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(groups.log) == written


def test_with_very_many_topics_a_regex_is_resolved_in_slices(
    groups: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [groups.make_topic(f"log-{n}", 1) for n in range(5)]
    monkeypatch.setattr("ottla.broker.groups.consumer.topic_view.SLICE_COST", 1)
    assert given(groups.enter("a", None, regex="log-.*").answer) == {}
    late = groups.make_topic("log-late", 1)
    gone = groups.topics.image.topics[topics.pop()].name
    groups.drop_topic(gone)
    slices = 1
    while not groups.topics.resolve_slice():
        slices += 1
    assert slices > 2
    groups.shard.on_topics(frozenset(), groups.now)
    answer = consumer_heartbeat(groups, "a", 1)
    assert given(answer) == {topic: {0} for topic in [*topics, late]}


# ---- assignors


def test_the_assignor_that_most_would_like_is_taken(groups: Any) -> None:
    groups.make_topic("orders")
    enter(groups, "a", assignor="range")
    assert groups.consumers.assignor_name("uniform") == "range"
    enter(groups, "b", assignor="uniform")
    enter(groups, "c", assignor="uniform")
    enter(groups, "d")
    assert groups.consumers.assignor_name("range") == "uniform"


# ---- coordinators come and go


def test_the_next_coordinator_goes_on_where_the_first_stopped(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    enter(groups, "a")
    enter(groups, "b")
    has = share(groups, topic, "a", "b")
    written = len(groups.log)
    groups.restart()
    assert len(groups.log) == written, "nothing is written because of it"
    assert share(groups, topic, "a", "b") == has
    groups.pass_time(SESSION_MS)
    assert not groups.consumers.members


def test_the_next_coordinator_restarts_the_revocation_timer(groups: Any) -> None:
    groups.make_topic("orders", 4)
    enter(groups, "a", rebalance_ms=20_000)
    enter(groups, "b")
    consumer_heartbeat(groups, "a", 1)
    groups.pass_time(19_000)
    groups.restart()
    groups.pass_time(19_999)
    assert "a" in groups.consumers.members
    groups.pass_time(1)
    assert "a" not in groups.consumers.members


def test_topics_that_changed_between_coordinators_are_noticed(groups: Any) -> None:
    topic = groups.make_topic("orders", 1)
    enter(groups, "a", regex="log-.*")
    log, groups.log = groups.log, []
    groups.grow_topic("orders", 2)
    more = groups.make_topic("log-1", 1)
    groups.log = log
    groups.commit_log()
    groups.restart()
    assert given(consumer_heartbeat(groups, "a", 1)) == {topic: {0, 1}, more: {0}}


def test_what_another_coordinator_let_in_does_not_stop_the_group(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    enter(groups, "a", assignor="uniform", regex="bills")
    groups.log = [
        (key.replace(b"bills", b"bill("), value and value.replace(b"bills", b"bill("))
        for key, value in groups.log
    ]
    groups.log = [
        (key, value and value.replace(b"uniform", b"ordered")) for key, value in groups.log
    ]
    groups.commit_log()
    groups.restart()
    enter(groups, "b")
    has = share(groups, topic, "a", "b")
    assert sorted(map(len, has.values())) == [1, 1]
