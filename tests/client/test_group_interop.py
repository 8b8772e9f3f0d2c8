"""Our members in one group with librdkafka's, by each protocol; and patterns."""

import threading
import time
from typing import Any

import confluent_kafka
import pytest
import trio

from ottla.client import ErrorCode, RefusedError, SubscriptionPattern, TopicPartition

TIMEOUT_S = 60
LIBRDKAFKA: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
CLASSIC = {"heartbeat.interval.ms": 50, "session.timeout.ms": 6_000}


class Other(threading.Thread):
    """A group member of librdkafka, which records its assignments and the records it reads."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        super().__init__()
        self.settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **LIBRDKAFKA[protocol],
            **({} if protocol == "consumer" else CLASSIC),
        }
        self.found: list[int] = []
        self.events: list[tuple[str, int]] = []
        self.assignment: set[TopicPartition] = set()
        self.is_over = False

    def run(self) -> None:
        """Read until the stop event; then leave."""
        consumer = confluent_kafka.Consumer(self.settings)
        consumer.subscribe(
            ["t"],
            on_assign=lambda _, parts: self.events.append(("assigned", len(parts))),
            on_revoke=lambda _, parts: self.events.append(("revoked", len(parts))),
        )
        deadline = time.monotonic() + TIMEOUT_S
        while not self.is_over and time.monotonic() < deadline:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.found.append(int(message.value()))
            self.assignment = {
                TopicPartition(at.topic, at.partition) for at in consumer.assignment()
            }
        consumer.close()


async def test_members_of_both_share_a_group_come_and_go_and_miss_nothing(groups: Any) -> None:
    await groups.create(4)
    ours: list[int] = []
    other = Other(groups.bootstrap, groups.protocol)
    async with groups.open() as consumer:
        consumer.subscribe(["t"])

        async def read_until(happened: Any) -> None:
            while not happened():
                records = await consumer.poll(0.02)
                ours.extend(int(record.value or b"") for record in records)

        with trio.fail_after(TIMEOUT_S):
            await groups.produce(range(100), 4)
            await read_until(lambda: len(ours) == 100 and len(consumer.assignment) == 4)
            other.start()
            await read_until(lambda: len(consumer.assignment) == len(other.assignment) == 2)
            assert not consumer.assignment & other.assignment
            await groups.produce(range(100, 200), 4)
            await read_until(lambda: len(ours) + len(other.found) >= 200)
            assert len(other.found) == 50
            other.is_over = True
            await read_until(lambda: len(consumer.assignment) == 4)
            await trio.to_thread.run_sync(other.join)
            await groups.produce(range(200, 300), 4)
            await read_until(lambda: len(ours) + len(other.found) >= 300)
    assert sorted(ours + other.found) == list(range(300))
    if groups.protocol == "cooperative":
        assert other.events[0][0] == "assigned"
        assert sum(count for what, count in other.events if what == "assigned") == 2


async def test_we_come_into_a_group_that_librdkafka_leads(groups: Any) -> None:
    await groups.create(4)
    other = Other(groups.bootstrap, groups.protocol)
    other.start()
    try:
        with trio.fail_after(TIMEOUT_S):
            while len(other.assignment) < 4:
                await trio.sleep(0.01)
            async with groups.open() as consumer:
                consumer.subscribe(["t"])
                while not len(consumer.assignment) == len(other.assignment) == 2:
                    assert await consumer.poll(0.02) == []
                assert not consumer.assignment & other.assignment
            while len(other.assignment) < 4:
                await trio.sleep(0.01)
    finally:
        other.is_over = True
        await trio.to_thread.run_sync(other.join)


@pytest.mark.parametrize("groups", ["consumer"], indirect=True)
async def test_a_pattern_of_the_coordinators_takes_topics_that_come_later(groups: Any) -> None:
    await groups.create(1, "t")
    await groups.create(1, "other")
    async with groups.open() as consumer:
        consumer.subscribe(pattern=SubscriptionPattern("t[0-9]?"))
        await groups.until(lambda: consumer.assignment == {("t", 0)}, consumer)
        await groups.create(1, "t2")
        await groups.until(lambda: consumer.assignment == {("t", 0), ("t2", 0)}, consumer)
        consumer.subscribe(["other"])
        await groups.until(lambda: consumer.assignment == {("other", 0)}, consumer)


async def test_a_pattern_of_ours_takes_topics_that_come_later(groups: Any) -> None:
    await groups.create(1, "t")
    await groups.create(1, "other")
    async with groups.open(metadata_age_ms_max=100) as consumer:
        consumer.subscribe(pattern="t.*")
        await groups.until(lambda: consumer.assignment == {("t", 0)}, consumer)
        await groups.create(1, "t2")
        await groups.until(lambda: consumer.assignment == {("t", 0), ("t2", 0)}, consumer)


async def test_a_pattern_leaves_out_what_is_excluded(groups: Any) -> None:
    await groups.create(1, "t")
    await groups.create(1, "t-test")
    async with groups.open(metadata_age_ms_max=100) as consumer:
        consumer.subscribe(pattern="t.*", exclude=".*-test")
        await groups.until(lambda: consumer.assignment == {("t", 0)}, consumer)
        await groups.create(1, "t2-test")
        await groups.create(1, "t2")
        await groups.until(lambda: consumer.assignment == {("t", 0), ("t2", 0)}, consumer)


@pytest.mark.parametrize("groups", ["consumer"], indirect=True)
@pytest.mark.parametrize(
    ("subscription", "settings", "code"),
    [
        (
            {"pattern": SubscriptionPattern("((")},
            {},
            ErrorCode.INVALID_REGULAR_EXPRESSION,
        ),
        ({"topics": ["t"]}, {"group_remote_assignor": "none"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ],
    ids=["a pattern that is none", "an unknown assignor"],
)
async def test_what_the_coordinator_refuses_comes_out_of_the_next_poll(
    groups: Any, subscription: dict[str, Any], settings: dict[str, Any], code: ErrorCode
) -> None:
    await groups.create(1)
    async with groups.open(**settings) as consumer:
        consumer.subscribe(**subscription)
        with trio.fail_after(TIMEOUT_S), pytest.raises(RefusedError) as refused:
            await consumer.poll()
        assert refused.value.code is code
        assert consumer.assignment == frozenset()


@pytest.mark.parametrize("groups", ["eager"], indirect=True)
async def test_a_classic_member_has_no_pattern_of_the_coordinators(groups: Any) -> None:
    async with groups.open() as consumer:
        with pytest.raises(RefusedError):
            consumer.subscribe(pattern=SubscriptionPattern("t.*"))


@pytest.mark.parametrize("groups", ["consumer"], indirect=True)
async def test_a_group_goes_from_one_protocol_to_the_other_member_by_member(groups: Any) -> None:
    await groups.create(2)
    await groups.produce(range(10), 2)
    classic = {"group_protocol": "classic"}
    async with groups.open(**classic) as old:
        old.subscribe(["t"])
        assert sorted(await groups.read(old, 10)) == list(range(10))
        async with groups.open() as new:
            new.subscribe(["t"])
            await groups.until(lambda: len(old.assignment) == len(new.assignment) == 1, old, new)
            async with groups.open() as newer:
                newer.subscribe(["t"])
                await old.unsubscribe()
                await groups.until(
                    lambda: len(new.assignment) == len(newer.assignment) == 1, new, newer
                )
