"""Producers against a randomly drawn broker, which loses, refuses or forgets requests.

The broker of this model follows Kafka's rules for idempotent producers and nothing else. In every
course of events no record is duplicated or out of order, no acknowledged record is missing, and no
record that was certainly refused is stored.
"""

import random
from collections import deque

import pytest

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.partition_queue import ProducerBatch
from ottla.model.errors import ErrorCode
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch import BatchHeader, parse_header
from ottla.wire.records import scan
from tests.search_length import length

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
REMEMBERED = 5
CONFIG = ProducerConfig(
    batch_bytes=200, linger_ms=5, retry_backoff_ms=10, delivery_timeout_ms=3_000,
    request_timeout_ms=1_000,
)  # fmt: skip


class Log:
    """One partition and its state of the producer."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.epoch = -1
        self.last: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def append(self, batch: ProducerBatch, header: BatchHeader) -> ErrorCode:
        first = header.base_sequence
        if header.producer_epoch != self.epoch:
            if header.producer_epoch < self.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if first != 0 and self.epoch >= 0:  # whom it does not know it takes with any sequence
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.epoch = header.producer_epoch
            self.last.clear()
        elif (first, header.last_sequence) in self.last:
            return ErrorCode.NONE
        elif self.last and first != self.last[-1][1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert batch.encoded is not None
        self.last.append((first, header.last_sequence))
        self.values += [int(one.value or b"") for one in scan(batch.encoded, 0, header)]
        return ErrorCode.NONE


class World:
    """One producer, its partitions, and connections that carry a batch each."""

    def __init__(self, seed: int, *, ends_at_failure: bool = False) -> None:
        self.chance = random.Random(seed)
        self.gathered = Accumulator(CONFIG, ends_at_failure=ends_at_failure)
        self.gathered.use_clock(lambda: self.now_ms / 1_000)
        self.logs = {at: Log() for at in PARTITIONS}
        self.flying: deque[ProducerBatch] = deque()
        self.places: dict[int, tuple[ProducerBatch, int]] = {}
        self.now_ms = 0
        self.short_count = 0
        """Number of records on the fast path."""
        self.epoch = -1

    def send(self, number: int) -> TopicPartition:
        """Append a record as a producer does: by the fast path, by a decided partition, or by its
        key."""
        value = b"%d" % number + b" " * self.chance.randrange(60)
        at = self.chance.choice(PARTITIONS)
        key = b"key" if self.chance.random() < 0.1 else None
        batch = None
        if key is None and self.chance.random() < 0.7:
            self.gathered.burst_left = 1
            delivery = self.gathered.join_plain("t", value)
            if delivery is None:
                self.gathered.end_plain_route("t")
                batch, _ = self.gathered.append(at, self.now_ms, None, value, (), self.now_ms)
                self.gathered.route_plain("t", batch, self.chance.randrange(1, 300))
            else:
                batch, _ = delivery._find()
                self.short_count += 1
        if batch is None:
            batch, _ = self.gathered.append(at, self.now_ms, key, value, (), self.now_ms)
        self.places[number] = (batch, batch.record_count - 1)
        return batch.partition

    def step(self, *, is_calm: bool) -> None:
        """Let one thing happen."""
        self.now_ms += self.chance.randrange(1, 20)
        if self.gathered.is_identity_due:
            self.epoch += 1
            self.gathered.become(ProducerIdentity(ProducerId(1), self.epoch))
        self.gathered.expire(self.now_ms)
        self.flying += self.gathered.drain(self.gathered.waiting_partitions(), self.now_ms)
        if self.flying and self.chance.random() < 0.6:
            self.answer(is_calm=is_calm)

    def answer(self, *, is_calm: bool) -> None:
        """Have the broker process the oldest open request."""
        batch = self.flying.popleft()
        fate = 1.0 if is_calm else self.chance.random()
        if (
            fate < 0.08
        ):  # the connection is cut: some of what is on it arrives, no client learns of it
            lost = [batch, *self.flying]
            self.flying.clear()
            for one in lost[: self.chance.randrange(len(lost) + 1)]:
                self.append(one)
            for one in lost:
                self.gathered.on_lost(one, "cut", self.now_ms)
            return
        if fate < 0.12:
            code = self.chance.choice(
                [
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    ErrorCode.MESSAGE_TOO_LARGE,
                    ErrorCode.INVALID_RECORD,
                ]
            )
        elif fate < 0.15:  # appended, and the leader is deposed before it is committed; it survives
            self.append(batch)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            code = self.append(batch)
        self.gathered.on_answer(batch, code, None, self.now_ms)

    def append(self, batch: ProducerBatch) -> ErrorCode:
        assert batch.encoded is not None
        return self.logs[batch.partition].append(batch, parse_header(batch.encoded))


@pytest.mark.parametrize("seed", range(length(20, 60)))
def test_whatever_fails_each_record_is_there_once_in_order(seed: int) -> None:
    world = World(seed)
    sent: dict[TopicPartition, list[int]] = {at: [] for at in PARTITIONS}
    for number in range(400):
        sent[world.send(number)].append(number)
        if world.chance.random() < 0.5:
            world.step(is_calm=False)
    assert world.short_count
    for _ in range(2_000):
        world.step(is_calm=True)

    batches = {number: batch.leaf_of(at)[0] for number, (batch, at) in world.places.items()}
    assert all(batch.is_settled for batch in batches.values())
    assert world.gathered.buffered_bytes == 0
    for at, log in world.logs.items():
        there = log.values
        assert there == sorted(set(there)), "in order, and each once"
        for number in sent[at]:
            failure = batches[number].failure
            if failure is None:
                assert number in there
            elif not failure.may_be_in_log:
                assert number not in there


@pytest.mark.parametrize("seed", range(length(20, 60)))
def test_where_nothing_may_follow_a_failure_every_partition_has_a_prefix(seed: int) -> None:
    world = World(seed, ends_at_failure=True)
    sent: dict[TopicPartition, list[int]] = {at: [] for at in PARTITIONS}
    for number in range(400):
        if world.gathered.ended_by is not None:
            break
        at = world.chance.choice(PARTITIONS)
        world.gathered.append(at, world.now_ms, None, b"%d" % number, (), world.now_ms)
        sent[at].append(number)
        world.step(is_calm=False)
    for _ in range(1_000):
        world.step(is_calm=True)

    assert world.gathered.buffered_bytes == 0, "all is settled"
    for at, log in world.logs.items():
        assert log.values == sent[at][: len(log.values)]
