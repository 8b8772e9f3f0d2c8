"""Transactional load driven by librdkafka, which measures throughput and the duration of a commit.

The duration of a commit is measured separately, after all records of the transaction are
acknowledged. librdkafka uses the protocol before KIP-890 part 2, so each transaction must first add
its partitions.
"""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from ottla.bench.load import library
from ottla.bench.result import Result
from ottla.model.errors import ErrorCode, RefusedError

RECORDS_BETWEEN_LOOKS = 64
"""Number of records that a load produces between two checks of the clock. Producing them takes some
hundred microseconds."""
QUEUED_RECORDS_MAX = 10_000
"""Maximum number of records in the queue of a load's producer. With more, a transaction would be
longer than intended."""
ANSWER_TIMEOUT_S = 60.0
ENDS_SKIPPED = 1
"""Number of a producer's first commits of transactions that are not counted, because the producer
still opens connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLoad:
    """Settings of a transactional load: its topic, the size of its records, and its duration in
    seconds."""

    bootstrap: str
    topic: str
    partitions: int
    seconds: float
    record_bytes: int = 1_000
    key_count: int = 0
    """Number of different record keys, which the records use in rotation. With 0, records have no
    key."""
    login: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka for TLS and login, by name."""


def produce_idempotently(load: TransactionLoad) -> Result:
    """Produce records as fast as possible, without transactions, and return the result."""
    producer, send = _producer(load, transactional_id=None)
    started = time.perf_counter()
    produced = _produce_until(send, started + load.seconds, producer)
    _flush(producer)
    return _result(load, "idempotent", produced, time.perf_counter() - started, [])


def produce_in_transactions(load: TransactionLoad, duration_s: float) -> Result:
    """Produce records as fast as possible, in transactions of the given duration. Returns a result
    with the latency of a commit."""
    producer, send = _producer(load, transactional_id=_new_id())
    latencies: list[float] = []
    produced = 0
    started = time.perf_counter()
    while (now := time.perf_counter()) < started + load.seconds:
        producer.begin_transaction()
        produced += _produce_until(send, now + duration_s, producer)
        latencies.append(_commit(producer))
    seconds = time.perf_counter() - started
    return _result(load, "transactions", produced, seconds, latencies[ENDS_SKIPPED:])


def commit_small_ones(load: TransactionLoad, producers: int = 1) -> Result:
    """Commit transactions with one record in each partition, one transaction after the other.

    The returned result counts transactions. If there are several producers, they run concurrently.
    """

    def run_one(_: int) -> tuple[float, list[float]]:
        producer, send = _producer(load, transactional_id=_new_id())
        latencies = []
        started = time.perf_counter()
        while time.perf_counter() < started + load.seconds:
            producer.begin_transaction()
            for _ in range(load.partitions):
                send()
            latencies.append(_commit(producer))
        return time.perf_counter() - started, latencies

    with ThreadPoolExecutor(producers) as threads:
        found = list(threads.map(run_one, range(producers)))
    counted = [latency for _, each in found for latency in each[ENDS_SKIPPED:]]
    seconds = max(seconds for seconds, _ in found)
    return Result("commits", sum(len(each) for _, each in found), 0, seconds, counted)


def _new_id() -> str:
    return f"ottla-bench-{uuid4()}"


def _producer(
    load: TransactionLoad, *, transactional_id: str | None
) -> tuple[Any, Callable[[], None]]:
    """Return a producer, and a function that sends its next record.  A transactional producer is
    already initialised."""
    settings: dict[str, Any] = {
        "bootstrap.servers": load.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "batch.size": 131_072,
        "batch.num.messages": 1_000_000,
        "queue.buffering.max.messages": QUEUED_RECORDS_MAX,
        "log_level": 2,
        **load.login,
    }
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    producer = library("confluent_kafka").Producer(settings)
    if transactional_id is not None:
        producer.init_transactions(ANSWER_TIMEOUT_S)
    payload = os.urandom(load.record_bytes)
    numbers = count()

    def send() -> None:
        number = next(numbers)
        partition = number % load.partitions
        key = str(number % load.key_count) if load.key_count else None
        while True:
            try:
                producer.produce(load.topic, payload, key, partition=partition)
                return
            except BufferError:
                producer.poll(0.01)

    return producer, send


def _produce_until(send: Callable[[], None], deadline: float, producer: Any) -> int:
    produced = 0
    while time.perf_counter() < deadline:
        for _ in range(RECORDS_BETWEEN_LOOKS):
            send()
        producer.poll(0)
        produced += RECORDS_BETWEEN_LOOKS
    return produced


def _flush(producer: Any) -> None:
    left = producer.flush(ANSWER_TIMEOUT_S)
    if left:
        reason = f"{left} records were not acknowledged in {ANSWER_TIMEOUT_S:g} s"
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason)


def _commit(producer: Any) -> float:
    """Commit a transaction whose records are all acknowledged. Returns the duration of the commit
    in ms."""
    _flush(producer)
    asked = time.perf_counter()
    producer.commit_transaction(ANSWER_TIMEOUT_S)
    return (time.perf_counter() - asked) * 1e3


def _result(
    load: TransactionLoad, what: str, produced: int, seconds: float, latencies: list[float]
) -> Result:
    return Result(what, produced, produced * load.record_bytes, seconds, latencies)
