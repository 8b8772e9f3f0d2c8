"""One Spark and one real broker for all tests of the pipeline, each started when first needed."""

import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest
import trio
from _pytest.runner import runtestprotocol

from ottla.cli.cluster.cluster_file import make_plan
from ottla.cli.cluster.cluster_format import format_plan
from ottla.cli.cluster.local_cluster import LocalCluster
from ottla.client import Admin, ProducerConfig, TopicPartition, open_admin, open_producer
from ottla.model.errors import ConfigError
from ottla.pipeline import register
from ottla.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every Java that tests start, and which soon ends again: to optimise its code, and to collect
its garbage side by side, would take more time than it saves."""
ANSWER_TIMEOUT_S = 60.0
ASK_AGAIN_S = 0.1
TASKS = 2
SPARKS_PATIENCE = "Timed out while waiting for the Python worker to connect back"
"""Spark's message about a worker that took ten seconds to start, a limit without a setting."""
TRIES = 5

T = TypeVar("T")
Headers = Sequence[tuple[str, bytes | None]]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test again that failed because the machine was too busy for Spark's patience."""
    if not isinstance(item, pytest.Function) or Path(__file__).parent not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(TRIES):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not any(one.failed and SPARKS_PATIENCE in one.longreprtext for one in reports):
            break
        item._initrequest()
    for one in reports:
        item.ihook.pytest_runtest_logreport(report=one)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> None:
    """Have Spark start quick Javas, also in the processes that tests start."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)


@pytest.fixture(scope="session")
def spark_environment() -> None:
    """The environment of Sparks in this process and in programs."""
    try:
        java = find_java()
    except ConfigError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"Spark needs a Java 17: {error}")
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark(
    spark_environment: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["SparkSession"]:
    """The one Spark of the tests, which knows `format("ottla")`."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("tests")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", TASKS)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()
    gateway = session.sparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait(ANSWER_TIMEOUT_S)


class Record(NamedTuple):
    """One record that a test produces."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class LiveCluster:
    """A controller and a broker as processes of their own, with helpers for tests."""

    def __init__(self, bootstrap: str, log_dir: Path) -> None:
        self.bootstrap = bootstrap
        self.log_dir = log_dir
        self._count = 0

    def new_topic(
        self, partitions: int = 1, *, name: str = "", configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with a unique name (or this one); return its name.

        It keeps records of any age: a test's timestamps are fixed, and retention's clock is not.
        """
        self._count += 1
        topic = name or f"topic-{self._count}"
        kept = {"retention.ms": "-1", **(configs or {})}
        self.ask(lambda admin: admin.create_topic(topic, partition_count=partitions, configs=kept))
        return topic

    def produce(
        self, topic: str, records: Iterable[Record | bytes], **config: Any
    ) -> list[TopicPartition]:
        """Produce records in batches of up to 16 KiB; return the partition and offset of each."""
        config = {"batch_bytes": 16_384, **config}

        async def send() -> list[TopicPartition]:
            async with open_producer(self.bootstrap, ProducerConfig(**config)) as producer:
                sent = [
                    await producer.send(topic, **_fields(record))  # in order
                    for record in records
                ]
                found = [await delivery for delivery in sent]
            return [TopicPartition(topic, one.partition) for one in found]

        return self._run(send)

    def transact(self, topic: str, steps: Sequence[tuple[Sequence[bytes], bool]]) -> None:
        """Produce transactions, each with its values and whether it is committed."""

        async def send() -> None:
            settings = ProducerConfig(transactional_id=f"writer-of-{topic}", linger_ms=0)
            async with open_producer(self.bootstrap, settings) as producer:
                for values, is_committed in steps:
                    with suppress(ZeroDivisionError):
                        async with producer.transaction():
                            for value in values:
                                await (await producer.send(topic, value, partition=0))
                            if not is_committed:
                                raise ZeroDivisionError

        self._run(send)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Move the log start of partitions, as retention does."""
        wanted = {TopicPartition(topic, number): offset for number, offset in before.items()}
        self.ask(lambda admin: admin.delete_records(wanted))

    def ends(self, topic: str) -> dict[int, int]:
        """Return the end offset of each partition."""

        async def ask(admin: Admin) -> dict[int, int]:
            found = (await admin.describe_topic(topic)).partitions
            wanted = {TopicPartition(topic, one.partition): -1 for one in found}
            return {
                at.partition: one.offset for at, one in (await admin.list_offsets(wanted)).items()
            }

        return self.ask(ask)

    def group(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group."""
        found = self.ask(lambda admin: admin.group_offsets(group))
        return {at: one.offset for at, one in found.items()}

    def wait_for(self, ask: Callable[[], bool], what: str) -> None:
        """Ask again and again until it is so."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not ask():
            assert time.monotonic() < deadline, f"{what}: not in {ANSWER_TIMEOUT_S:g} s"
            time.sleep(ASK_AGAIN_S)

    def ask(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        """Ask the cluster something by our own admin client."""

        async def body() -> T:
            async with open_admin(self.bootstrap) as admin:
                return await ask(admin)

        return self._run(body)

    def _run(self, body: Callable[[], Awaitable[T]]) -> T:
        async def bounded() -> T:
            with trio.fail_after(ANSWER_TIMEOUT_S):
                return await body()

        return trio.run(bounded)


def _fields(record: Record | bytes) -> dict[str, Any]:
    return (Record(record) if isinstance(record, bytes) else Record(*record))._asdict()


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    """A function that makes a record to produce: (value, partition, key=, headers=, …)."""

    def make(value: bytes | None, partition: int | None = None, **fields: Any) -> Record:
        return Record(value, partition=partition, **fields)

    return make


@pytest.fixture(scope="session")
def live_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """A running cluster of one controller and one broker; tests name their own topics."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    plan = make_plan(directory, host="127.0.0.1", port=0, controllers=1, brokers=1)
    # Clients push their metrics only where a subscription asks for them.
    plan.settings = {
        "telemetry.topic": "true",
        # One broker has both coordinators: a partition of each is as good as fifty.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    plan.write_properties()
    format_plan(plan)
    processes = LocalCluster(plan)
    try:
        assert processes.start() == 0
        yield LiveCluster(plan.bootstrap, Path(plan.brokers[0].dir))
    finally:
        processes.stop()
