"""The shortest time between two assignments of a consumer group, as in Kafka 4.4."""

from typing import Any

import pytest

from ottla.broker.groups.consumer.consumer_rebalance import ConsumerRebalancer
from ottla.model.settings.group_overrides import GroupSettings
from tests.broker.groups.conftest import Groups, given

INTERVAL_MS = 1_000


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    bench = Groups()
    rebalancer: ConsumerRebalancer = bench.shard.consumers._rebalancer
    interval = GroupSettings(assignment_interval_ms=INTERVAL_MS)
    monkeypatch.setattr(rebalancer, "_settings", lambda _: interval)
    return bench


def test_the_first_assignment_is_made_at_once(groups: Any) -> None:
    topic = groups.make_topic("orders", 4)
    assert given(groups.enter("a").answer) == {topic: {0, 1, 2, 3}}


def test_those_who_join_within_the_interval_are_assigned_together(groups: Any) -> None:
    groups.make_topic("orders", 4)
    groups.enter("a")
    written = len(groups.log)
    groups.pass_time(INTERVAL_MS // 2)
    joins = [groups.enter("b"), groups.enter("c")]
    assert not any(one.is_answered for one in joins)
    assert groups.consumers.target_epoch == 1
    assert groups.consumer_heartbeat("a", 1, owned=None).answer.member_epoch == 1, (
        "who is there is answered"
    )

    groups.pass_time(INTERVAL_MS // 2 - 1)
    assert not any(one.is_answered for one in joins)
    groups.pass_time(1)
    assert all(one.is_answered for one in joins)
    assert groups.consumers.target_epoch == groups.consumers.group_epoch == 3
    assert len(groups.log) > written
    groups.check_replay()


def test_after_the_interval_an_assignment_is_made_at_once(groups: Any) -> None:
    groups.make_topic("orders", 4)
    groups.enter("a")
    groups.pass_time(INTERVAL_MS)
    assert groups.enter("b").is_answered
    assert groups.consumers.target_epoch == 2


def test_a_departure_within_the_interval_is_shared_out_at_its_end(groups: Any) -> None:
    topic = groups.make_topic("orders", 2)
    groups.enter("a")
    groups.pass_time(INTERVAL_MS)
    groups.enter("b")
    groups.consumer_heartbeat("b", -1)
    groups.consumer_heartbeat("a", 1)
    assert groups.consumers.target_epoch == 2
    groups.pass_time(INTERVAL_MS)
    assert groups.consumers.target_epoch == 3
    assert groups.consumers.target_of("a") == {topic: frozenset((0, 1))}


def test_who_waits_for_the_interval_hears_of_another_coordinator(groups: Any) -> None:
    groups.make_topic("orders", 4)
    groups.enter("a")
    joining = groups.enter("b")
    assert not joining.is_answered
    groups.restart()
    assert joining.is_answered
