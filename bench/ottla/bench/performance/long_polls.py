"""Benchmark of long polls: many consumers wait for records, and the records of one producer end the
waits.

All connections belong to this process. A consumer has one Fetch in flight, which the broker answers
when a record arrives in the consumer's partition. The producer appends single records to the
partitions in turn at a steady rate.
"""

import socket
import time
from collections import Counter
from contextlib import ExitStack
from selectors import EVENT_READ, DefaultSelector
from typing import Self

from ottla.bench.groups import ASK_AGAIN_S
from ottla.bench.requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RECORD_BYTES,
    answer_to,
    dial,
    frame_of,
    topic_id_of,
)
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.limits import FRAME_LENGTH_BYTES, MIB
from ottla.wire import codec, headers
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

LONGEST_WAIT_MS = 60_000
"""Maximum wait of a Fetch in ms. It is longer than a measurement, so that every wait ends with a
record and not with a timeout."""
READ_BYTES = 65_536
SILENCE_S = 10.0
NOT_OPEN_YET = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
"""Error codes of a Fetch of a partition whose log the broker has not opened yet."""
SETTLE_S = 0.5
"""Seconds to wait until the first Fetch of every consumer has arrived at the broker and waits
there."""


class LongPolls:
    """Context manager that runs consumers which wait in long polls during the block. The consumers
    are distributed over the partitions of one topic."""

    def __init__(
        self, address: tuple[str, int], topic: str, *, partitions: int, consumers: int
    ) -> None:
        self._address = address
        self._topic_id = topic_id_of(address, topic)
        self._produces = [_produce_frame(topic, index) for index in range(partitions)]
        ends = [self._end_offset(index) for index in range(partitions)]
        self._starts = ends
        """End offset of each partition before the first record was sent."""
        self._sent_at: list[list[float]] = [[] for _ in ends]
        """For each partition, the send times of its records in the order of their offsets."""
        self._places = [at % partitions for at in range(consumers)]
        """Index of the partition that each consumer reads."""
        self._offsets = [ends[partition] for partition in self._places]
        """Offset that each consumer reads next."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._selector = stack.enter_context(DefaultSelector())
            self._producer = stack.enter_context(dial(self._address))
            self._selector.register(self._producer, EVENT_READ)
            self._consumers = [stack.enter_context(dial(self._address)) for _ in self._places]
            self._received = [bytearray() for _ in self._places]
            for at, client in enumerate(self._consumers):
                self._selector.register(client, EVENT_READ, at)
                self._wait(at)
            for client in (self._producer, *self._consumers):
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            time.sleep(SETTLE_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wake(self, records_per_second: float, seconds: float) -> list[float]:
        """Send single records at a steady rate. Returns latencies in ms, one for each record and
        each consumer of its partition. A latency lasts from the send of the record until the
        consumer has received it.

        Raises RefusedError if a consumer does not receive a record in `SILENCE_S` seconds.
        """
        latencies: list[float] = []
        partitions = len(self._produces)
        readers = Counter(self._places)
        count = max(1, round(records_per_second * seconds))
        expected = sum(readers[number % partitions] for number in range(count))
        started = time.perf_counter()
        sent = 0
        while len(latencies) < expected:
            now = time.perf_counter()
            due_in = started + sent / records_per_second - now if sent < count else SILENCE_S
            if due_in <= 0:
                partition = sent % partitions
                self._sent_at[partition].append(now)
                self._producer.sendall(self._produces[partition])
                sent += 1
                continue
            if now - started > seconds + SILENCE_S:
                missing = f"{expected - len(latencies)} of {expected} records"
                raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"consumers did not get {missing}")
            for key, _ in self._selector.select(due_in):
                if key.data is None:
                    self._producer.recv(READ_BYTES)
                else:
                    latencies += self._receive(key.data)
        return latencies

    def _wait(self, at: int) -> None:
        """Send the next Fetch of a consumer. The broker delays its response until a record
        arrives."""
        fetch = self._fetch(self._places[at], self._offsets[at], LONGEST_WAIT_MS)
        self._consumers[at].sendall(fetch)

    def _receive(self, at: int) -> list[float]:
        """Read the response to a consumer's Fetch, and send the next Fetch. Returns the latencies
        in ms of the received records, or an empty list if the response is incomplete."""
        data = self._consumers[at].recv(READ_BYTES)
        if not data:
            raise OttlaError("the broker closed a consumer's connection")
        received = self._received[at]
        received += data
        end = FRAME_LENGTH_BYTES + int.from_bytes(received[:FRAME_LENGTH_BYTES], "big")
        if len(received) < max(end, FRAME_LENGTH_BYTES + 1):
            return []
        now = time.perf_counter()
        found = _partition_of(bytes(received[FRAME_LENGTH_BYTES:end]))
        received.clear()
        partition, before = self._places[at], self._offsets[at]
        self._offsets[at] = found.high_watermark
        self._wait(at)
        start = self._starts[partition]
        times = self._sent_at[partition][before - start : found.high_watermark - start]
        return [1e3 * (now - sent_at) for sent_at in times]

    def _end_offset(self, partition: int) -> int:
        """Return the end offset of a partition. It is read from the response to a Fetch with a
        maximum wait of zero.

        The broker of a new topic may not have opened the partition's log yet. The Fetch is then
        repeated for `SILENCE_S` seconds.
        """
        frame, deadline = self._fetch(partition, 0, 0), time.monotonic() + SILENCE_S
        while True:
            try:
                return _partition_of(answer_to(self._address, frame)).high_watermark
            except RefusedError as refusal:
                if refusal.code not in NOT_OPEN_YET or time.monotonic() > deadline:
                    raise
            time.sleep(ASK_AGAIN_S)

    def _fetch(self, partition: int, offset: int, wait_ms: int) -> bytes:
        """Return the encoded frame of a Fetch request."""
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=MIB)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=MIB,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[asked])],
        )
        return frame_of(request, FETCH_VERSION)


def _partition_of(answer: bytes) -> PartitionData:
    """Return the only partition in the response to a Fetch. Raises RefusedError if the broker
    refused the request."""
    _, at = headers.decode_response_header(FetchRequest.API_KEY, FETCH_VERSION, answer)
    found = codec.decode(FetchResponse, FETCH_VERSION, memoryview(answer)[at:])
    partition = found.responses[0].partitions[0]
    if partition.error_code:
        code = ErrorCode(partition.error_code)
        raise RefusedError(code, f"a Fetch of partition {partition.partition_index} was refused")
    return partition


def _produce_frame(topic: str, partition: int) -> bytes:
    """Return the encoded frame of a Produce request with one record."""
    record = RecordToBuild(time.time_ns() // 1_000_000, None, b"x" * RECORD_BYTES)
    data = [PartitionProduceData(index=partition, records=build_batch([record]))]
    message = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    return frame_of(message, PRODUCE_VERSION)
