"""A producer of many records at a steady rate, and a tailing consumer of its topic.

It runs as a process of its own (`python -m ottla.bench.kafka.paced_load BOOTSTRAP TOPIC RATE
LINGER_MS`), so that other measurements do not delay it.  It prints a line when the consumer has
read its first record.
When its standard input ends, it prints the times of a sample of the records.  For each record, it
prints the send time by the machine's monotonic clock, and the latency in seconds until the record
was acknowledged or read.
"""

import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

from ottla.bench.helper_process import STOP_TIMEOUT_S, HelperProcess
from ottla.bench.load import library
from ottla.bench.requests import RequestLatency

RECORD_BYTES = 1_000
STAMP = struct.Struct(">d")
"""Binary format of the prefix of a record's value: the time in seconds at which the record was
sent."""

UNPACED = 0
"""Rate that means unlimited: records are sent as fast as the broker accepts them."""
UNPACED_SAMPLE_EVERY = 20
SAMPLES_PER_S = 2_000
"""Number of records per second whose latencies are measured. Fewer would not be enough for
percentiles of 99.9 after some seconds."""
UNPACED_BURST = 1_000
DEFAULT_LINGER_MS = 5.0
TICK_S = 0.002
BURST_S = 0.25
"""Longest delay of the load generator, in seconds, that it compensates with a burst. Records that
are overdue for longer are not sent."""

READ_AT_ONCE = 1_000
ACKNOWLEDGED, READ = "acknowledged", "read"
READY = "ready"
"""Line that the load prints when its consumer has read a record, or has waited too long."""
READY_TIMEOUT_S = 30.0
"""Maximum time in seconds that the load waits for its first record before it prints `READY`."""


class PacedLoad(HelperProcess):
    """Context manager that runs a steady producer and a tailing consumer in a separate process.
    After the block, `waited` contains the latencies of records, by kind (acknowledged or read)."""

    name = "the load"

    def __init__(
        self, bootstrap: str, topic: str, rate: int, linger_ms: float = DEFAULT_LINGER_MS
    ) -> None:
        module = "ottla.bench.kafka.paced_load"
        super().__init__(module, bootstrap, topic, str(rate), str(linger_ms))
        self.sample_every = sample_every(rate)
        """Sampling interval: the latency of one record in this number is measured."""
        self.waited: dict[str, list[RequestLatency]] = {ACKNOWLEDGED: [], READ: []}

    def __enter__(self) -> Self:
        super().__enter__()
        assert self._process.stdout is not None
        self._process.stdout.readline()  # Empty if the process failed: the end of the block raises.
        return self

    def take(self, words: list[str]) -> None:
        """Parse one line that the load's process has printed, given as words, and store the latency
        of a record."""
        kind, sent_at, seconds = words
        self.waited[kind].append(RequestLatency(float(sent_at), float(seconds)))


def sample_every(rate: int) -> int:
    """Return the sampling interval for a rate in records per second. The latency of one record in
    this number is measured."""
    return UNPACED_SAMPLE_EVERY if rate == UNPACED else max(1, rate // SAMPLES_PER_S)


def main(bootstrap: str, topic: str, rate: str, linger_ms: str) -> None:
    """Send records at a steady rate and read them until standard input ends, then print the
    latencies."""
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "ottla-bench", "enable.auto.commit": False}
    )
    consumer.assign([confluent.TopicPartition(topic, 0, confluent.OFFSET_END)])
    producer = confluent.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": float(linger_ms),
            "log_level": 3,
        }
    )
    acknowledged: list[RequestLatency] = []
    read: list[RequestLatency] = []
    has_ended = threading.Event()
    every = sample_every(int(rate))
    tail = threading.Thread(target=_tail, args=(consumer, read, every, has_ended))
    producer.list_topics(topic, timeout=STOP_TIMEOUT_S)
    tail.start()
    try:
        _send(producer, topic, int(rate), acknowledged)
        producer.flush(STOP_TIMEOUT_S)
    finally:
        has_ended.set()
        tail.join()
        consumer.close()
    for what, waited in ((ACKNOWLEDGED, acknowledged), (READ, read)):
        for sent_at, seconds in waited:
            print(f"{what} {sent_at:.6f} {seconds:.6f}")


def _send(producer: Any, topic: str, rate: int, acknowledged: list[RequestLatency]) -> None:
    padding = os.urandom(RECORD_BYTES - STAMP.size)
    started = time.perf_counter()
    sent = skipped = 0

    def sampled(sent_at: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acknowledged.append(RequestLatency(sent_at, time.perf_counter() - sent_at))

        return delivered

    every = sample_every(rate)
    while not select.select([sys.stdin], [], [], 0 if rate == UNPACED else TICK_S)[0]:
        due = UNPACED_BURST
        if rate != UNPACED:
            due = int((time.perf_counter() - started) * rate) - sent - skipped
            skipped += max(0, due - int(BURST_S * rate))
            due = min(due, int(BURST_S * rate))
        for _ in range(due):
            now = time.perf_counter()
            more = {} if sent % every else {"on_delivery": sampled(now)}
            try:
                producer.produce(topic, STAMP.pack(now) + padding, partition=0, **more)
            except BufferError:
                if rate == UNPACED:
                    producer.poll(TICK_S)
                    break
                skipped += 1
                continue
            sent += 1
        producer.poll(0)


def _tail(
    consumer: Any, read: list[RequestLatency], every: int, has_ended: threading.Event
) -> None:
    count = 0
    is_ready, ready_by = False, time.monotonic() + READY_TIMEOUT_S
    while not has_ended.is_set():
        first = consumer.poll(0.1)
        if not is_ready and (first is not None or time.monotonic() > ready_by):
            # A consumer starts within milliseconds or, after a failed lookup, seconds: the records
            # of that time are not those of a steady load.
            print(READY, flush=True)
            is_ready = True
        if first is None:
            continue
        messages = [first, *consumer.consume(READ_AT_ONCE, 0)]
        now = time.perf_counter()
        for message in messages:
            count += 1
            if count % every == 0 and message.error() is None:
                (sent_at,) = STAMP.unpack_from(message.value())
                read.append(RequestLatency(sent_at, now - sent_at))


if __name__ == "__main__":
    main(*sys.argv[1:])
