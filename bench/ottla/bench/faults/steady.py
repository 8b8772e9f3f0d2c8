"""A steady idempotent load with acks=all.  It records every response, and then reads every record
back.

The user starts the load, injects faults into the cluster, and ends the load with Ctrl-C. The load
prints the number of acknowledgements in each second, and whether any acknowledged record was lost,
duplicated or reordered.

Each topic has a producer of its own.  A broker answers the requests of a connection in order.  If
one partition has to wait, all partitions on the same connection therefore wait, too, as in Kafka.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.bench.faults.audit import STAMP, login_of
from ottla.bench.faults.ledger import (
    NOT_ACKNOWLEDGED,
    UNKNOWN_OFFSET,
    LedgerPartition,
    LedgerWriter,
)
from ottla.bench.load import SILENCE_S, library
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.signal_handlers_driver import signal_handlers

TICK_S = 0.005
"""Interval in seconds between the sends of a steady load. With a longer interval, records are sent
in bursts. A shorter interval costs more CPU time."""

FLUSH_EVERY_S = 0.25
LAST_ANSWERS_S = 120.0
BURST_S = 0.25
"""Longest delay of the load generator, in seconds, that it compensates with a burst. Records that
are overdue for longer are not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyLoad:
    """One steady load: the topics, the rate and size of its records, and its duration."""

    bootstrap: str
    topics: tuple[str, ...]
    rate: int
    seconds: float
    record_bytes: int
    linger_ms: float = 5.0
    acks: str = "all"
    codec: str = "none"
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of librdkafka that override the benchmark's own settings."""


@dataclass(slots=True)
class SteadyRun:
    """Result of one run of a steady load."""

    run_id: int
    places: list[LedgerPartition]
    count: int = 0
    unanswered: int = 0
    seconds: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)


class Writer:
    """Sender of records at a steady rate, which writes each outcome to the ledger.  It owns the
    ledger, and one producer per topic."""

    def __init__(self, load: SteadyLoad, path: Path) -> None:
        self._load = load
        self._is_stopping = False
        self._producers = {topic: self._open_producer() for topic in load.topics}
        self.sent = SteadyRun(run_id=int.from_bytes(os.urandom(8), "big"), places=self._places())
        self._index = {(la.topic, la.partition): at for at, la in enumerate(self.sent.places)}
        started_s = time.time()
        self._ledger = LedgerWriter(
            path, self.sent.places, run_id=self.sent.run_id, started_s=started_s
        )

    def _open_producer(self) -> Any:
        load = self._load
        return library("confluent_kafka").Producer(
            {
                "bootstrap.servers": load.bootstrap,
                "enable.idempotence": load.acks == "all",
                "acks": load.acks,
                "linger.ms": load.linger_ms,
                "compression.type": load.codec,
                # Large enough that the records of one stopped partition do not fill the queue for
                # all the others.
                "queue.buffering.max.messages": 5_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
                "on_delivery": self._on_delivery,
                # Records that are still queued at the end must not recreate a topic that was
                # deleted.
                "allow.auto.create.topics": False,
                **load.settings,
            }
        )

    def run(self, progress: Callable[[int], None]) -> SteadyRun:
        """Send records until the duration is over or a signal arrives, then wait for the last
        responses. Returns the result of the run."""
        stopped_by = signal_handlers(self._stop, signal.SIGINT, signal.SIGTERM)
        with stopped_by, closing(self._ledger):
            self._send(progress)
            ends_at = time.monotonic() + LAST_ANSWERS_S
            for producer in self._producers.values():
                left_s = max(0.0, ends_at - time.monotonic())
                self.sent.unanswered += producer.flush(left_s)
        return self.sent

    def _send(self, progress: Callable[[int], None]) -> None:
        load, sent, first = self._load, self.sent, self._producers[self._load.topics[0]]
        padding = os.urandom(max(0, load.record_bytes - STAMP.size))
        next_number = [0] * len(sent.places)
        index = 0
        started = now = flushed = time.perf_counter()
        behind = 0
        while now - started < load.seconds and not self._is_stopping:
            due = int((now - started) * load.rate) - sent.count - behind
            behind += max(0, due - int(BURST_S * load.rate))
            for _ in range(min(due, int(BURST_S * load.rate))):
                place = sent.places[index]
                value = STAMP.pack(sent.run_id, next_number[index]) + padding
                try:
                    self._producers[place.topic].produce(
                        place.topic, value, partition=place.partition
                    )
                except BufferError:
                    break
                next_number[index] += 1
                sent.count += 1
                index = (index + 1) % len(sent.places)
            for producer in self._producers.values():
                producer.poll(0)
            first.poll(TICK_S)
            now = time.perf_counter()
            if now - flushed > FLUSH_EVERY_S:
                flushed = now
                self._ledger.flush()
                progress(int(now - started))
        sent.seconds = now - started

    def _on_delivery(self, error: Any, message: Any) -> None:
        index = self._index[message.topic(), message.partition()]
        _, number = STAMP.unpack_from(message.value())
        if error is None:
            offset = message.offset()
            self._ledger.add(
                index, number, UNKNOWN_OFFSET if offset is None else offset, time.time()
            )
        else:
            self.sent.failures[error.str()] += 1
            self._ledger.add(index, number, NOT_ACKNOWLEDGED, time.time())

    def _places(self) -> list[LedgerPartition]:
        """Return each partition of the load's topics, with its current end offset, which is the
        offset of the run's first record."""
        confluent = library("confluent_kafka")
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": self._load.bootstrap,
                "group.id": "ottla-bench",
                **login_of(self._load.settings),
            }
        )
        try:
            return [
                LedgerPartition(topic, partition, self._end_of(consumer, topic, partition))
                for topic in self._load.topics
                for partition in self._partitions(topic)
            ]
        finally:
            consumer.close()

    def _partitions(self, topic: str) -> Sequence[int]:
        found = self._producers[topic].list_topics(topic, timeout=SILENCE_S).topics[topic]
        if found.error is not None:
            raise RefusedError(found.error.code(), f"topic {topic!r}: {found.error.str()}")
        return sorted(found.partitions)

    def _end_of(self, consumer: Any, topic: str, partition: int) -> int:
        at = library("confluent_kafka").TopicPartition(topic, partition)
        offsets = consumer.get_watermark_offsets(at, timeout=SILENCE_S)
        if offsets is None:
            raise RefusedError(
                ErrorCode.REQUEST_TIMED_OUT, f"{topic}-{partition} does not say where it ends"
            )
        return int(offsets[1])

    def _stop(self, number: int, frame: object) -> None:
        self._is_stopping = True
