"""Committed offsets of groups: commit, fetch, expiry and deletion."""

from typing import Any

import pytest

from ottla.broker.groups.offsets.committed_offsets import CommittedOffset
from ottla.model.errors import ErrorCode
from ottla.model.settings.groups import GroupConfig
from ottla.wire.codec import encode
from ottla.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

DAY_MS = 86_400_000


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription metadata, version first."""
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=list(topics)), 1)


def test_a_commit_is_fetched_unchanged_and_survives_a_change_of_coordinator(
    groups: Any,
) -> None:
    (member,) = groups.stable(size=1)
    asked = groups.commit(42, member_id=member, generation_id=1, metadata="here")
    assert asked.answer == [[ErrorCode.NONE]]
    for _ in range(2):
        found = groups.fetched()
        assert (found.offset, found.leader_epoch, found.metadata) == (42, 4, "here")
        groups.restart()


def test_an_offset_is_fetched_only_after_it_is_committed(groups: Any) -> None:
    groups.commit(1)
    groups.is_committing = False
    asked = groups.commit(2)
    fetched = groups.fetch()
    assert not asked.is_answered
    assert not fetched.is_answered
    groups.commit_log()
    assert asked.answer == [[ErrorCode.NONE]]
    assert fetched.answer[0][2].offset == 2


def test_what_was_never_committed_is_no_error(groups: Any) -> None:
    assert groups.fetched() is None


def test_offsets_can_be_committed_without_group_members(groups: Any) -> None:
    groups.commit(5)
    assert groups.group.state == "Empty"
    assert groups.fetched().offset == 5
    groups.restart()
    assert groups.group.state == "Empty"
    assert groups.fetched().offset == 5


def test_long_metadata_is_refused_and_the_longest_is_kept(groups: Any) -> None:
    assert groups.commit(metadata="x" * 4_097).answer == [[ErrorCode.OFFSET_METADATA_TOO_LARGE]]
    assert groups.fetched() is None
    assert groups.commit(metadata="x" * 4_096).answer == [[ErrorCode.NONE]]
    assert len(groups.fetched().metadata) == 4_096


def test_a_commit_is_a_sign_of_life(groups: Any) -> None:
    (member,) = groups.stable(size=1)
    groups.pass_time(9_000)
    groups.commit(member_id=member, generation_id=1)
    groups.pass_time(9_000)
    assert groups.heartbeat(member, 1) is ErrorCode.NONE


def test_a_deleted_group_takes_its_offsets_along(groups: Any) -> None:
    groups.commit(index=0)
    groups.commit(index=1)
    assert groups.delete().code is ErrorCode.NONE
    assert groups.shard.groups == {}
    groups.restart()
    assert groups.shard.groups == {}
    assert groups.fetched() is None
    assert len(groups.shard.offsets) == 0


def test_offsets_of_unsubscribed_topics_can_be_deleted(groups: Any) -> None:
    data = subscription("orders")
    (member,) = groups.stable(size=1, protocols=[("range", data)])
    for topic in ("orders", "old"):
        groups.commit(member_id=member, generation_id=1, topic=topic)
    asked = type(groups.fetch())()
    groups.shard.delete_offsets("group", [("orders", 0), ("old", 0), ("old", 9)], asked)
    groups.settle()
    assert asked.answer == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert groups.fetched("orders") is not None
    assert groups.fetched("old") is None


FIELDS_OF_V0 = encode(ConsumerProtocolSubscription(topics=["orders"]), 0)

SUBSCRIPTIONS: dict[str, tuple[bytes, ErrorCode]] = {
    "version 0": (b"\0\0" + FIELDS_OF_V0, ErrorCode.NONE),
    "version 1 that ends after the fields of 0": (b"\0\1" + FIELDS_OF_V0, ErrorCode.NONE),
    "version 3 that ends after the fields of 0": (b"\0\3" + FIELDS_OF_V0, ErrorCode.NONE),
    "a later version": (b"\0\x63" + FIELDS_OF_V0 + b"more", ErrorCode.NONE),
    "a negative version": (b"\xff\xff" + FIELDS_OF_V0, ErrorCode.NONE),
    "half of version 0": (b"\0\0" + FIELDS_OF_V0[:7], ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    "no version": (b"\0", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    "nothing": (b"", ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
}
"""Subscriptions of a member, and Kafka's answer for a topic that is not in them: version 0 is read
whatever the version, and all topics are in use if that cannot be."""


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_topics_in_use_are_read_as_version_0_of_a_subscription(groups: Any, name: str) -> None:
    data, code = SUBSCRIPTIONS[name]
    (member,) = groups.stable(size=1, protocols=[("range", data)])
    for topic in ("orders", "old"):
        groups.commit(member_id=member, generation_id=1, topic=topic)
    asked = type(groups.fetch())()
    groups.shard.delete_offsets("group", [("orders", 0), ("old", 0)], asked)
    groups.settle()
    assert asked.answer == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, code]


@pytest.mark.parametrize(
    ("protocol_type", "code"),
    [("connect", ErrorCode.NON_EMPTY_GROUP), (None, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_offsets_of_others_cannot_be_deleted(
    groups: Any, protocol_type: str | None, code: ErrorCode
) -> None:
    if protocol_type is not None:
        groups.stable(size=1, protocol_type=protocol_type)
    asked = type(groups.fetch())()
    groups.shard.delete_offsets("group", [("orders", 0)], asked)
    groups.settle()
    assert asked.code is code


def test_offsets_of_a_topic_that_is_gone_or_another_are_forgotten(groups: Any) -> None:
    groups.commit(topic="gone")
    groups.commit(topic="stays")
    groups.shard.drop_offsets_without_topic(lambda name, topic_id: name == "stays", groups.now)
    groups.settle()
    groups.restart()
    assert groups.fetched("gone") is None
    assert groups.fetched("stays") is not None


# ---- retention


def expire(groups: Any, elapsed_ms: int) -> None:
    groups.mono_ms += elapsed_ms
    groups.shard.expire_offsets(groups.now)
    groups.settle()


def test_offsets_without_a_group_are_kept_for_the_retention_after_the_commit(
    make_groups: Any,
) -> None:
    groups = make_groups(GroupConfig(offsets_retention_minutes=24 * 60))
    groups.commit()
    expire(groups, DAY_MS - 1)
    assert groups.fetched() is not None
    expire(groups, 1)
    assert groups.fetched() is None
    assert groups.shard.groups == {}, "a group with nothing left goes too"
    assert groups.log[-1].value is None


def test_offsets_of_a_group_are_kept_while_it_has_members_and_then_for_the_retention(
    groups: Any,
) -> None:
    data = subscription("orders")
    (member,) = groups.stable(
        size=1, protocols=[("range", data)], session_ms=24 * DAY_MS, instance_id="i"
    )
    groups.commit(member_id=member, generation_id=1)
    expire(groups, 15 * DAY_MS)
    assert groups.fetched() is not None
    groups.leave((member, None))
    expire(groups, 7 * DAY_MS - 1)
    assert groups.fetched() is not None
    expire(groups, 1)
    assert groups.fetched() is None


def test_offsets_of_unsubscribed_topics_expire(groups: Any) -> None:
    data = subscription("orders")
    (member,) = groups.stable(size=1, protocols=[("range", data)], session_ms=24 * DAY_MS)
    groups.commit(member_id=member, generation_id=1, topic="old")
    groups.commit(member_id=member, generation_id=1, topic="orders")
    expire(groups, 7 * DAY_MS)
    assert groups.fetched("old") is None
    assert groups.fetched("orders") is not None


def test_a_commit_may_have_a_retention_of_its_own(groups: Any) -> None:
    groups.commit(retention_ms=1_000, version=4)
    groups.restart()
    expire(groups, 999)
    assert groups.fetched() == CommittedOffset(
        7, -1, "", groups.fetched().commit_timestamp_ms, groups.fetched().expire_timestamp_ms
    )
    expire(groups, 1)
    assert groups.fetched() is None


def test_a_retention_past_the_largest_timestamp_never_expires(groups: Any) -> None:
    groups.commit(retention_ms=(1 << 63) - 1, version=4)
    groups.restart()
    expire(groups, 1_000 * DAY_MS)
    assert groups.fetched() is not None
