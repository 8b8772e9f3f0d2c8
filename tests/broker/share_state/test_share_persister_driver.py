"""Calls of a broker's share persister: target, order, batching, retries. Virtual time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.broker.cluster import peer_connection_driver
from ottla.broker.coordinators.share_persister import (
    SharePartitionKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from ottla.broker.share_state import share_persister_driver
from ottla.broker.share_state.persister_calls import PATIENCE_MS, RETRY_MS_MAX
from ottla.broker.share_state.share_persister_driver import SharePersisterDriver
from ottla.client.network.connection import ConnectionLostError
from ottla.metadata.delta import MetadataDelta
from ottla.model.errors import ErrorCode
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.model.settings.broker import load_broker_config
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.apis import API, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from tests.broker.share_state.memory_share_persister import MemorySharePersister

World = Any  # the class of the `world` fixture, in conftest.py
E = ErrorCode
PARTITION_COUNT = 4


class TrioTime:
    """Trio's clock in milliseconds."""

    def monotonic_ms(self) -> int:
        return round(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class OtherBrokers:
    """The share coordinators of other brokers, with one persister in memory."""

    def __init__(self) -> None:
        self.persister = MemorySharePersister()
        self.requests: list[Any] = []
        self.connected: list[str] = []
        self.delay_s = 0.0
        self.losses_left = 0
        """Requests that are lost after they had their effect."""
        self.open_count = 0
        self.open_count_max = 0

    async def connect(self, host: str, port: int, **_: object) -> "OtherBrokers":
        self.connected.append(host)
        return self

    def version_of(self, api_key: int) -> int:
        return API[api_key].highest

    async def request(self, message: Message, response: type[Message], version: int) -> Any:
        self.requests.append(decode(type(message), version, encode(message, version)))
        self.open_count += 1
        self.open_count_max = max(self.open_count, self.open_count_max)
        try:
            await trio.sleep(self.delay_s)
        finally:
            self.open_count -= 1
        answered = self._answer(message)
        if self.losses_left:
            self.losses_left -= 1
            raise ConnectionLostError("lost")
        return decode(response, version, encode(answered, version))

    def _answer(self, message: Any) -> Message:
        name = {83: "initialize", 84: "read", 85: "write", 86: "delete", 87: "read_summary"}
        response: Any = response_class(message.API_KEY)
        module = __import__(response.__module__, fromlist=["PartitionResult"])
        results = []
        for topic in message.topics:
            parts = []
            for part in topic.partitions:
                fields = {one: getattr(part, one) for one in part.__slots__}
                index = fields.pop("partition")
                if "state_batches" in fields:
                    batches = fields.pop("state_batches")
                    fields["batches"] = [
                        StateBatch(*(getattr(one, field) for field in StateBatch._fields))
                        for one in batches
                    ]
                found: list[Any] = []
                key = SharePartitionKey(message.group_id, topic.topic_id, index)
                method = getattr(self.persister, name[message.API_KEY])
                method(key, **fields, on_done=found.append)
                (answer,) = found
                result = module.PartitionResult(partition=index)
                if isinstance(answer, E):
                    result.error_code = answer
                else:
                    result.error_code = answer.code
                    result.state_epoch = answer.state_epoch
                    result.start_offset = answer.start_offset
                    if isinstance(answer, ShareSummary):
                        result.leader_epoch = answer.leader_epoch
                        result.delivery_complete_count = answer.delivery_complete_count
                    else:
                        result.state_batches = [
                            module.StateBatch(**one._asdict()) for one in answer.batches
                        ]
                parts.append(result)
            kind = next(
                value
                for one, value in vars(module).items()
                if one.endswith(("StateResult", "SummaryResult"))
            )
            results.append(kind(topic_id=topic.topic_id, partitions=parts))
        made: Message = response(results=results)
        return made

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class OwnBroker:
    """FindCoordinator of this broker, which makes the topic."""

    def __init__(self, make_topic: Callable[[], None]) -> None:
        self.make_topic = make_topic
        self.requests: list[FindCoordinatorRequest] = []

    async def request(self, message: Any, response: type[Message], version: int) -> Any:
        self.requests.append(message)
        assert version == 6
        await trio.sleep(0.2)
        self.make_topic()
        return FindCoordinatorResponse()


class Bench:
    """One broker's persister, its own coordinator, and those of other brokers."""

    def __init__(self, world: World, others: OtherBrokers, leaders: list[int]) -> None:
        self.world = world
        self.others = others
        self.local = MemorySharePersister()
        self.orders = world.know("orders", world.state())
        self.errors = UnexpectedErrors()
        self.own = OwnBroker(lambda: self.lead([1] * PARTITION_COUNT))
        if leaders:
            self.lead(leaders)
        config, _ = load_broker_config(
            {"node.id": "1", "controller.quorum.voters": "9@localhost:9093", "log.dirs": "/no"}
        )
        self.driver = SharePersisterDriver(
            config,
            local=lambda: self.local,
            table=world.table,
            clock=TrioTime(),
            errors=self.errors,
            own=self.own,  # type: ignore[arg-type]
        )

    def lead(self, leaders: list[int]) -> None:
        """Let brokers lead the partitions of the topic."""
        for index, leader in enumerate(leaders):
            self.world.know(SHARE_STATE_TOPIC, self.world.state(leader=leader), index)

    def key(self, partition: int = 0, group_id: str = "g") -> SharePartitionKey:
        return SharePartitionKey(group_id, self.orders, partition)

    def initialize(self, key: SharePartitionKey, into: list[Any], state_epoch: int = 1) -> None:
        self.driver.initialize(key, state_epoch=state_epoch, start_offset=0, on_done=into.append)

    def write(self, key: SharePartitionKey, into: list[Any], offset: int = 1) -> None:
        self.driver.write(
            key,
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            delivery_complete_count=offset,
            batches=[StateBatch(offset, offset, 2, 1)],
            on_done=into.append,
        )


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> OtherBrokers:
    found = OtherBrokers()
    monkeypatch.setattr(peer_connection_driver, "connect", found.connect)
    return found


@asynccontextmanager
async def calling(world: World, others: OtherBrokers, *leaders: int) -> AsyncIterator[Bench]:
    bench = Bench(world, others, [*leaders] * (PARTITION_COUNT if len(leaders) == 1 else 1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.driver.run)
        nursery.start_soon(bench.driver._alarm.run)
        await trio.testing.wait_all_tasks_blocked()
        yield bench
        nursery.cancel_scope.cancel()
    assert not bench.errors.counts


async def test_all_calls_reach_the_coordinator_on_another_broker(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        bench.initialize(bench.key(), found)
        bench.write(bench.key(), found, offset=7)
        bench.driver.read(bench.key(), leader_epoch=3, on_done=found.append)
        bench.driver.read_summary(bench.key(), leader_epoch=3, on_done=found.append)
        bench.driver.delete(bench.key(), on_done=found.append)
        await trio.sleep(1)
        assert found == [
            E.NONE,
            E.NONE,
            ShareState(E.NONE, 1, 0, 1, (StateBatch(7, 7, 2, 1),)),
            ShareSummary(E.NONE, 1, 3, 0, 7),
            E.NONE,
        ]
    assert set(others.connected) == {"host2"}


async def test_a_call_for_this_broker_needs_no_connection(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 1) as bench:
        found: list[Any] = []
        bench.initialize(bench.key(), found)
        assert found == [E.NONE]
        assert bench.local.states[bench.key()].state_epoch == 1
    assert not others.requests


async def test_calls_of_one_group_are_sent_together_and_those_of_a_partition_in_order(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    others.delay_s = 0.1
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        for partition in range(20):
            bench.initialize(bench.key(partition), found)
            for offset in range(3):
                bench.write(bench.key(partition), found, offset)
        await trio.sleep(0.05)
        assert len(others.requests) == 1
        (topic,) = others.requests[0].topics
        assert [part.partition for part in topic.partitions] == list(range(20))
        await trio.sleep(5)
        assert found == [E.NONE] * 80
        assert len(others.requests) == 4
        for partition in range(20):
            names = [name for name, key in others.persister.calls if key.partition == partition]
            assert names == ["initialize", "write", "write", "write"]


async def test_groups_do_not_wait_for_each_other_up_to_the_number_of_links(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    others.delay_s = 0.1
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        for at in range(10):
            bench.initialize(bench.key(group_id=f"g{at}"), found)
        await trio.sleep(1)
        assert found == [E.NONE] * 10
    assert others.open_count_max == share_persister_driver.LINKS_MAX


async def test_an_idle_link_is_closed_and_opened_again(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        for _ in range(3):
            bench.initialize(bench.key(), found)
            await trio.sleep(share_persister_driver.IDLE_S - 1)
        assert len(others.connected) == 1
        await trio.sleep(2)
        bench.initialize(bench.key(), found)
        await trio.sleep(1)
        assert len(others.connected) == 2
        assert found == [E.NONE] * 4


async def test_a_lost_madeis_asked_for_again(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    others.losses_left = 2
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        bench.initialize(bench.key(), found)
        await trio.sleep(1)
        assert found == [E.NONE]
        assert [name for name, _ in others.persister.calls] == ["initialize"] * 3
        assert bench.driver.metrics() == {
            "share.persister.calls.waiting": 0,
            "share.persister.calls.retried": 2,
        }


async def test_a_retry_goes_to_the_new_coordinator(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    others.persister.failures.extend([E.NOT_COORDINATOR] * 2)
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        bench.initialize(bench.key(), found)
        await trio.sleep(0.01)
        bench.lead([1] * PARTITION_COUNT)
        await trio.sleep(0.2)
        assert found == [E.NONE]
        assert bench.key() in bench.local.states


async def test_a_new_coordinator_is_asked_as_soon_as_the_metadata_has_it(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 2) as bench:
        others.persister.failures.extend([E.NOT_COORDINATOR] * 100)
        found: list[Any] = []
        bench.initialize(bench.key(), found)
        await trio.sleep(5)
        attempts = len(others.requests)
        await trio.sleep(0.1)
        assert len(others.requests) == attempts, "the pauses are long by now"
        before = world.table.image
        bench.lead([1] * PARTITION_COUNT)
        bench.local.failures.append(E.COORDINATOR_LOAD_IN_PROGRESS)
        image = world.table.image
        await bench.driver.publish(MetadataDelta.between(before, image), image)
        await trio.sleep(0.15)
        assert found == [E.NONE]
        await bench.driver.publish(MetadataDelta.between(image, image), image)


@pytest.mark.parametrize("delay_s", [5.0, 60.0])
async def test_calls_of_a_frozen_coordinator_go_to_the_new_one(
    world: World, others: OtherBrokers, autojump_clock: MockClock, delay_s: float
) -> None:
    async with calling(world, others, 2) as bench:
        others.delay_s = delay_s
        found: list[Any] = []
        for group in range(2 * share_persister_driver.LINKS_MAX):  # Half of them are queued.
            bench.initialize(bench.key(group_id=f"g{group}"), found)
        await trio.sleep(0.1)
        before = world.table.image
        bench.lead([1] * PARTITION_COUNT)
        image = world.table.image
        await bench.driver.publish(MetadataDelta.between(before, image), image)
        await trio.sleep(0.1)
        assert found == [E.NONE] * 2 * share_persister_driver.LINKS_MAX
        assert len(bench.local.states) == len(found)
        assert others.open_count == 0
        await trio.sleep(delay_s)
        assert len(others.requests) == share_persister_driver.LINKS_MAX


async def test_a_request_is_kept_while_one_of_its_calls_has_its_coordinator(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 2) as bench:
        others.delay_s = 1.0
        found: list[Any] = []
        for partition in range(6):
            bench.initialize(bench.key(partition), found)
        await trio.sleep(0.1)
        before = world.table.image
        bench.lead([1, 2] * (PARTITION_COUNT // 2))
        image = world.table.image
        await bench.driver.publish(MetadataDelta.between(before, image), image)
        await trio.sleep(1.0)
        assert found == [E.NONE] * 6
        assert len(others.requests) == 1


@pytest.mark.parametrize(
    ("code", "is_retried"),
    [
        (E.COORDINATOR_LOAD_IN_PROGRESS, True),
        (E.COORDINATOR_NOT_AVAILABLE, True),
        (E.UNKNOWN_TOPIC_OR_PARTITION, True),
        (E.FENCED_LEADER_EPOCH, False),
        (E.FENCED_STATE_EPOCH, False),
        (E.INVALID_REQUEST, False),
    ],
)
async def test_only_transient_errors_are_retried_and_not_for_long(
    world: World,
    others: OtherBrokers,
    code: E,
    is_retried: bool,
    autojump_clock: MockClock,
) -> None:
    others.persister.failures.extend([code] * 1_000)
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        began = trio.current_time()
        bench.driver.read(bench.key(), leader_epoch=0, on_done=found.append)
        while not found:
            await trio.sleep(0.01)
        assert found == [ShareState(code)]
        elapsed_ms = (trio.current_time() - began) * 1_000
        longest_ms = PATIENCE_MS + RETRY_MS_MAX + 100
        assert (PATIENCE_MS <= elapsed_ms <= longest_ms) == is_retried
        assert len(others.requests) == (1 if not is_retried else bench.driver.retry_count + 1)


async def test_a_partition_that_does_not_exist_here_is_refused_at_once(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        bench.initialize(SharePartitionKey("g", UUID(int=77), 0), found)
        assert found == [E.UNKNOWN_TOPIC_OR_PARTITION]


async def test_the_first_call_has_the_topic_made(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others) as bench:
        found: list[Any] = []
        for partition in range(3):
            bench.initialize(bench.key(partition), found)
        await trio.sleep(2)
        assert found == [E.NONE] * 3
        (request,) = bench.own.requests
        assert (request.key_type, request.coordinator_keys) == (2, [bench.key(0).text])


async def test_many_calls_of_one_partition_need_no_deep_stack(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    async with calling(world, others, 1) as bench:
        found: list[Any] = []
        bench.local.is_held = True
        bench.initialize(bench.key(), found)
        for offset in range(5_000):
            bench.write(bench.key(), found, offset)
        bench.local.is_held = False
        bench.local.release()
        assert found == [E.NONE] * 5_001


async def test_a_callback_that_fails_hurts_no_other_call(
    world: World, others: OtherBrokers, autojump_clock: MockClock
) -> None:
    def fail(answer: object) -> None:
        raise ZeroDivisionError

    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        bench.driver.initialize(bench.key(), state_epoch=1, start_offset=0, on_done=fail)
        bench.initialize(bench.key(), found)
        await trio.sleep(1)
        assert found == [E.NONE]
        assert bench.errors.counts.pop("share partition") == 1


async def test_too_many_calls_are_refused(
    world: World,
    others: OtherBrokers,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_persister_driver, "CALLS_MAX", 2)
    async with calling(world, others, 2) as bench:
        found: list[Any] = []
        for _ in range(3):
            bench.initialize(bench.key(), found)
        assert found == [E.COORDINATOR_NOT_AVAILABLE]
        await trio.sleep(1)
        assert found[1:] == [E.NONE, E.NONE]
