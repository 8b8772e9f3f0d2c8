"""Lasting failures of tiered storage, and refusals by ACLs, in the status of a broker."""

import logging
from typing import Any, cast

import pytest
import trio

from ottla.broker.tier.metadata_topic_driver import MetadataTopic
from ottla.broker.tier.tier_alarms import LASTING_MS, MAY_NOT, TierAlarms
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.storage.tier import PROBLEM_PREFIX, TierConfig
from ottla.node.clock_driver import RealClock
from tests.broker.tier.remote_segments import PARTITION


def test_a_failure_is_a_problem_once_it_lasts() -> None:
    alarms = TierAlarms()
    alarms.on_failure("copies", 1, "orders-0: the store is down", now_ms=0)
    alarms.on_failure("copies", 2, "orders-1: the store is down", now_ms=LASTING_MS - 1)
    assert list(alarms.problems(LASTING_MS - 1)) == []
    alarms.on_failure("copies", 1, "orders-0: too slow", now_ms=LASTING_MS)
    assert list(alarms.problems(LASTING_MS)) == [
        "tiered storage: copies of 1 partition fail, for 30 s by now: orders-0: too slow"
    ]
    assert "copies of 2 partitions fail, for 2 min" in next(alarms.problems(4 * LASTING_MS))
    alarms.on_success("copies", 1)
    alarms.forget(2)
    assert list(alarms.problems(9 * LASTING_MS)) == []


def test_a_refusal_by_acls_is_a_problem_at_once_and_hides_its_consequences() -> None:
    alarms = TierAlarms()
    alarms.on_failure("copies", 1, "orders-0: refused", now_ms=0)
    assert alarms.on_refusal("read")
    assert not alarms.on_refusal("write")
    assert list(alarms.problems(LASTING_MS)) == [PROBLEM_PREFIX + MAY_NOT]
    alarms.on_permission("read")
    alarms.on_permission("write")
    assert list(alarms.problems(0)) == []


class RefusedConsumer:
    """A consumer that ACLs allow nothing for a while. It counts the seconds during which it has an
    assigned partition, whose leader a real consumer requests again and again."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.refused_count = 0
        self.assignment: set[TopicPartition] = set()
        self.polled_s = 0.0

    def assign(self, partitions: set[TopicPartition]) -> None:
        self.assignment = set(partitions)

    def seek(self, at: TopicPartition, offset: int) -> None:
        assert at in self.assignment

    async def poll(self, timeout_s: float) -> list[object]:
        began = trio.current_time()
        try:
            await trio.sleep(timeout_s)
        finally:
            self.polled_s += trio.current_time() - began
        return []

    async def position(self, at: TopicPartition) -> int:
        return 0

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self.refusals:
            self.refusals -= 1
            self.refused_count += 1
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return dict.fromkeys(partitions, 0)


def refused_topic() -> tuple[MetadataTopic, TierAlarms]:
    """Return a reader of the metadata topic with one tiered partition, and its alarms."""
    alarms = TierAlarms()

    async def create(topic: object) -> None:
        raise AssertionError("not called")

    topic = MetadataTopic(
        TierConfig(), address=lambda: None, create_topic=create, clock=RealClock(), alarms=alarms
    )
    topic.assign(PARTITION)
    return topic, alarms


async def test_a_refused_read_is_logged_once(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic, alarms = refused_topic()
    consumer = RefusedConsumer(3)
    with caplog.at_level(logging.WARNING, "ottla.broker.tier"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(topic._find_ends, cast("Any", consumer))
            await trio.sleep(6.5)
            assert list(alarms.problems(0)) == [PROBLEM_PREFIX + MAY_NOT]
            await trio.sleep(1)
            assert list(alarms.problems(0)) == []
            nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [MAY_NOT]


async def test_a_refused_broker_asks_twice_a_minute(autojump_clock: Any) -> None:
    topic, _ = refused_topic()
    consumer = RefusedConsumer(10_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(topic._find_ends, cast("Any", consumer))
        nursery.start_soon(topic._read, cast("Any", consumer))
        await trio.sleep(3_600)
        assert 100 < consumer.refused_count < 130
        assert consumer.assignment == set()
        assert consumer.polled_s < 10
        consumer.refusals = 0
        await trio.sleep(31)
        assert topic.metadata_of(PARTITION) is not None
        assert consumer.assignment
        nursery.cancel_scope.cancel()
