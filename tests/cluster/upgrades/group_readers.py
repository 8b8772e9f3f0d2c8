"""Members of consumer groups, each in a thread of its own, that note all numbers that they read."""

import threading
import time
from collections.abc import Mapping, Sequence

import trio
from confluent_kafka import Consumer

from ottla.client import (
    ConsumerConfig,
    ShareConsumerConfig,
    open_consumer,
    open_share_consumer,
)
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from tests.cluster.conftest import security_of
from tests.cluster.transactional_writers import TIMEOUT_S

POLL_S = 0.2


class GroupReader:
    """A member of a consumer group that reads committed records and commits its position."""

    def __init__(
        self, client: Mapping[str, str], group: str, topics: Sequence[str], protocol: str
    ) -> None:
        self.read_at: list[float] = []
        """Time of each record, by the monotonic clock, in seconds."""
        self.numbers: dict[tuple[str, int], set[int]] = {}
        """Numbers that were read, by topic and partition."""
        self.fault: BaseException | None = None
        self.client = client
        self.group = group
        self.topics = [*topics]
        self.protocol = protocol
        self.is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_until_stopped)

    def __enter__(self) -> "GroupReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def wait_until_reading(self, timeout_s: float = TIMEOUT_S) -> None:
        """Return once the first record was read."""
        deadline = time.monotonic() + timeout_s
        while not self.read_at:
            assert self.fault is None, self.fault
            assert time.monotonic() < deadline, f"{self.group} read nothing in {timeout_s:g} s"
            time.sleep(POLL_S)

    def note(self, topic: str, partition: int, value: bytes) -> None:
        """Record that a number was read."""
        self.read_at.append(time.monotonic())
        self.numbers.setdefault((topic, partition), set()).add(int(value))

    def run(self) -> None:
        """Read until it is to stop."""
        raise NotImplementedError

    def _run_until_stopped(self) -> None:
        try:
            self.run()
        except BaseException as fault:
            self.fault = fault


class LibrdkafkaReader(GroupReader):
    """A member by librdkafka."""

    def run(self) -> None:
        """Read until it is to stop."""
        consumer = Consumer(
            {
                **self.client,
                "group.id": self.group,
                "group.protocol": self.protocol,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(self.topics)
        while not self.is_stopping.is_set():
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                self.note(message.topic() or "", message.partition() or 0, message.value() or b"")
        consumer.close()


class OwnReader(GroupReader):
    """A member by our own client."""

    def run(self) -> None:
        """Read until it is to stop."""
        security = security_of(self.client)
        if security is not None:
            LOGIN.set(security.login())
            tls = security.tls()
            TLS.set(None if tls is None else TlsDialer(tls))
        trio.run(self._read)

    async def _read(self) -> None:
        config = ConsumerConfig(
            group_id=self.group,
            group_protocol=self.protocol,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        async with open_consumer(self.client["bootstrap.servers"], config) as consumer:
            consumer.subscribe(self.topics)
            while not self.is_stopping.is_set():
                for record in await consumer.poll(POLL_S):
                    self.note(record.topic, record.partition, record.value or b"")


class ShareReader(GroupReader):
    """A member of a share group, by our own client, that accepts all records."""

    def run(self) -> None:
        """Read until it is to stop."""
        trio.run(self._read)

    async def _read(self) -> None:
        config = ShareConsumerConfig(group_id=self.group)
        async with open_share_consumer(self.client["bootstrap.servers"], config) as consumer:
            consumer.subscribe(self.topics)
            while not self.is_stopping.is_set():
                for record in await consumer.poll(POLL_S):
                    record.accept()
                    self.note(record.topic, record.partition, record.value or b"")


def numbers_of(readers: Sequence[GroupReader], topic: str, partition: int) -> set[int]:
    """Return the numbers of a partition that any of the members has read."""
    return set().union(*(one.numbers.get((topic, partition), set()) for one in readers))
