"""Groups that go over from one protocol to the other while members of both are in them."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.consumer.embedded_protocol import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from ottla.model.errors import ErrorCode
from ottla.model.settings.groups import GroupConfig
from ottla.wire.codec import encode
from ottla.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
)

RANGE = "range"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, version: int = 3, **owned: list[int]) -> bytes:
    """Return a classic consumer's subscription metadata for its leader."""
    value = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=topic, partitions=indexes) for topic, indexes in owned.items()
        ],
    )
    return version.to_bytes(2) + encode(value, version)


def join(groups: Any, member_id: str = "", *topics: str, **more: Any) -> Any:
    owned = more.pop("owned", {})
    data = subscription(*(topics or ("orders",)), **owned)
    return groups.join(member_id, protocols=[(RANGE, data)], **more)


def part_of(groups: Any, asked: Any) -> dict[UUID, set[int]]:
    """Return the assignment in a SyncGroup response."""
    assert asked.code is ErrorCode.NONE
    found: Mapping[UUID, frozenset[int]] = read_assignment(asked.answer.assignment, groups.topics)
    return {topic_id: set(indexes) for topic_id, indexes in found.items()}


def given(asked: Any) -> dict[UUID, set[int]]:
    return {one.topic_id: set(one.partitions) for one in asked.answer.assignment.topic_partitions}


def classic_group(groups: Any, topic: UUID, *, instance_id: str | None = None) -> str:
    """Make a classic group of one consumer that has four partitions of the topic."""
    member_id: str = join(groups, instance_id=instance_id).answer.member_id
    part = assignment_bytes({topic: frozenset(range(4))}, b"\0\3", groups.topics)
    asked = groups.sync(member_id, 1, {member_id: part}, group_instance_id=instance_id)
    assert part_of(groups, asked) == {topic: {0, 1, 2, 3}}
    return member_id


def test_a_classic_group_takes_in_a_consumer_and_both_share_its_topics(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    new = groups.enter("new")
    assert (new.answer.member_epoch, given(new)) == (2, {})
    assert groups.consumers.members[old].assigned == {topic: frozenset(range(4))}
    groups.check_replay()

    assert groups.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = join(groups, old, owned={"orders": [0, 1, 2, 3]})
    assert again.answer.generation_id == 1, "it has to give something up first"
    kept = part_of(groups, groups.sync(old, 1))
    assert len(kept[topic]) == 2
    assert groups.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS, "and to say that it did"
    done = join(groups, old, owned={"orders": sorted(kept[topic])})
    assert done.answer.generation_id == 2
    assert part_of(groups, groups.sync(old, 2)) == kept
    assert groups.heartbeat(old, 2) is ErrorCode.NONE
    assert given(groups.consumer_heartbeat("new", 2)) == {topic: {0, 1, 2, 3} - kept[topic]}
    assert groups.consumers.state == "Stable"
    groups.check_replay()
    assert groups.commit(member_id=old, generation_id=2).answer == [[ErrorCode.NONE]]
    late = groups.commit(member_id=old, generation_id=1)
    assert late.answer is ErrorCode.ILLEGAL_GENERATION


def test_an_eager_member_gives_everything_up_with_its_join(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    assert join(groups, old).answer.generation_id == 2
    has = part_of(groups, groups.sync(old, 2))
    assert given(groups.consumer_heartbeat("new", 2)) == {topic: {0, 1, 2, 3} - has[topic]}


def test_a_classic_member_rebalances_when_its_partition_is_free(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    groups.enter("new")
    asked = join(groups)
    old = asked.answer.member_id
    assert asked.answer.generation_id == 2
    assert part_of(groups, groups.sync(old, 2)) == {}
    assert groups.heartbeat(old, 2) is ErrorCode.NONE
    answer = groups.consumer_heartbeat("new", 1)
    groups.consumer_heartbeat("new", 1, owned=given(answer))
    assert groups.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(groups, old).answer.generation_id == 2
    assert part_of(groups, groups.sync(old, 2)) == {topic: {0, 1, 2, 3} - given(answer)[topic]}


def test_held_joins_are_sent_back_when_the_group_goes_over(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    held = join(groups, version=3)
    assert not held.is_answered
    groups.enter("new")
    assert held.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert old in groups.consumers.members


def test_with_the_last_consumer_gone_the_group_is_classic_again(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    join(groups, old)
    groups.sync(old, 2)
    groups.consumer_heartbeat("new", 2)
    groups.commit(9, member_id=old, generation_id=2)
    groups.consumer_heartbeat("new", -1)
    assert groups.group.state == "PreparingRebalance"
    assert groups.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert join(groups, old).answer.generation_id == 3
    assert groups.fetched().offset == 9
    groups.restart()
    assert list(groups.group.members) == [old]


def test_a_downgrade_interrupted_by_a_failover_makes_every_member_rejoin(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    join(groups, old)
    groups.sync(old, 2)
    groups.consumer_heartbeat("new", -1)
    groups.restart()
    assert groups.heartbeat(old, 2) is ErrorCode.ILLEGAL_GENERATION


def test_what_a_member_has_is_known_when_the_group_goes_over_again_at_once(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    groups.consumer_heartbeat("new", -1)
    assert given(groups.enter("newer")) == {}
    assert groups.consumers.members[old].assigned == {topic: frozenset(range(4))}


def test_a_consumer_that_falls_silent_leaves_a_classic_group_too(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    join(groups, old)
    groups.sync(old, 2)
    for _ in range(9):
        groups.pass_time(5_000)
        if groups.shard.groups["group"].type == "consumer":
            groups.heartbeat(old, 2)
    assert list(groups.group.members) == [old]


def test_a_classic_member_goes_over_under_its_instance_id(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic, instance_id="i")
    asked = groups.enter("new", instance_id="i")
    assert given(asked) == {topic: {0, 1, 2, 3}}
    assert groups.heartbeat(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert list(groups.consumers.members) == ["new"]


def test_a_consumer_goes_back_under_its_instance_id(groups: Any) -> None:
    groups.make_topic("orders", 4)
    groups.enter("new", instance_id="i")
    asked = join(groups, instance_id="i")
    assert asked.code is ErrorCode.NONE
    assert list(groups.group.members) == [asked.answer.member_id]


@pytest.mark.parametrize("last_asked", ["join", "sync", "nothing"])
def test_a_classic_member_that_is_silent_or_slow_is_out(groups: Any, last_asked: str) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    if last_asked != "nothing":
        join(groups, old, session_ms=600_000, rebalance_ms=8_000)
    if last_asked == "sync":
        groups.sync(old, 2)
        groups.grow_topic("orders", 5)
        groups.consumer_heartbeat("new", 2)
        assert groups.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    groups.pass_time(7_999)
    assert old in groups.consumers.members
    groups.pass_time(2_001)
    assert list(groups.consumers.members) == ["new"]


def test_classic_members_leave_by_their_own_request(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic, instance_id="i")
    groups.enter("new")
    assert groups.leave(("stranger", None), ("", "i"), (old, None)).answer == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert groups.leave((old, None)).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert list(groups.consumers.members) == ["new"]
    groups.consumer_heartbeat("new", 2)
    assert given(
        groups.consumer_heartbeat("new", 3, topics=["orders"], owned={}, rebalance_ms=1)
    ) == {topic: {0, 1, 2, 3}}


LEAVERS = {
    "a dynamic member by its id": (("new", None), ErrorCode.NONE),
    "a static member by its instance id": (("", "i"), ErrorCode.NONE),
    "a static member by its id": (("static", None), ErrorCode.NONE),
    "a static member by both": (("static", "i"), ErrorCode.NONE),
    "another id under an instance id": (("new", "i"), ErrorCode.FENCED_INSTANCE_ID),
    "an unknown instance id": (("", "j"), ErrorCode.UNKNOWN_MEMBER_ID),
    "an unknown id": (("stranger", None), ErrorCode.UNKNOWN_MEMBER_ID),
    "no id": (("", None), ErrorCode.UNKNOWN_MEMBER_ID),
}
"""Members named by LeaveGroup, and Kafka 4.4's answer for those of the consumer protocol."""


@pytest.mark.parametrize("name", LEAVERS)
def test_an_admin_removes_members_of_the_consumer_protocol(groups: Any, name: str) -> None:
    identity, code = LEAVERS[name]
    groups.make_topic("orders", 4)
    groups.enter("new")
    groups.enter("static", instance_id="i")
    epoch = groups.consumers.group_epoch

    assert groups.leave(identity).answer == [code]

    gone = (
        set() if code is not ErrorCode.NONE else {"static" if identity != ("new", None) else "new"}
    )
    assert set(groups.consumers.members) == {"new", "static"} - gone
    assert groups.consumers.group_epoch == epoch + len(gone)
    for member_id in gone:
        assert groups.consumer_heartbeat(member_id, 1).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_all_members_that_one_request_removes_leave_in_one_epoch(groups: Any) -> None:
    groups.make_topic("orders", 4)
    for member_id in ("a", "b", "c"):
        groups.enter(member_id)
    epoch = groups.consumers.group_epoch
    assert groups.leave(("a", None), ("b", None), ("a", None)).answer == [ErrorCode.NONE] * 3
    assert set(groups.consumers.members) == {"c"}
    assert groups.consumers.group_epoch == epoch + 1


def test_a_group_whose_consumers_are_removed_is_classic_again(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    groups.enter("newer")
    assert groups.leave(("new", None), ("newer", None)).answer == [ErrorCode.NONE] * 2
    assert list(groups.group.members) == [old]
    groups.restart()
    assert list(groups.group.members) == [old]


def test_a_group_whose_members_are_all_removed_is_empty(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    assert groups.leave((old, None), ("new", None)).answer == [ErrorCode.NONE] * 2
    assert groups.consumers.members == {}
    groups.restart()
    assert groups.consumers.members == {}


def test_who_goes_over_itself_is_not_waited_for_as_a_classic_member(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    old = classic_group(groups, topic)
    groups.enter("new")
    assert groups.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    epoch = groups.consumer_heartbeat(
        old, 1, topics=["orders"], owned={topic: range(4)}
    ).answer.member_epoch
    for _ in range(REBALANCE_MS // 10_000):
        groups.pass_time(10_000)
        member = groups.consumers.members[old]
        epoch = groups.consumer_heartbeat(old, epoch, owned=member.assigned).answer.member_epoch
    assert groups.consumers.members[old].classic is None


def test_a_full_classic_group_does_not_go_over_for_whom_it_has_no_room(make_groups: Any) -> None:
    groups = make_groups(GroupConfig(initial_rebalance_delay_ms=0, consumer_size_max=1))
    old = classic_group(groups, groups.make_topic("orders", 4))
    assert groups.enter("new").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.heartbeat(old, 1) is ErrorCode.NONE
    assert groups.group.state == "Stable"


def test_a_join_too_large_for_the_log_changes_nothing(groups: Any) -> None:
    groups.make_topic("orders", 4)
    groups.enter("new")
    written = len(groups.log)
    groups.record_bytes_max = 1_000
    assert join(groups, "", "t" * 1_000).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (len(groups.log), list(groups.consumers.members)) == (written, ["new"])


def test_a_classic_group_whose_members_say_too_much_does_not_go_over(groups: Any) -> None:
    old = classic_group(groups, groups.make_topic("orders", 4))
    groups.record_bytes_max = 50
    assert groups.enter("new", []).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.heartbeat(old, 1) is ErrorCode.NONE
    assert groups.group.state == "Stable"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_may_forbid_to_go_over(make_groups: Any, policy: str) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    groups = make_groups(config)
    classic_group(groups, groups.make_topic("orders", 4))
    assert groups.enter("new").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.group.state == "Stable"


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_policy_may_forbid_to_go_back(make_groups: Any, policy: str) -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    groups = make_groups(config)
    groups.make_topic("orders", 4)
    groups.enter("new")
    old = join(groups).answer.member_id
    groups.consumer_heartbeat("new", -1)
    assert list(groups.consumers.members) == [old]
    assert groups.heartbeat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda g, m: g.sync("new", 2).code, ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda g, m: g.sync(m, 7).code, ErrorCode.ILLEGAL_GENERATION),
        (
            lambda g, m: g.sync(m, 2, protocol_type="connect").code,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            lambda g, m: g.sync(m, 2, protocol_name="sticky").code,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (lambda g, m: g.heartbeat("new", 2), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda g, m: g.heartbeat(m, 1), ErrorCode.ILLEGAL_GENERATION),
        (
            lambda g, m: g.join(protocols=[(RANGE, b"?")]).code,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            lambda g, m: g.join(protocols=[("other", subscription("orders"))]).code,
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (lambda g, m: join(g, protocol_type="connect").code, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (lambda g, m: join(g, version=4).code, ErrorCode.MEMBER_ID_REQUIRED),
        (lambda g, m: join(g, "x", instance_id="i").code, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_classic_member_may_do_wrong_has_kafkas_code(
    groups: Any, ask: Any, code: ErrorCode
) -> None:
    groups.make_topic("orders", 4)
    groups.enter("new")
    member = join(groups).answer.member_id
    assert ask(groups, member) is code


def test_what_is_no_subscription_is_none() -> None:
    assert read_subscription(b"") is None
    assert read_subscription(b"\xff\xff") is None
    assert read_subscription(b"\0\0\0\0\0\7") is None
    found = read_subscription(subscription("a", version=0))
    assert found is not None
    assert (found.topics, found.owned) == (frozenset("a"), {})


def test_a_form_of_its_own_is_left_alone(groups: Any) -> None:
    groups.stable(size=1)
    assert groups.enter("new").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.group.state == "Stable"
