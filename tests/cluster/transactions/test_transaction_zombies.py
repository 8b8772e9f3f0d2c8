"""A producer whose process is paused in a transaction, and resumes after it has a successor."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.secure_form import command_of

pytestmark = pytest.mark.cluster

TOPIC = "payments"
TIMEOUT_S = 60

OWN = """
import sys, trio
from ottla.client import ProducerFencedError, open_producer
from ottla.model.settings.client import ProducerConfig

async def main():
    async with open_producer(sys.argv[1], ProducerConfig(transactional_id="pay")) as producer:
        async with producer.transaction():
            await (await producer.send("payments", b"of the old one", partition=0))
            print("open", flush=True)
            sys.stdin.readline()
            await producer.send("payments", b"too late", partition=0)

try:
    trio.run(main)
except* ProducerFencedError:
    print("fenced", flush=True)
"""

LIBRDKAFKA = """
import sys
from confluent_kafka import KafkaException, Producer

producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "pay"})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce("payments", b"of the old one", partition=0)
producer.flush(60)
print("open", flush=True)
sys.stdin.readline()
try:
    producer.produce("payments", b"too late", partition=0)
    producer.commit_transaction(60)
except KafkaException as caught:
    print("fenced" if caught.args[0].fatal() else caught, flush=True)
"""


def read_committed(bootstrap: str) -> list[bytes]:
    """Return all that readers of committed records see."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            break
        if message is not None:
            found.append(message.value() or b"")
    consumer.close()
    return found


@pytest.mark.parametrize("program", [OWN, LIBRDKAFKA], ids=["own", "librdkafka"])
def test_who_wakes_behind_its_successor_is_fenced_and_leaves_nothing(
    fresh: Any, tmp_path: Path, program: str
) -> None:
    script = tmp_path / "zombie.py"
    script.write_text(program)
    fresh.start()
    bootstrap = fresh.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
    with subprocess.Popen(
        [*command_of(script), bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as zombie:
        assert zombie.stdin is not None
        assert zombie.stdout is not None
        try:
            assert zombie.stdout.readline() == "open\n"
            os.kill(zombie.pid, signal.SIGSTOP)
            successor = Producer({"bootstrap.servers": bootstrap, "transactional.id": "pay"})
            successor.init_transactions(TIMEOUT_S)
            successor.begin_transaction()
            successor.produce(TOPIC, b"of the new one", partition=0)
            successor.commit_transaction(TIMEOUT_S)
            os.kill(zombie.pid, signal.SIGCONT)
            zombie.stdin.write("\n")
            zombie.stdin.close()
            assert zombie.stdout.readline() == "fenced\n"
            zombie.wait(TIMEOUT_S)
        finally:
            zombie.kill()
    assert read_committed(bootstrap) == [b"of the new one"]
