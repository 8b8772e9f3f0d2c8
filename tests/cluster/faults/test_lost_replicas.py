"""Disks that hold less than was promised: a whole replica leads, and refills the lost one.

Three brokers with 300 records of acks=all in a topic for each damage.  All stop, broker 1 last; its
disk is damaged; all start in some order.  Nothing that was acknowledged may be missing at the end.
OTTLA_LOSSES=N walks every order of restarts, after clean stops and after kills, N times.
"""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.cluster_format import format_plan

pytestmark = pytest.mark.cluster

ROUNDS = int(os.environ.get("OTTLA_LOSSES", "0"))
RECORD_COUNT = 300
FIRST_COUNT = 100
"""Records that older copies of files have."""
VICTIM = "broker 1"
LOG = "00000000000000000000.log"
CHECKPOINTED_S = "1"

Damage = Callable[[Path, Path], None]
"""Damages a partition's directory; the other path is an older copy of it."""


def remove(directory: Path, older: Path) -> None:
    shutil.rmtree(directory)


def empty_metadata(directory: Path, older: Path) -> None:
    (directory / "partition.metadata").write_bytes(b"")


def flip_metadata(directory: Path, older: Path) -> None:
    path = directory / "partition.metadata"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)


def delete_log(directory: Path, older: Path) -> None:
    (directory / LOG).unlink()


def empty_log(directory: Path, older: Path) -> None:
    (directory / LOG).write_bytes(b"")


def halve_log(directory: Path, older: Path) -> None:
    path = directory / LOG
    os.truncate(path, path.stat().st_size // 2)


def restore_older_log(directory: Path, older: Path) -> None:
    shutil.copy(older / LOG, directory / LOG)


def restore_older_directory(directory: Path, older: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(older, directory)


DAMAGES: dict[str, Damage] = {
    "removed": remove,
    "metadata-emptied": empty_metadata,
    "metadata-flipped": flip_metadata,
    "log-deleted": delete_log,
    "log-emptied": empty_log,
    "log-halved": halve_log,
    "log-older": restore_older_log,
    "directory-older": restore_older_directory,
}

ORDERS = list(itertools.permutations((1, 2, 3))) if ROUNDS else [(1, 3, 2)]
STOPS = ("clean", "killed") if ROUNDS else ("clean",)


class LossBench:
    """A cluster of three with a topic for each damage."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.data = Path(cluster.node(VICTIM).dir)
        self.older = cluster.plan.directory / "older"
        cluster.start()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(name, 1, replica_assignment=[[1, 2, 3]]) for name in DAMAGES]
        for future in admin.create_topics(topics).values():
            future.result(timeout=60)
        self._write(range(FIRST_COUNT))
        self.stop("clean")
        shutil.copytree(self.data, self.older)
        self.start((1, 2, 3))
        self.heal()
        self._write(range(FIRST_COUNT, RECORD_COUNT))

    def _write(self, numbers: range) -> None:
        failed: list[Any] = []
        producer = Producer(
            {**self.cluster.client, "acks": "all", "linger.ms": 0, "batch.num.messages": 1}
        )
        for name in DAMAGES:
            for number in numbers:
                producer.produce(
                    name,
                    b"%d" % number,
                    partition=0,
                    on_delivery=lambda error, message: failed.append(error) if error else None,
                )
        assert producer.flush(120) == 0
        assert failed == []

    def stop(self, how: str) -> None:
        """Stop all brokers, the victim last."""
        names = ["broker 3", "broker 2", VICTIM]
        if how == "clean":
            for name in names:
                assert self.cluster.end(name) == 0
        else:
            self.cluster.kill(*names)

    def start(self, order: tuple[int, ...]) -> None:
        """Start the brokers one after the other."""
        for number in order:
            self.cluster.start(f"broker {number}")

    def heal(self, how: str = "clean") -> None:
        """Wait until all is well; after kills the operator elects leaders.

        Then no replica is known to have everything (KIP-966), and the last leader has not.
        """
        if how == "killed":
            self.cluster.ottla("topic", "elect", "--unclean", "--yes", *DAMAGES)
        self.cluster.wait_healthy(120)

    def missing(self) -> dict[str, list[int]]:
        """Return the records of each topic that cannot be read any longer."""
        consumer = Consumer(
            {**self.cluster.client, "group.id": "losses", "enable.auto.commit": "false"}
        )
        missing = {}
        for name in DAMAGES:
            at = TopicPartition(name, 0, 0)
            _, end = consumer.get_watermark_offsets(at, timeout=60)
            consumer.assign([at])
            found: set[int] = set()
            while end and len(found) < min(end, RECORD_COUNT):
                messages = consumer.consume(RECORD_COUNT, timeout=20)
                assert messages, f"{name}: {len(found)} of {end}"
                found |= {int(message.value()) for message in messages}
            if lost := sorted(set(range(RECORD_COUNT)) - found):
                missing[name] = lost
        consumer.close()
        return missing

    def errors(self) -> str:
        """Return the victim's log lines at level ERROR."""
        lines = self.cluster.log_of(VICTIM).read_text().splitlines()
        return "\n".join(line for line in lines if " ERROR " in line)


@pytest.fixture(scope="module")
def bench(plan_module_cluster: Any) -> LossBench:
    cluster = plan_module_cluster(
        brokers=3,
        min_insync_replicas="2",
        replica_high_watermark_checkpoint_interval_ms="500",
        transaction_state_log_replication_factor="3",
        offsets_topic_replication_factor="3",
        offsets_topic_num_partitions="1",
    )
    return LossBench(cluster)


@pytest.mark.parametrize("round_", range(max(1, ROUNDS)))
@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_every_damage_of_a_replica_is_refilled_by_a_whole_one(
    bench: LossBench, order: tuple[int, ...], how: str, round_: int
) -> None:
    bench.stop(how)
    for name, damage in DAMAGES.items():
        damage(bench.data / f"{name}-0", bench.older / f"{name}-0")
    bench.cluster.log_of(VICTIM).write_text("")

    bench.start(order)
    bench.heal(how)

    errors = bench.errors()
    assert [name for name in DAMAGES if f"{name}-0" not in errors] == []
    assert bench.missing() == {}


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_an_empty_disk_with_a_new_directory_id_is_refilled(
    bench: LossBench, order: tuple[int, ...]
) -> None:
    bench.stop("clean")
    shutil.rmtree(bench.data)
    format_plan(bench.cluster.plan)

    bench.start(order)
    bench.heal()

    assert bench.missing() == {}
