"""Dead letters on their way: read from the log, written to the topic of letters, and sent again
until they are acknowledged."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from ottla.broker.cluster import peer_connection_driver
from ottla.broker.shares import dead_letters_driver
from ottla.broker.shares.dead_letters_driver import DeadLetterSender
from ottla.broker.shares.delivery_window import DeliveryState
from ottla.client.network.connection import ConnectionLostError
from ottla.metadata.features import SHARE_VERSION
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.share_groups import ShareGroupSettings
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.loopback_driver import Loopback
from ottla.proto import controller_pb2 as pb
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.apis import API, PRODUCE
from ottla.wire.batch import batches
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from ottla.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.records import Record, scan
from tests.broker.shares.conftest import ShareBench, acquired

LETTERS, T = "dlq.t", ("t", 0)
REJECT = [3]
COPIES = ShareGroupSettings(
    offset_reset="earliest", dead_letter_topic=LETTERS, has_whole_dead_letters=True
)
RECORDS = [
    RecordToBuild(1_700_000_000_000 + at, b"k%d" % at, b"v%d" % at, (("trace", b"%d" % at),))
    for at in range(4)
]


class OtherBroker:
    """Leader of the dead letter topic on another broker, which refuses or loses requests."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode | None] = []
        """Outcomes of the next requests: an error code, or None for an answer that is lost."""
        self.written: list[Record] = []
        self.requests: list[Any] = []
        self.release = trio.Event()
        self.release.set()

    async def connect(self, host: str, port: int, **_: object) -> "OtherBroker":
        return self

    def version_of(self, api_key: int) -> int:
        return API[api_key].highest

    async def request(self, message: Message, response: type[Message], version: int) -> Any:
        request: Any = decode(type(message), version, encode(message, version))
        self.requests.append(request)
        await self.release.wait()
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if not code:
            for topic in request.topic_data:
                for part in topic.partition_data:
                    self.written += records_of(bytes(part.records))
        if code is None:
            raise ConnectionLostError("lost")
        answer = ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=part.index, error_code=code)
                        for part in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
        return decode(response, version, encode(answer, version))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Creator:
    """Controller that creates topics."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.code = ErrorCode.NONE

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        await trio.lowlevel.checkpoint()
        asked = decode(CreateTopicsRequest, request.api_version, request.body)
        assert request.principal == ""
        self.requests += asked.topics
        topics = [
            CreatableTopicResult(name=one.name, error_code=self.code, error_message="it may not be")
            for one in asked.topics
        ]
        body = encode(CreateTopicsResponse(topics=topics), request.api_version)
        return pb.ForwardResponse(body=body)


class LetterBench:
    """A share partition whose group has a dead letter topic, and the sender of its letters."""

    def __init__(self, bench: ShareBench, other: OtherBroker) -> None:
        self.bench = bench
        self.world = bench.world
        self.other = other
        self.creator = Creator()
        self.errors = UnexpectedErrors()
        self.topic_texts = {"errors.deadletterqueue.group.enable": "true"}
        self.broker_texts: dict[str, str] = {}
        self.level = 2
        config, _ = load_broker_config(
            {"node.id": "1", "controller.quorum.voters": "9@localhost:9093", "log.dirs": "/no"}
        )
        dispatcher = Dispatcher({PRODUCE: self.world.produce_api.handle})
        self.sender = DeadLetterSender(
            config,
            table=self.world.table,
            clock=self.world.clock,
            controller=self.creator,
            errors=self.errors,
            own=Loopback(dispatcher, self.world.clock),
        )
        bench.settings = COPIES
        shares = bench.apis.delivery.shares
        shares._ports = shares._ports._replace(letters=self.sender)

    def publish(self) -> None:
        """Publish settings and levels of the metadata."""
        texts = {
            (TOPIC_RESOURCE, LETTERS): PersistentMap(self.topic_texts),
            (BROKER_RESOURCE, ""): PersistentMap(self.broker_texts),
        }
        self.world.table.image = replace(
            self.world.table.image,
            configs=PersistentMap(texts),
            features=PersistentMap({SHARE_VERSION: self.level}),
        )

    async def begin(self, *records: RecordToBuild, leader: int | None = 1, **config: Any) -> Any:
        """Add the source with records, and the dead letter topic if it has a leader."""
        source = await self.bench.add("t")
        if leader == 1:
            await self.world.add(LETTERS, config=TopicConfig(**config))
        elif leader is not None:
            self.world.know(LETTERS, self.world.state(replicas=(2,), leader=leader))
        self.publish()
        batch = memoryview(bytearray(build_batch(records or RECORDS)))
        source.append(batch, acks=1, now_ms=self.world.clock.wall_ms(), mono_ms=1_000)
        return source

    def reject(self, first: int = 0, last: int = 3) -> None:
        """Acquire all records, and reject a range."""
        assert acquired(self.bench.fetch(T, epoch=0))
        self.bench.acknowledge({T: [(first, last, REJECT)]}, epoch=1)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for the tasks of the sender."""
        with trio.fail_after(60):
            while not condition():
                await trio.sleep(0.001)

    async def until_archived(self, source: Any, end_offset: int) -> None:
        """Let back-offs pass until all records below an offset are archived."""

        def is_archived() -> bool:
            if self.start_offset(source) < end_offset:
                self.world.pass_time(10_000)
            return self.start_offset(source) == end_offset

        await self.until(is_archived)

    async def letters(self) -> list[Record]:
        """Return the records of the dead letter topic on this broker."""
        partition = self.world.table.by_name[LETTERS][0]
        data = await partition.log.read_bytes(
            0, bytes_max=1 << 20, end_offset=partition.log.end_offset
        )
        return records_of(data)

    def has_sent(self, count: int) -> bool:
        """Return whether the other broker has had a number of requests."""
        return len(self.other.requests) == count

    def start_offset(self, source: Any) -> int:
        offset: int = self.bench.persister.states[self.bench.key(source)].start_offset
        return offset

    def states(self, source: Any) -> list[int]:
        state = self.bench.persister.states[self.bench.key(source)].as_read()
        return [batch.delivery_state for batch in state.batches]


def records_of(data: bytes | bytearray) -> list[Record]:
    return [record for at, header in batches(data) for record in scan(data, at, header)]


def origin(record: Record) -> tuple[str, ...]:
    """Return topic, partition, offset, group, count and cause of a letter."""
    return tuple(
        (content or b"").decode() for name, content in record.headers if name.startswith("__dlq.")
    )


def offsets_of(letters: list[Record]) -> list[int]:
    return [int(origin(record)[2]) for record in letters]


@asynccontextmanager
async def sending(sender: DeadLetterSender) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.run)
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> OtherBroker:
    found = OtherBroker()
    monkeypatch.setattr(peer_connection_driver, "connect", found.connect)
    return found


@pytest.fixture
def letters(bench: ShareBench, other: OtherBroker) -> Iterator[LetterBench]:
    found = LetterBench(bench, other)
    yield found
    assert not found.errors.counts


async def test_a_letter_is_the_record_with_its_origin_and_cause(letters: LetterBench) -> None:
    source = await letters.begin()
    letters.reject(1, 2)
    letters.bench.acknowledge({T: [(0, 0, [1]), (3, 3, [1])]}, epoch=2)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    written = await letters.letters()
    assert [(one.timestamp_ms, one.key, one.value, one.headers[0]) for one in written] == [
        (each.timestamp_ms, each.key, each.value, each.headers[0]) for each in RECORDS[1:3]
    ]
    assert [origin(one) for one in written] == [
        ("t", "0", "1", "g", "1", "Offset rejected by client."),
        ("t", "0", "2", "g", "1", "Offset rejected by client."),
    ]


async def test_a_letter_without_copy_has_origin_and_cause_only(letters: LetterBench) -> None:
    source = await letters.begin()
    letters.bench.settings = replace(COPIES, has_whole_dead_letters=False)
    letters.reject(0, 3)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    written = await letters.letters()
    assert [(one.key, one.value, len(one.headers)) for one in written] == [(None, None, 6)] * 4


async def test_letters_count_as_in_kafka(letters: LetterBench) -> None:
    source = await letters.begin(leader=2)
    letters.other.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    letters.reject()
    async with sending(letters.sender):
        await letters.until(lambda: letters.other.requests)
        await letters.until(lambda: letters.sender.figures.failed_requests)
        letters.world.pass_time(100)
        await letters.until(lambda: letters.start_offset(source) == 4)
    found = {one.name: list(one.samples) for one in letters.sender.figures.families()}
    bean = "kafka_server_sharegroupmetrics_deadletterqueue"
    assert found == {
        f"{bean}recordcount": [(("g",), 4)],
        f"{bean}totalproducerequests_total": [(("g",), 2)],
        f"{bean}failedproducerequests_total": [(("g",), 1)],
    }


@pytest.mark.parametrize(
    "code",
    [
        None,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
async def test_no_error_loses_a_letter(letters: LetterBench, code: ErrorCode | None) -> None:
    source = await letters.begin(leader=2)
    letters.other.codes = [code] * 5
    letters.reject()
    async with sending(letters.sender):
        for count in range(5):
            await letters.until(partial(letters.has_sent, count + 1))
            await letters.until(lambda: not letters.sender.metrics()["share.dead.letters.waiting"])
            assert letters.states(source) == [DeliveryState.ARCHIVING]
            letters.world.pass_time(100 << count)
        await letters.until(lambda: letters.start_offset(source) == 4)
    assert offsets_of(letters.other.written) == [0, 1, 2, 3] * (1 + 5 * (code is None))


async def test_an_acknowledged_letter_is_not_sent_again(letters: LetterBench) -> None:
    source = await letters.begin(leader=2)
    letters.reject()
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
        letters.world.pass_time(60_000)
        await letters.until(lambda: not letters.sender.metrics()["share.dead.letters.waiting"])
    assert len(letters.other.requests) == 1


async def test_a_letter_that_is_too_large_waits_and_delays_no_other(
    letters: LetterBench, caplog: pytest.LogCaptureFixture
) -> None:
    big = RecordToBuild(1_700_000_000_000, b"k", b"x" * 2_000)
    source = await letters.begin(RECORDS[0], big, RECORDS[1], max_message_bytes=1_000)
    # The metadata does not have the limit yet, so that the first batch contains all of them.
    letters.reject(0, 2)
    with caplog.at_level(logging.WARNING):
        async with sending(letters.sender):
            await letters.until(lambda: letters.sender.figures.failed_requests)
            letters.world.pass_time(100)
            await letters.until(lambda: letters.states(source) == [3, 4])
            letters.world.pass_time(30_000)
            await letters.until(lambda: letters.sender.figures.failed_requests["g"] >= 3)
            assert letters.start_offset(source) == 1
            assert "raise max.message.bytes" in next(letters.sender.problems())
            partition = letters.world.table.by_name[LETTERS][0]
            partition.log.config = LogConfig.of_topic(TopicConfig())
            letters.world.pass_time(30_000)
            await letters.until(lambda: letters.start_offset(source) == 3)
    assert offsets_of(await letters.letters()) == [0, 2, 1]
    assert len([one for one in caplog.records if "are not written" in one.message]) == 1
    letters.world.pass_time(60_001)
    assert not list(letters.sender.problems())


@pytest.mark.parametrize(
    ("texts", "topic", "reason"),
    [
        ({}, LETTERS, "accepts no dead letters"),
        ({"errors.deadletterqueue.group.enable": "true"}, "t", "is the topic of the rejected"),
        ({"errors.deadletterqueue.group.enable": "true"}, "dlq.gone", "does not exist"),
        ({"errors.deadletterqueue.group.enable": "true"}, "other", "does not begin with dlq."),
    ],
)
async def test_a_topic_that_may_get_no_letters_is_named_once_until_it_may(
    letters: LetterBench,
    caplog: pytest.LogCaptureFixture,
    texts: dict[str, str],
    topic: str,
    reason: str,
) -> None:
    letters.topic_texts = texts
    source = await letters.begin()
    letters.bench.settings = replace(COPIES, dead_letter_topic=topic)
    letters.reject()
    with caplog.at_level(logging.WARNING):
        async with sending(letters.sender):
            for _ in range(4):
                await letters.until(lambda: list(letters.sender.problems()))
                letters.world.pass_time(30_000)
            assert letters.states(source) == [DeliveryState.ARCHIVING]
            letters.topic_texts = {"errors.deadletterqueue.group.enable": "true"}
            letters.publish()
            letters.bench.settings = COPIES
            await letters.until_archived(source, 4)
    assert len([one for one in caplog.records if reason in one.message]) == 1


def _waits(letters: LetterBench) -> bool:
    """Return whether every letter waits for its back-off."""
    (led,) = letters.bench.apis.delivery.shares
    return led.share.letters.next_due_ms is not None


async def test_a_missing_topic_is_created_with_the_settings_of_kafka(letters: LetterBench) -> None:
    letters.broker_texts = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
    source = await letters.begin(leader=None)
    letters.reject()
    async with sending(letters.sender):
        await letters.until(lambda: letters.creator.requests)
        await letters.world.add(LETTERS)
        letters.publish()
        await letters.until(lambda: _waits(letters))
        letters.world.pass_time(100)
        await letters.until(lambda: letters.start_offset(source) == 4)
    (topic,) = letters.creator.requests
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (LETTERS, -1, -1)
    assert {one.name: one.value for one in topic.configs} == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }


async def test_a_topic_that_cannot_be_created_is_named(letters: LetterBench) -> None:
    letters.broker_texts = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
    letters.creator.code = ErrorCode.INVALID_REPLICATION_FACTOR
    await letters.begin(leader=None)
    letters.reject()
    async with sending(letters.sender):
        await letters.until(lambda: list(letters.sender.problems()))
    assert "it cannot be created: it may not be" in next(letters.sender.problems())


async def test_a_record_that_compaction_removed_needs_no_letter(
    letters: LetterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await letters.begin()
    letters.reject()
    kept = build_batch(
        [(one.timestamp_ms, one.key, one.value) for one in RECORDS[3:]], base_offset=Offset(3)
    )

    async def read_bytes(offset: int, **_: Any) -> bytes:
        await trio.lowlevel.checkpoint()
        return kept

    monkeypatch.setattr(type(source.log), "read_bytes", staticmethod(read_bytes))
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    monkeypatch.undo()
    assert offsets_of(await letters.letters()) == [3]
    assert letters.sender.metrics()["share.dead.letters.lost"] == 3


async def test_a_damaged_record_gets_a_letter_without_content(
    letters: LetterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await letters.begin()
    letters.reject()
    original = type(source.log).read_bytes

    async def read_bytes(log: Any, offset: int, **bounds: Any) -> bytes:
        data = bytearray(await original(log, offset, **bounds))
        data[-1] ^= 1
        return bytes(data)

    monkeypatch.setattr(type(source.log), "read_bytes", read_bytes)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    monkeypatch.undo()
    assert [(one.value, *origin(one)[2:3]) for one in await letters.letters()] == [
        (None, "0"),
        (None, "1"),
        (None, "2"),
        (None, "3"),
    ]


async def test_records_below_the_log_start_need_no_letter(letters: LetterBench) -> None:
    source = await letters.begin()
    letters.reject()
    await source.log.delete_records_before(3)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    assert offsets_of(await letters.letters()) == [3]


async def test_a_sender_that_is_cancelled_sends_again_in_its_next_run(letters: LetterBench) -> None:
    source = await letters.begin(leader=2)
    letters.other.release = trio.Event()
    letters.reject()
    async with sending(letters.sender):
        await letters.until(lambda: letters.other.requests)
    assert _waits(letters), "every letter has an outcome"
    letters.other.release.set()
    letters.world.pass_time(100)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    assert offsets_of(letters.other.written) == [0, 1, 2, 3]


async def test_requests_are_bounded_and_a_frozen_broker_delays_its_own_letters_only(
    letters: LetterBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters_driver, "LETTERS_PER_REQUEST", 3)
    source = await letters.begin(*RECORDS, *RECORDS, leader=2)
    letters.reject(0, 7)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 8)
    sizes = [
        len(records_of(bytes(part.records)))
        for request in letters.other.requests
        for topic in request.topic_data
        for part in topic.partition_data
    ]
    assert sizes == [3, 3, 2]


async def test_a_level_of_the_feature_without_letters_archives_without_them(
    letters: LetterBench,
) -> None:
    letters.level = 1
    source = await letters.begin()
    letters.reject()
    assert letters.start_offset(source) == 4
    async with sending(letters.sender):
        await trio.testing.wait_all_tasks_blocked()
    assert await letters.letters() == []


async def test_raising_the_feature_takes_effect_in_a_running_group(letters: LetterBench) -> None:
    letters.level = 1
    source = await letters.begin()
    assert acquired(letters.bench.fetch(T, epoch=0))
    letters.level = 2
    letters.publish()
    letters.bench.acknowledge({T: [(0, 3, REJECT)]}, epoch=1)
    async with sending(letters.sender):
        await letters.until(lambda: letters.start_offset(source) == 4)
    assert offsets_of(await letters.letters()) == [0, 1, 2, 3]
