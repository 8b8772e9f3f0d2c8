"""The programs of docs/queues.md run unchanged, at Ottla's brokers and at Kafka's own.

If OTTLA_KAFKA_JARS names a directory with the jars of Kafka 4.4 or newer, a node is started.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import ottla.testing
from ottla.bench.kafka.kafka_server import open_kafka
from ottla.client import (
    ConfigKind,
    ConfigResource,
    ShareConsumerConfig,
    open_admin,
    open_producer,
    open_share_consumer,
)

JARS = "OTTLA_KAFKA_JARS"
PAGE = (Path(__file__).parents[3] / "docs" / "queues.md").read_text()
PROGRAMS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
TIMEOUT_S = 60.0
pytestmark = pytest.mark.timeout(300)


def program(mark: str) -> str:
    (found,) = (one for one in PROGRAMS if mark in one)
    return found


@pytest.fixture(scope="module", params=["ottla", "kafka"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "ottla":
        with ottla.testing.cluster() as cluster:
            yield cluster.bootstrap
        return
    given = os.environ.get(JARS)
    if not given:
        pytest.skip(f"LOUD: {JARS} is not set; the programs of docs/queues.md were NOT run here")
    with open_kafka(Path(given), tmp_path_factory.mktemp("kafka"), SETTINGS) as server:
        yield server.bootstrap


async def prepare(bootstrap: str, topic: str, group: str, values: list[bytes]) -> None:
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(topic, partition_count=1)
        resource = ConfigResource(ConfigKind.GROUP, group)
        await admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})
    async with open_producer(bootstrap) as producer:
        await producer.send_many(topic, values)


def main_of(mark: str, bootstrap: str) -> Any:
    """Return the function `main` of a program, without running it."""
    text = program(mark).replace("localhost:9092", bootstrap).replace("trio.run(main)", "")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, f"queues.md: {mark}", "exec"), names)
    return names["main"]


def test_every_program_is_run() -> None:
    marks = ["BadInput,)", "partition_count=3", "release()", "poll_batches", "aio", "delay.ms"]
    marks += ["queue.group.enable", "errors.message"]
    assert sorted(map(program, marks)) == sorted(PROGRAMS)


async def test_the_worker_handles_what_the_second_program_sends(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with trio.fail_after(TIMEOUT_S):
        await main_of("partition_count=3", bootstrap)()
        printed = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main_of("rejects=(BadInput,)", bootstrap))
            while printed.count("attempt 1") < 2:
                await trio.sleep(0.1)
                printed += capsys.readouterr().out
            nursery.cancel_scope.cancel()
    assert "mail to ann@example.org attempt 1" in printed
    assert "mail to bob@example.org attempt 1" in printed


async def test_records_are_settled_one_by_one(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await prepare(bootstrap, "logins", "audit", [b"ann", b"nonsense", b"later"])
    with trio.fail_after(TIMEOUT_S):
        await main_of("record.release()", bootstrap)()
    assert capsys.readouterr().out.splitlines() == ["b'ann' 1", "b'later' 2"]


async def test_batches_are_settled_as_a_whole(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await prepare(bootstrap, "numbers", "sums", [b"%d" % one for one in range(100)])
    with trio.fail_after(TIMEOUT_S):
        await main_of("poll_batches", bootstrap)()
    assert capsys.readouterr().out.splitlines() == ["100 4950"]


async def test_the_asyncio_program_prints_its_record(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await prepare(bootstrap, "images", "thumbnails", [b"tree.png"])
    text = program("aio").replace("localhost:9092", bootstrap)
    names = {"__name__": "__main__"}
    with trio.fail_after(TIMEOUT_S):
        await trio.to_thread.run_sync(exec, compile(text, "queues.md: aio", "exec"), names)
    assert capsys.readouterr().out.splitlines() == ["thumbnail of b'tree.png'"]


async def test_delayed_and_failed_records_are_delivered_later(
    bootstrap: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if "kafka" in request.node.name:
        pytest.skip("Kafka has no delays")
    with trio.fail_after(TIMEOUT_S):
        await main_of("delay.ms", bootstrap)()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("b'now' attempt 1 after ")
    assert sum(line.startswith("b'now' attempt 2") for line in lines) == 1
    (last,) = [line for line in lines if line.startswith("b'in five seconds' attempt 1 after ")]
    assert int(last.split()[-2]) >= 5


async def test_a_rejected_record_is_a_dead_letter(
    bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await prepare(bootstrap, "refunds", "refunds", [b"12.50", b"nonsense"])
    with trio.fail_after(TIMEOUT_S):
        await main_of("queue.group.enable", bootstrap)()
        config = ShareConsumerConfig(group_id="refunds")
        async with open_share_consumer(bootstrap, config) as consumer:
            consumer.subscribe(["refunds"])
            async for record in consumer:
                if record.value == b"nonsense":
                    await record.reject()
                    break
                record.accept()
        await main_of("errors.message", bootstrap)()
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["b'nonsense' b'1' b'Offset rejected by client.'"]
