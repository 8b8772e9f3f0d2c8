"""The group examples of each client's documentation work unchanged, with default settings."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.secure_form import command_of

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).with_name("examples")
CLIENTS = ("confluent_kafka", "kafka_python", "aiokafka")
PARTITION_COUNT = 4
END_S = 60.0


class Group:
    """The examples' group as an administrator sees it."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        made = self._admin.create_topics([NewTopic("mytopic", PARTITION_COUNT)])
        made["mytopic"].result(60)

    def has(self, count: int) -> bool:
        """Return whether a number of members share the topic."""
        found = self._admin.describe_consumer_groups(["mygroup"])["mygroup"].result(60)
        wanted = ConsumerGroupState.STABLE if count else ConsumerGroupState.EMPTY
        return found.state == wanted and len(found.members) == count

    def committed(self) -> int:
        """Return how many records the group has committed."""
        asked = [ConsumerGroupTopicPartitions("mygroup")]
        found = self._admin.list_consumer_group_offsets(asked)["mygroup"].result(60)
        return sum(one.offset for one in found.topic_partitions)


def command(cluster: Any, client: str, what: str) -> list[str]:
    path = EXAMPLES / f"with_{client}.py"
    return [*command_of(path), cluster.bootstrap, what]


class Prober:
    """Sends to one partition after the other until a consumer reads there.

    A consumer that starts at the end, the default, has a partition before it knows its end offset:
    records sent in between are not read.
    """

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self.sent_count = 0

    def reaches(self, partition: int, lines: Callable[[], list[str]]) -> bool:
        """Send one more probe; return whether one has been read."""
        probe = f"probe {partition}"
        self._producer.produce("mytopic", probe, partition=partition)
        self._producer.flush(60)
        self.sent_count += 1
        return probe in lines()


def produce(cluster: Any, client: str, values: list[str]) -> None:
    words = command(cluster, client, "produce")
    subprocess.run(words, input="\n".join(values), text=True, check=True, timeout=60)


def _hear_interrupts() -> None:
    """Be as a terminal starts a program: a script's background job is deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def consumers(cluster: Any, client: str, outputs: list[Path]) -> Iterator[None]:
    """Run a consumer for each output; end them as Ctrl-C does."""
    running = []
    for path in outputs:
        with path.open("w") as output:
            words = command(cluster, client, "consume")
            running.append(subprocess.Popen(words, stdout=output, preexec_fn=_hear_interrupts))
    try:
        yield
        for child in running:
            child.send_signal(signal.SIGINT)
        assert [child.wait(END_S) for child in running] == [0] * len(running)
    finally:
        for child in running:
            child.kill()
            child.wait()


@pytest.mark.parametrize("client", CLIENTS)
def test_the_examples_of_a_client_share_a_topic_and_go_on_where_they_left_off(
    fresh: Any, tmp_path: Path, client: str
) -> None:
    fresh.start("controller", "broker")
    group, prober = Group(fresh.bootstrap), Prober(fresh.bootstrap)
    outputs = [tmp_path / "first", tmp_path / "second"]
    first = [f"first {number}" for number in range(40)]
    later = [f"later {number}" for number in range(10)]

    def lines() -> list[str]:
        return sorted(line for path in outputs for line in path.read_text().splitlines())

    def records() -> list[str]:
        return [line for line in lines() if not line.startswith("probe")]

    with consumers(fresh, client, outputs):
        fresh.wait_for(lambda: group.has(2), "two members")
        for partition in range(PARTITION_COUNT):
            fresh.wait_for(partial(prober.reaches, partition, lines), f"reader of {partition}")
        produce(fresh, client, first)
        fresh.wait_for(lambda: records() == sorted(first), "record of the first run")
    fresh.wait_for(lambda: group.has(0), "empty group")
    assert group.committed() == len(first) + prober.sent_count
    produce(fresh, client, later)
    outputs = [tmp_path / "third"]
    with consumers(fresh, client, outputs):
        fresh.wait_for(lambda: lines() == sorted(later), "record of the second run")
    assert group.committed() == len(first) + prober.sent_count + len(later)
