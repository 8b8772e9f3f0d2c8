"""One cluster within the process for all tests of exports, and topics whose records are known."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import trio

from ottla.client import Admin, TopicPartition, open_admin, open_producer
from ottla.pipeline.export.export import ExportOptions
from ottla.pipeline.read.read_options import ReadOptions
from ottla.testing import SyncCluster, cluster

TIMEOUT_S = 60


class LogRow(NamedTuple):
    """A record with its place in the log."""

    partition: int
    offset: int
    value: bytes | None


class TopicBench:
    """Topics of a running cluster, and all records that were produced to them."""

    def __init__(self, running: SyncCluster) -> None:
        self.bootstrap = running.bootstrap
        self._count = 0

    def new_topic(self, partition_count: int = 1, name: str = "") -> str:
        """Create a topic; return its name."""
        self._count += 1
        topic = name or f"topic-{self._count}"
        self.ask(lambda admin: admin.create_topic(topic, partition_count=partition_count))
        return topic

    def produce(self, topic: str, values: Sequence[bytes | None], **fields: Any) -> list[LogRow]:
        """Produce values to all partitions in turn; return their rows, in order of the log."""

        async def body() -> list[LogRow]:
            async with open_producer(self.bootstrap) as producer:
                sent = [await producer.send(topic, value, **fields) for value in values]
                found = [await one for one in sent]
            return sorted(
                LogRow(one.partition, one.offset, value)
                for one, value in zip(found, values, strict=True)
            )

        return trio.run(body)

    def ask(self, ask: Callable[[Admin], Any]) -> None:
        """Send a request of an Admin."""

        async def body() -> None:
            with trio.fail_after(TIMEOUT_S):
                async with open_admin(self.bootstrap) as admin:
                    await ask(admin)

        trio.run(body)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start of a partition, as retention does."""
        wanted = {TopicPartition(topic, partition): before}
        self.ask(lambda admin: admin.delete_records(wanted))

    def options(self, topic: str, **options: Any) -> ExportOptions:
        """Return the options of an export of a topic."""
        read = ReadOptions(
            bootstrap=self.bootstrap, isolation_level="read_committed", poll_timeout_ms=20_000
        )
        return ExportOptions(topic=topic, read=read, **options)


@pytest.fixture(scope="session")
def bench() -> Iterator[TopicBench]:
    with cluster() as running:
        yield TopicBench(running)
