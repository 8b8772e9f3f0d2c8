"""Clients that write numbered records in transactions, each in a thread of its own."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import trio
from confluent_kafka import KafkaException, Producer

from ottla.client import TransactionAbortedError, open_producer
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.settings.client import ProducerConfig
from tests.cluster.conftest import security_of

PARTITION_COUNT = 2
TIMEOUT_S = 60


class Writer:
    """A client that writes 0, 1, 2 … to each partition, one number a transaction, in a thread.

    A number whose transaction was aborted is written again.
    """

    def __init__(self, client: Mapping[str, str], name: str) -> None:
        self.client = client
        """Settings of the client, by librdkafka's keys."""
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
        producer = Producer({**self.client, "transactional.id": self.name, "linger.ms": 0})
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
        security = security_of(self.client)
        if security is not None:
            LOGIN.set(security.login())
            tls = security.tls()
            TLS.set(None if tls is None else TlsDialer(tls))
        trio.run(self._write)

    async def _write(self) -> None:
        config = ProducerConfig(transactional_id=self.name, linger_ms=0)
        bootstrap = self.client["bootstrap.servers"]
        async with open_producer(bootstrap, config) as producer:
            while not self.is_stopping.is_set():
                try:
                    async with producer.transaction():
                        for index in range(PARTITION_COUNT):
                            await producer.send(self.name, b"%d" % self.count, partition=index)
                except TransactionAbortedError as aborted:
                    self.errors.append(str(aborted))
                else:
                    self.committed_at.append(time.monotonic())
