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
    """A consumer that ACLs allow nothing for a while."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.assignment: set[TopicPartition] = set()

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        if self.refusals:
            self.refusals -= 1
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return dict.fromkeys(partitions, 0)


async def test_a_refused_read_is_logged_once(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    alarms = TierAlarms()

    async def create(topic: object) -> None:
        raise AssertionError("not called")

    topic = MetadataTopic(
        TierConfig(), address=lambda: None, create_topic=create, clock=RealClock(), alarms=alarms
    )
    topic.assign(PARTITION)
    consumer = RefusedConsumer(5)
    with caplog.at_level(logging.WARNING, "ottla.broker.tier"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(topic._find_ends, cast("Any", consumer))
            await trio.sleep(4.5)
            assert list(alarms.problems(0)) == [PROBLEM_PREFIX + MAY_NOT]
            await trio.sleep(1)
            assert list(alarms.problems(0)) == []
            nursery.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == [MAY_NOT]
