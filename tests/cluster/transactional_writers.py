"""Clients that write numbered records in transactions, each in a thread of its own."""

import threading
import time
from collections.abc import Callable
from typing import Any

import trio
from confluent_kafka import KafkaException, Producer

from ottla.client import TransactionAbortedError, open_producer
from ottla.model.settings.client import ProducerConfig

PARTITION_COUNT = 2
TIMEOUT_S = 60


class Writer:
    """A client that writes 0, 1, 2 … to each partition, one number a transaction, in a thread.

    A number whose transaction was aborted is written again.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.committed_at: list[float] = []
        """Time of each committed transaction, by the monotonic clock, in seconds."""
        self.errors: list[str] = []
        """Error codes of retried calls."""
        self.fault: BaseException | None = None
        self.is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_until_stopped)

    @property
    def count(self) -> int:
        """Number of committed transactions."""
        return len(self.committed_at)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopping.set()
        self._thread.join(2 * TIMEOUT_S)
        assert not self._thread.is_alive()

    def wait_for_more(self, count: int) -> None:
        """Return after a number of further committed transactions."""
        wanted, deadline = self.count + count, time.monotonic() + TIMEOUT_S
        while self.count < wanted:
            assert self.fault is None, self.fault
            assert time.monotonic() < deadline, f"{self.name} stands at {self.count}"
            time.sleep(0.01)

    def _run_until_stopped(self) -> None:
        try:
            self.run()
        except BaseException as fault:
            self.fault = fault

    def run(self) -> None:
        """Write until it is to stop."""
        raise NotImplementedError


class LibrdkafkaWriter(Writer):
    """A writer that adds partitions itself, whatever transaction.version is."""

    def run(self) -> None:
        """Write until it is to stop."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": self.name}
        producer = Producer({**settings, "linger.ms": 0})
        self._again(lambda: producer.init_transactions(TIMEOUT_S))
        while not self.is_stopping.is_set():
            producer.begin_transaction()
            try:
                for index in range(PARTITION_COUNT):
                    producer.produce(self.name, b"%d" % self.count, partition=index)
                self._again(lambda: producer.commit_transaction(TIMEOUT_S))
            except KafkaException as caught:
                error = caught.args[0]
                if not error.txn_requires_abort():
                    raise
                self.errors.append(error.name())
                self._again(lambda: producer.abort_transaction(TIMEOUT_S))
            else:
                self.committed_at.append(time.monotonic())

    def _again(self, call: Callable[[], Any]) -> None:
        """Repeat a call until it fails with no retriable error."""
        while True:
            try:
                call()
            except KafkaException as caught:
                error = caught.args[0]
                if not error.retriable():
                    raise
                self.errors.append(error.name())
            else:
                return


class OwnWriter(Writer):
    """A writer that keeps the transaction.version protocol of its connection."""

    def run(self) -> None:
        """Write until it is to stop."""
        trio.run(self._write)

    async def _write(self) -> None:
        config = ProducerConfig(transactional_id=self.name, linger_ms=0)
        async with open_producer(self.bootstrap, config) as producer:
            while not self.is_stopping.is_set():
                try:
                    async with producer.transaction():
                        for index in range(PARTITION_COUNT):
                            await producer.send(self.name, b"%d" % self.count, partition=index)
                except TransactionAbortedError as aborted:
                    self.errors.append(str(aborted))
                else:
                    self.committed_at.append(time.monotonic())
