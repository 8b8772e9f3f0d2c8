"""Groups of very many members: work that concerns all members is done in steps."""

from typing import Any

import pytest

from ottla.broker.groups.consumer import assigned_group
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.model.settings.groups import GroupConfig

MEMBERS = 600


@pytest.fixture
def crowd(groups: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Many consumers with one subscription, and a count of the computations over their topics."""
    for number in range(20):
        groups.make_topic(f"topic-{number}", 1)
    for number in range(MEMBERS):
        groups.enter(f"m{number}", regex="topic-.*")
    groups.hashes = groups.unions = 0
    hash_of, topics_of = assigned_group._hash_of, ConsumerGroup._topics_of

    def hashed(*arguments: Any) -> int:
        groups.hashes += 1
        return hash_of(*arguments)

    def unioned(*arguments: Any) -> frozenset[str]:
        groups.unions += 1
        return topics_of(*arguments)

    monkeypatch.setattr(assigned_group, "_hash_of", hashed)
    monkeypatch.setattr(ConsumerGroup, "_topics_of", unioned)
    return groups


def test_a_crowd_that_falls_silent_is_removed_in_steps(crowd: Any) -> None:
    crowd.is_working = False
    crowd.mono_ms += GroupConfig().consumer_session_timeout_ms
    crowd.settle()
    left = len(crowd.consumers.members)
    assert 0 < left < MEMBERS
    assert crowd.shard.next_deadline_ms() is None, "no alarm while it is worked off"
    assert crowd.consumer_heartbeat("m599", 600).answer.error_code == 0, (
        "it spoke before its turn came"
    )
    while crowd.shard.has_work:
        crowd.shard.work(crowd.now)
    crowd.settle()
    assert set(crowd.consumers.members) == {"m599"}
    # One subscription and one image: nothing of it is computed for each member again.
    assert crowd.hashes <= 2
    assert crowd.unions <= 10
    assert crowd.shard.next_deadline_ms() is not None
    crowd.check_replay()


def test_the_last_member_of_a_subscription_takes_its_topics_with_it(groups: Any) -> None:
    for name in ("a", "b", "c"):
        groups.enter(name, ["orders"] if name == "a" else ["users"])
    assert groups.consumers.subscribed_topics() == {"orders", "users"}
    groups.consumer_heartbeat("b", -1)
    assert groups.consumers.subscribed_topics() == {"orders", "users"}
    groups.consumer_heartbeat("a", -1)
    assert groups.consumers.subscribed_topics() == {"users"}
    groups.consumer_heartbeat("c", 3, topics=["orders"])
    assert groups.consumers.subscribed_topics() == {"orders"}
    groups.check_replay()
