"""Classic group members: they join, get assignments, heartbeat and leave; one story a test."""

from typing import Any

import pytest

from ottla.broker.coordinators.effects import MemberClient
from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.classic.classic_member import ClassicMember
from ottla.broker.groups.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.model.errors import ErrorCode
from ottla.model.settings.groups import GroupConfig

REBALANCE_MS = 60_000
SESSION_MS = 10_000
RANGE, STICKY, ROBIN = ("range", b"r"), ("sticky", b"s"), ("roundrobin", b"o")


def test_one_member_joins_gets_its_share_and_is_stable(groups: Any) -> None:
    joined = groups.join().answer
    assert joined.error_code == ErrorCode.NONE
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id == "client-1"
    assert joined.protocol_name == "range"
    assert [one.metadata for one in joined.members] == [b"topics"]
    synced = groups.sync(joined.member_id, 1, {joined.member_id: b"all"}).answer
    assert synced.assignment == b"all"
    assert groups.group.state == "Stable"
    assert groups.heartbeat(joined.member_id, 1) is ErrorCode.NONE


def test_a_newcomer_waits_until_the_others_have_joined_again(groups: Any) -> None:
    (first,) = groups.stable(size=1)
    newcomer = groups.join()
    assert not newcomer.is_answered
    assert groups.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = groups.join(first)
    assert newcomer.answer.generation_id == again.answer.generation_id == 2
    assert len(again.answer.members) == 2, "the leader gets all members"
    assert newcomer.answer.members == [], "a follower gets none"


def test_a_followers_sync_waits_for_the_leaders(groups: Any) -> None:
    leader, follower = groups.stable(size=2)
    late = groups.join(follower, protocols=[("range", b"other topics")])
    groups.join(leader)
    waiting = groups.sync(follower, 3)
    assert not waiting.is_answered
    groups.sync(leader, 3, {leader: b"a", follower: b"b"})
    assert late.answer.generation_id == 3
    assert waiting.answer.assignment == b"b"


def test_an_assignment_is_sent_only_after_it_is_committed(groups: Any) -> None:
    member = groups.join().answer.member_id
    groups.is_committing = False
    synced = groups.sync(member, 1, {member: b"all"})
    again = groups.sync(member, 1)
    assert not synced.is_answered
    assert not again.is_answered
    groups.commit_log()
    assert synced.answer.assignment == again.answer.assignment == b"all"


def test_who_does_not_join_in_time_is_out(groups: Any) -> None:
    _first, second = groups.stable(size=2)
    groups.join(second, protocols=[("range", b"other topics")], rebalance_ms=5_000)
    groups.pass_time(SESSION_MS)  # the session of the other one ends first
    assert list(groups.group.members) == [second]
    assert groups.group.generation_id == 3
    assert groups.group.is_leader(second), "the lead passed on"


def test_the_slowest_members_rebalance_timeout_holds(groups: Any) -> None:
    slow, fast = groups.stable(size=2, rebalance_ms=REBALANCE_MS, session_ms=300_000)
    joined = groups.join(fast, protocols=[RANGE], rebalance_ms=1_000, session_ms=300_000)
    groups.pass_time(REBALANCE_MS - 1)
    assert not joined.is_answered
    groups.pass_time(1)
    assert joined.answer.leader == fast
    assert groups.heartbeat(slow, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_and_the_others_rebalance(groups: Any) -> None:
    first, second = groups.stable(size=2)
    groups.pass_time(SESSION_MS // 2)
    groups.heartbeat(second, 2)
    groups.pass_time(SESSION_MS // 2)
    assert list(groups.group.members) == [second]
    assert groups.heartbeat(second, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.join(second).answer.generation_id == 3
    assert groups.heartbeat(first, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_join_is_held_needs_no_heartbeat(groups: Any) -> None:
    first, second = groups.stable(size=2, session_ms=SESSION_MS)
    groups.join(second, protocols=[RANGE])
    groups.pass_time(SESSION_MS - 1)
    groups.heartbeat(first, 2)
    groups.pass_time(SESSION_MS - 1)
    assert set(groups.group.members) == {first, second}


def test_a_new_members_join_is_held_for_five_minutes(groups: Any) -> None:
    """Its client may have died long ago, and joined again under another id."""
    (first,) = groups.stable(size=1, rebalance_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
    newcomer = groups.join(session_ms=SESSION_MS)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS):
        assert not newcomer.is_answered
        groups.pass_time(SESSION_MS - 1)
        groups.heartbeat(first, 1)
    groups.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS)
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer.answer.member_id == ""


def test_who_does_not_fetch_its_share_in_time_is_out(groups: Any) -> None:
    leader, lazy = groups.stable(size=2, session_ms=300_000)
    groups.join(lazy, protocols=[RANGE], session_ms=300_000)
    groups.join(leader, session_ms=300_000)
    groups.sync(leader, 3, {leader: b"a", lazy: b"b"})
    groups.pass_time(REBALANCE_MS)
    assert list(groups.group.members) == [leader]
    assert groups.heartbeat(leader, 3) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_brings_the_assignment_is_out(groups: Any) -> None:
    leader, follower = groups.stable(size=2, session_ms=300_000)
    groups.join(follower, protocols=[RANGE], session_ms=300_000)
    groups.join(leader, session_ms=300_000)
    waiting = groups.sync(follower, 3)
    groups.pass_time(REBALANCE_MS)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(groups.group.members) == [follower]


# ---- protocols


@pytest.mark.parametrize(
    ("members", "chosen"),
    [
        ([[RANGE, STICKY], [STICKY, RANGE], [STICKY, RANGE]], "sticky"),
        ([[RANGE, STICKY], [RANGE]], "range"),
        ([[STICKY, RANGE], [STICKY, RANGE], [ROBIN, RANGE]], "range"),
        ([[ROBIN]], "roundrobin"),
    ],
)
def test_most_votes_win_among_what_all_support(
    members: list[list[tuple[str, bytes]]], chosen: str
) -> None:
    group = ClassicGroup("group")
    for number, protocols in enumerate(members):
        group.add(
            ClassicMember(
                f"member-{number}",
                None,
                MemberClient("client", "/10.0.0.9"),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=tuple(protocols),
            )
        )
    assert group.chosen_protocol() == chosen


def test_a_member_that_changes_its_topics_starts_a_rebalance(groups: Any) -> None:
    leader, follower = groups.stable(size=2)
    assert groups.join(follower).answer.generation_id == 2, "nothing has changed"
    assert groups.group.state == "Stable"
    groups.join(follower, protocols=[("range", b"more")])
    assert groups.group.state == "PreparingRebalance"
    assert groups.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_leader_starts_a_rebalance_by_joining_again(groups: Any) -> None:
    leader, _ = groups.stable(size=2)
    groups.join(leader)
    assert groups.group.state == "PreparingRebalance"


def test_a_lost_join_answer_is_given_again(groups: Any) -> None:
    first = groups.join().answer
    again = groups.join(first.member_id).answer
    assert again == first
    assert groups.group.generation_id == 1


# ---- ids before joining, first rebalances, sizes


def test_a_dynamic_member_gets_its_id_first_and_joins_with_it(groups: Any) -> None:
    asked = groups.join(version=4).answer
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert asked.member_id == "client-1"
    assert groups.group.members == {}
    assert groups.join(asked.member_id, version=4).answer.generation_id == 1


def test_an_id_that_is_not_used_is_taken_back(groups: Any) -> None:
    given = groups.join(version=4).answer.member_id
    groups.pass_time(SESSION_MS)
    assert groups.join(given, version=4).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_given_out(groups: Any) -> None:
    (first,) = groups.stable(size=1)
    given = groups.join(version=4).answer.member_id
    again = groups.join(first)
    assert not again.is_answered
    groups.join(given, version=4)
    assert again.answer.generation_id == 2
    assert len(groups.group.members) == 2


def test_an_empty_group_waits_for_more_members_before_its_first_rebalance(
    make_groups: Any,
) -> None:
    groups = make_groups(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = groups.join()
    groups.pass_time(2_999)
    assert not first.is_answered
    second = groups.join()
    groups.pass_time(1)
    assert not first.is_answered, "a newcomer extends the delay"
    groups.pass_time(3_000)
    assert first.answer.generation_id == second.answer.generation_id == 1
    assert len(first.answer.members) == 2


def test_the_first_rebalance_is_not_put_off_beyond_the_rebalance_timeout(make_groups: Any) -> None:
    groups = make_groups(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = groups.join(rebalance_ms=8_000)
    for _ in range(4):
        groups.pass_time(2_000)
        groups.join(rebalance_ms=8_000)
    assert first.answer.generation_id == 1


def test_a_full_group_refuses_new_members(make_groups: Any) -> None:
    groups = make_groups(GroupConfig(initial_rebalance_delay_ms=0, size_max=2))
    first, second = groups.stable(size=2)
    refused = groups.join()
    assert refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.answer.member_id == ""
    assert groups.group.state == "Stable"
    assert groups.heartbeat(first, 2) is groups.heartbeat(second, 2) is ErrorCode.NONE


def test_a_group_that_is_loaded_above_the_size_has_to_shrink(make_groups: Any) -> None:
    groups = make_groups()
    groups.stable(size=3)
    groups.config = GroupConfig(initial_rebalance_delay_ms=0, size_max=2)
    groups.restart()
    assert groups.group.state == "PreparingRebalance"


# ---- leaving


def test_the_last_one_out_leaves_an_empty_group(groups: Any) -> None:
    (member,) = groups.stable(size=1)
    assert groups.leave((member, None)).answer == [ErrorCode.NONE]
    assert groups.group.state == "Empty"
    assert groups.group.generation_id == 2
    groups.restart()
    assert groups.group.state == "Empty"
    assert groups.group.protocol_type == "consumer"
    assert groups.join().answer.generation_id == 3


def test_members_leave_together_each_with_a_code(groups: Any) -> None:
    first, second = groups.stable(size=2)
    pending = groups.join(version=4).answer.member_id
    codes = groups.leave((first, None), ("stranger", None), (pending, None), ("", "no such")).answer
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert groups.join(second).answer.generation_id == 3


def test_a_rebalance_does_not_wait_for_who_left(groups: Any) -> None:
    first, second = groups.stable(size=2)
    waiting = groups.join(second, protocols=[RANGE])
    groups.leave((first, None))
    assert waiting.answer.generation_id == 3


def test_an_unused_member_id_that_leaves_causes_no_rebalance(groups: Any) -> None:
    (member,) = groups.stable(size=1)
    pending = groups.join(version=4).answer.member_id
    groups.leave((pending, None))
    assert groups.heartbeat(member, 1) is ErrorCode.NONE


# ---- static members


def test_a_static_member_that_was_started_again_goes_on_where_it_was(groups: Any) -> None:
    (old,) = groups.stable(size=1, instance_id="i")
    again = groups.join(instance_id="i", version=9).answer
    assert again.generation_id == 1
    assert again.member_id != old
    assert again.leader == again.member_id
    assert again.skip_assignment, "it leads, but nothing is to be shared again"
    assert groups.sync(again.member_id, 1).answer.assignment == b"part of %s" % old.encode()
    assert groups.heartbeat(old, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    groups.restart()
    assert groups.heartbeat(again.member_id, 1, "i") is ErrorCode.NONE


def test_a_restarted_old_client_is_answered_with_the_old_leader(groups: Any) -> None:
    (old,) = groups.stable(size=1, instance_id="i")
    again = groups.join(instance_id="i", version=5).answer
    assert again.leader == old
    assert not again.skip_assignment
    assert again.members == []


def test_a_static_member_that_supports_less_now_costs_a_rebalance(groups: Any) -> None:
    groups.stable(size=1, instance_id="i", protocols=[STICKY, RANGE])
    again = groups.join(instance_id="i", protocols=[RANGE])
    assert again.answer.generation_id == 2
    assert again.answer.protocol_name == "range"


def test_what_is_left_of_a_replaced_static_member_is_fenced(groups: Any) -> None:
    leader, _ = groups.stable(size=2)
    held = groups.join(instance_id="i", version=5)
    replaced = groups.join(instance_id="i", version=5)
    assert held.code is ErrorCode.FENCED_INSTANCE_ID
    assert not replaced.is_answered
    assert groups.group.state == "PreparingRebalance"
    assert leader in groups.group.members


def test_a_static_member_may_be_away_for_its_session(groups: Any) -> None:
    (member,) = groups.stable(size=1, instance_id="i")
    groups.pass_time(SESSION_MS - 1)
    assert groups.group.members.keys() == {member}
    groups.pass_time(1)
    assert groups.group.state == "Empty"


def test_static_members_that_do_not_come_in_time_stay_until_their_session_ends(
    groups: Any,
) -> None:
    (static,) = groups.stable(size=1, instance_id="i", session_ms=200_000)
    newcomer = groups.join()
    groups.pass_time(REBALANCE_MS)
    assert newcomer.answer.generation_id == 2
    assert set(groups.group.members) == {static, newcomer.answer.member_id}
    assert newcomer.answer.leader == newcomer.answer.member_id, "who is here leads"


def test_an_admin_removes_a_static_member_by_its_instance(groups: Any) -> None:
    groups.stable(size=1, instance_id="i")
    assert groups.leave(("", "i")).answer == [ErrorCode.NONE]
    assert groups.group.state == "Empty"


# ---- another leader


def test_a_stable_group_survives_a_change_of_coordinator(groups: Any) -> None:
    leader, follower = groups.stable(size=2)
    groups.restart()
    assert groups.heartbeat(leader, 2) is ErrorCode.NONE
    assert groups.sync(follower, 2).answer.assignment == b"part of %s" % follower.encode()
    groups.pass_time(SESSION_MS)
    assert groups.group.state == "Empty", "their sessions began again"


def test_waiting_joins_are_answered_with_not_coordinator(groups: Any) -> None:
    groups.stable(size=1)
    held = groups.join()
    groups.restart()
    assert held.code is ErrorCode.NOT_COORDINATOR


def test_a_generation_that_was_never_assigned_is_unknown_to_the_next_coordinator(
    groups: Any,
) -> None:
    (member,) = groups.stable(size=1)
    groups.join(member)
    groups.restart()
    assert groups.sync(member, 2, {member: b""}).code is ErrorCode.ILLEGAL_GENERATION
    assert groups.join(member).answer.generation_id == 2


def test_time_in_which_the_coordinator_stood_still_ends_no_session(groups: Any) -> None:
    (member,) = groups.stable(size=1)
    groups.mono_ms += 60_000
    groups.shard.restart_sessions(groups.now)
    groups.pass_time(SESSION_MS - 1)
    assert groups.heartbeat(member, 1) is ErrorCode.NONE


def test_an_assignment_too_large_to_be_kept_is_refused(groups: Any) -> None:
    member = groups.join().answer.member_id
    groups.record_bytes_max = 1_000
    assert groups.sync(member, 1, {member: bytes(1_000)}).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.log == []
    assert groups.group.state == "PreparingRebalance"


def test_a_static_member_with_oversized_metadata_replaces_no_member(groups: Any) -> None:
    (old,) = groups.stable(size=1, instance_id="i")
    written = len(groups.log)
    groups.record_bytes_max = 1_000
    large = [("range", bytes(1_000))]
    refused = groups.join(instance_id="i", version=9, protocols=large)
    assert refused.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(groups.log) == written
    assert groups.heartbeat(old, 1, "i") is ErrorCode.NONE
    assert groups.join(instance_id="i", version=9).code is ErrorCode.NONE


def test_absent_static_members_without_patience_are_not_waited_for_without_end(
    groups: Any,
) -> None:
    """None of them has come, and they grant each other no time: that is no reason to spin."""
    (static,) = groups.stable(size=1, instance_id="i", rebalance_ms=1)
    newcomer = groups.join(rebalance_ms=1)
    groups.leave((next(id_ for id_ in groups.group.members if id_ != static), None))
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID
    groups.pass_time(1)
    assert groups.group.state == "PreparingRebalance"
    assert groups.shard.next_deadline_ms() >= groups.mono_ms + 1_000
    groups.pass_time(SESSION_MS)
    assert groups.group.state == "Empty"
