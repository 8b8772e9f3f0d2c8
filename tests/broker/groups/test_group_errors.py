"""Whatever a member may do wrong has Kafka's exact code."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.model.errors import ErrorCode

Act = Callable[[Any, str], ErrorCode]

STABLE: list[tuple[str, Act, ErrorCode]] = [
    (
        "heartbeat of a stranger",
        lambda g, m: g.heartbeat("stranger", 1),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    (
        "heartbeat of an old generation",
        lambda g, m: g.heartbeat(m, 0),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    (
        "heartbeat of a generation to come",
        lambda g, m: g.heartbeat(m, 2),
        ErrorCode.ILLEGAL_GENERATION,
    ),
    (
        "heartbeat of an unknown instance",
        lambda g, m: g.heartbeat(m, 1, "other"),
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    (
        "heartbeat of a fenced instance",
        lambda g, m: g.heartbeat("replaced", 1, "i"),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    ("join of a stranger", lambda g, m: g.join("stranger").code, ErrorCode.UNKNOWN_MEMBER_ID),
    (
        "join of a fenced instance",
        lambda g, m: g.join("replaced", instance_id="i").code,
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    (
        "join without a protocol in common",
        lambda g, m: g.join(protocols=[("other", b"")]).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    (
        "join with another type of protocol",
        lambda g, m: g.join(protocol_type="connect").code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    (
        "join without any protocol",
        lambda g, m: g.join(protocols=[]).code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    ("sync of a stranger", lambda g, m: g.sync("stranger", 1).code, ErrorCode.UNKNOWN_MEMBER_ID),
    ("sync of an old generation", lambda g, m: g.sync(m, 0).code, ErrorCode.ILLEGAL_GENERATION),
    (
        "sync with another protocol",
        lambda g, m: g.sync(m, 1, protocol_name="sticky").code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    (
        "sync with another type",
        lambda g, m: g.sync(m, 1, protocol_type="connect").code,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    (
        "sync of a fenced instance",
        lambda g, m: g.sync("replaced", 1, group_instance_id="i").code,
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    (
        "leave of a stranger",
        lambda g, m: g.leave(("stranger", None)).answer[0],
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    (
        "leave of a fenced instance",
        lambda g, m: g.leave(("replaced", "i")).answer[0],
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    (
        "commit of a stranger",
        lambda g, m: g.commit(member_id="stranger", generation_id=1).code,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    (
        "commit of an old generation",
        lambda g, m: g.commit(member_id=m, generation_id=0).code,
        ErrorCode.ILLEGAL_GENERATION,
    ),
    (
        "commit of a fenced instance",
        lambda g, m: g.commit(member_id="replaced", generation_id=1, instance_id="i").code,
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    ("commit from outside", lambda g, m: g.commit().code, ErrorCode.UNKNOWN_MEMBER_ID),
    ("deletion", lambda g, m: g.delete().code, ErrorCode.NON_EMPTY_GROUP),
]

EMPTY: list[tuple[str, Act, ErrorCode]] = [
    ("heartbeat", lambda g, m: g.heartbeat("m", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ("join with an id", lambda g, m: g.join("m").code, ErrorCode.UNKNOWN_MEMBER_ID),
    ("sync", lambda g, m: g.sync("m", 1).code, ErrorCode.UNKNOWN_MEMBER_ID),
    ("leave", lambda g, m: g.leave(("m", None)).answer[0], ErrorCode.UNKNOWN_MEMBER_ID),
    (
        "commit of a generation before KIP-848",
        lambda g, m: g.commit(member_id="m", generation_id=1, version=8).code,
        ErrorCode.ILLEGAL_GENERATION,
    ),
    (
        "commit of a generation",
        lambda g, m: g.commit(member_id="m", generation_id=1, version=9).code,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ),
    ("deletion", lambda g, m: g.delete().code, ErrorCode.GROUP_ID_NOT_FOUND),
]


@pytest.mark.parametrize(
    ("act", "code"), [row[1:] for row in STABLE], ids=[row[0] for row in STABLE]
)
def test_in_a_stable_group(groups: Any, act: Act, code: ErrorCode) -> None:
    (member,) = groups.stable(size=1, instance_id="i")
    assert act(groups, member) is code
    assert groups.group.state == "Stable"
    assert groups.group.generation_id == 1


@pytest.mark.parametrize(("act", "code"), [row[1:] for row in EMPTY], ids=[row[0] for row in EMPTY])
def test_without_a_group(groups: Any, act: Act, code: ErrorCode) -> None:
    assert act(groups, "") is code
    assert groups.shard.groups == {}
    assert groups.log == []


def test_between_two_generations(groups: Any) -> None:
    leader, follower = groups.stable(size=2)
    groups.join(follower, protocols=[("range", b"other")])
    assert groups.sync(leader, 2).code is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    committed = groups.commit(member_id=leader, generation_id=2)
    assert committed.answer == [[ErrorCode.NONE]], "what was read before may still be committed"
    groups.join(leader)
    assert groups.commit(member_id=leader, generation_id=3).code is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(leader, 3) is ErrorCode.NONE
    assert groups.delete().code is ErrorCode.NON_EMPTY_GROUP
