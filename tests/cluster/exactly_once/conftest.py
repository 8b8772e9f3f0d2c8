"""Programs that copy a topic in transactions, each to a topic of its own, and checks of the copies.

Each client has one (`copiers/`): a process that can be killed and restarted, and that owns its
group, its transactional id and its target. The source is written at the same time.
"""

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from ottla.bench.kafka.kafka_server import java_program
from ottla.broker.coordinators.placement import partition_of
from ottla.client.admin import open_admin
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import RefusedError
from tests.cluster.secure_form import command_of, java_login

PROGRAMS = Path(__file__).with_name("copiers")
JARS = "OTTLA_KAFKA_JARS"
CLIENTS = ("confluent_kafka", "kafka_python", "aiokafka", "ottla")
SOURCE = "source"
PARTITION_COUNT = 3
WRITTEN_PER_S = 30
END_S = 150.0
"""Time for the copies to catch up after the last fault, on a machine with other work."""
ANSWER_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.2
LAST_WORDS = 2_000
FENCED = 3
SAFE_DOWNGRADE = 2
UPGRADE = 1
ROLES = ("transaction coordinator", "group coordinator", "partition leader", "client")
BACK_AT_ONCE = 0.25
"""Probability that the next fault does not wait until the cluster is whole again."""
NODES = {"controllers": 3, "brokers": 3}
SETTINGS = {
    "transaction_state_log_num_partitions": "5",
    "offsets_topic_num_partitions": "5",
    "group_min_session_timeout_ms": "1000",
}

Copied = dict[int, list[bytes]]
"""The values of each partition in the order of its log."""


class Copier:
    """One program and its processes: `start` starts one more of them under the same names."""

    def __init__(self, command: list[str], name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.exits: list[int] = []
        """Exit codes of the processes that ended by themselves."""
        self._command = command
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        """Start one more process."""
        with self.log.open("ab") as log:
            child = subprocess.Popen(self._command, stdout=log, stderr=log)
        self._running.append(child)
        return child

    def kill(self) -> None:
        """End all of its processes by SIGKILL."""
        for child in self._running:
            child.kill()
            child.wait()
        self._running.clear()

    def pause(self) -> subprocess.Popen[bytes]:
        """Pause its process by SIGSTOP, stop watching it, and return it."""
        (child,) = self._running
        child.send_signal(signal.SIGSTOP)
        self._running.clear()
        return child

    def look_after(self) -> None:
        """Restart the process if it ended by itself, as a service manager does."""
        for child in [*self._running]:
            code = child.poll()
            if code is not None:
                self._running.remove(child)
                self.exits.append(code)
                self.start()

    def last_words(self) -> str:
        """Return the end of its output."""
        return f"{self.name} ended with {self.exits}: {self.log.read_text()[-LAST_WORDS:]}"


class SourceWriter:
    """A producer in a thread, which writes numbers to all partitions of the source in turn."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._producer = Producer({**settings, "enable.idempotence": True})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(1 / WRITTEN_PER_S):
            self._producer.produce(SOURCE, b"%d" % number, partition=number % PARTITION_COUNT)
            self._producer.poll(0)
            number += 1

    def stop(self) -> None:
        """Stop the producer after everything is delivered."""
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(END_S) == 0


class CopyBench:
    """A cluster, its copiers and their source; owns the copiers."""

    def __init__(self, cluster: Any, directory: Path, clients: dict[str, list[str]]) -> None:
        self.cluster = cluster
        self.copiers: list[Copier] = []
        self.faults: list[str] = []
        self._directory = directory
        self._commands = clients
        self._settings = {"bootstrap.servers": cluster.bootstrap, "enable.metrics.push": False}
        self._admin = AdminClient(self._settings)
        self._make_topics([SOURCE, *clients])
        self._writer: SourceWriter | None = None
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        """Held while a copier is started or ended."""
        self._thread = threading.Thread(target=self._look_after, daemon=True)

    def _make_topics(self, names: list[str]) -> None:
        replicas = len(self.cluster.named("broker"))
        new = [NewTopic(name, PARTITION_COUNT, replicas) for name in names]
        for future in self._admin.create_topics(new).values():
            future.result(timeout=60)

    def start(self) -> None:
        """Start the source and one process of each copier."""
        self._writer = SourceWriter(self._settings)
        for name, command in self._commands.items():
            words = [*command, self.cluster.bootstrap, SOURCE, name]
            copier = Copier(words, name, self._directory / f"{name}.log")
            copier.start()
            self.copiers.append(copier)
        self._thread.start()

    def _look_after(self) -> None:
        while not self._is_over.wait(LOOK_AGAIN_S):
            with self._lock:
                for copier in self.copiers:
                    copier.look_after()

    def kill_copier(self, copier: Copier) -> None:
        """End a copier by SIGKILL and start it again."""
        with self._lock:
            copier.kill()
            copier.start()

    def replace_copier(self, copier: Copier) -> subprocess.Popen[bytes]:
        """Pause a copier and start a successor; return the paused process."""
        with self._lock:
            paused = copier.pause()
            copier.start()
        return paused

    def killer(self) -> "Killer":
        """Return the random killer, seeded by OTTLA_KILLS_SEED."""
        seed = int(os.environ.get("OTTLA_KILLS_SEED", random.randrange(1 << 32)))
        print(f"OTTLA_KILLS_SEED={seed}")
        return Killer(self, random.Random(seed))

    def set_transaction_version(self, level: int) -> None:
        """Raise or lower the finalised level of transaction.version; wait until each sees it."""
        admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap.split(","))
        try:
            if self._transaction_version(admin) != level:
                kind = UPGRADE if level else SAFE_DOWNGRADE
                admin.update_features({"transaction.version": (kind, level)})
                self.cluster.wait_for(
                    lambda: self._transaction_version(admin) == level, "level of the feature"
                )
        finally:
            admin.close()

    def _transaction_version(self, admin: KafkaAdminClient) -> int:
        found = admin.describe_features()["transaction.version"].get("finalized", (0, 0))
        return int(found[1])

    # Who is responsible.

    def transaction_coordinator(self, copier: Copier) -> int:
        """Return the broker that coordinates a copier's transactions; -1 if none does."""
        return self._leader_for("__transaction_state", copier.name)

    def group_coordinator(self, copier: Copier) -> int:
        """Return the broker that coordinates a copier's group; -1 if none does."""
        return self._leader_for("__consumer_offsets", copier.name)

    def partition_leader(self, topic: str, partition: int) -> int:
        """Return the broker that leads a partition; -1 if none does."""
        return int(self.cluster.leaders(topic).get(partition, -1))

    def _leader_for(self, topic: str, key: str) -> int:
        leaders = self.cluster.leaders(topic)
        return leaders[partition_of(key, len(leaders))] if leaders else -1

    # The checks.

    def stop_source(self) -> Copied:
        """Stop the source; return all its records."""
        assert self._writer is not None
        self._writer.stop()
        self._writer = None
        return self.read(SOURCE)

    def finish(self) -> Copied:
        """Stop the source, wait until all is copied, stop the copiers; return the source."""
        written = self.stop_source()
        ends = {partition: len(values) for partition, values in written.items()}
        deadline = time.monotonic() + END_S
        for copier in self.copiers:
            while (position := self._committed(copier.name)) != ends:
                assert time.monotonic() < deadline, f"{position} of {ends}: {copier.last_words()}"
                time.sleep(LOOK_AGAIN_S)
            waited_s = time.monotonic() - deadline + END_S
            print(f"{copier.name} is at the end after {waited_s:.1f} s")
        self.close()
        return written

    def check(self, written: Copied) -> None:
        """Assert that each target equals the source, record by record, in order."""
        ends = {partition: len(values) for partition, values in written.items()}
        for copier in self.copiers:
            print(f"{copier.name}: {sum(ends.values())} records, ended with {copier.exits}")
            found = self._copied(copier, ends)
            assert found == written, f"{copier.name}: {copier.last_words()}"

    def _copied(self, copier: Copier, ends: dict[int, int]) -> Copied:
        """Return the committed records once they reach the end offsets."""
        deadline = time.monotonic() + END_S
        while True:
            found = self.read(copier.name)
            is_less = any(len(found[partition]) < end for partition, end in ends.items())
            if not is_less or time.monotonic() > deadline:
                return found

    def wait_for_copies(self, more: int = 1) -> None:
        """Wait until each copier has copied a number of further records."""
        wanted = {copier.name: self.copied_count(copier) + more for copier in self.copiers}
        for copier in self.copiers:
            self.cluster.wait_for(
                lambda one=copier: self.copied_count(one) >= wanted[one.name],
                f"copies of {copier.name}",
                END_S,
            )

    def copied_count(self, copier: Copier) -> int:
        """Return the number of records that a copier's group has committed."""
        return sum(self._committed(copier.name).values())

    def _committed(self, group: str) -> dict[int, int]:
        async def ask() -> dict[int, int]:
            with trio.fail_after(ANSWER_TIMEOUT_S):
                async with open_admin(self.cluster.bootstrap) as admin:
                    found = await admin.group_offsets(group)
            return {
                at.partition: committed.offset
                for at, committed in found.items()
                if at.topic == SOURCE
            }

        try:
            return trio.run(ask)
        except (ConnectionLostError, RefusedError, trio.TooSlowError):
            return {}  # the coordinator is away

    def read(self, topic: str) -> Copied:
        """Return the committed records of all partitions of a topic."""
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITION_COUNT)])
        found: Copied = {partition: [] for partition in range(PARTITION_COUNT)}
        at_end: set[int] = set()
        deadline = time.monotonic() + END_S
        while len(at_end) < PARTITION_COUNT:
            assert time.monotonic() < deadline, f"{topic}: only {at_end} were read to their end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            partition = message.partition()
            assert partition is not None
            if message.error() is not None:
                at_end.add(partition)
            else:
                found[partition].append(message.value() or b"")
        consumer.close()
        return found

    def close(self) -> None:
        """Stop everything that still runs."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        for copier in self.copiers:
            copier.kill()
        if self._writer is not None:
            self._writer.stop()


class Killer:
    """Kills processes one after the other, and restarts each; owns the random numbers."""

    def __init__(self, copying: "CopyBench", dice: random.Random) -> None:
        self.kills: Counter[str] = Counter()
        self._copying = copying
        self._cluster = copying.cluster
        self._dice = dice
        self._roles: list[str] = []

    def kill(self) -> None:
        """Kill one process of a role, each role in its turn."""
        if not self._roles:
            self._roles = self._dice.sample(ROLES, len(ROLES))
        role = self._roles.pop()
        copier = self._dice.choice(self._copying.copiers)
        self._wait(1.0)
        self.kills[role] += 1
        print(f"kill -9 of the {role} of {copier.name}", flush=True)
        if role == "client":
            self._copying.kill_copier(copier)
            return
        victim = f"broker {self._cluster.wait_for(lambda: self._broker(role, copier), role)}"
        self._cluster.kill(victim)
        self._wait(1.0)
        self._cluster.start(victim)
        if self._dice.random() > BACK_AT_ONCE:
            self._cluster.wait_healthy()

    def _broker(self, role: str, copier: Any) -> int | None:
        copying = self._copying
        topic, partition = self._dice.choice(("source", copier.name)), self._dice.randrange(3)
        if role == "transaction coordinator":
            found = copying.transaction_coordinator(copier)
        elif role == "group coordinator":
            found = copying.group_coordinator(copier)
        else:
            found = copying.partition_leader(topic, partition)
        return found if found > 0 else None

    def _wait(self, longest_s: float) -> None:
        time.sleep(self._dice.uniform(0.0, longest_s))


def compiled(program: str, directory: Path) -> list[str]:
    """Compile a Java program; return its command, or an empty list without the jars for it."""
    jars = os.environ.get(JARS)
    if not jars or not list(Path(jars).glob("kafka-clients-*.jar")):
        print(f"LOUD: {JARS} names no kafka-clients; the Java client was NOT run here")
        return []
    java = java_program(os.environ)
    source = str(PROGRAMS / f"{program}.java")
    words = [f"{java}c", "-cp", f"{jars}/*", "-d", str(directory), source]
    subprocess.run(words, check=True, timeout=120)
    flags = ["-Xmx128m", "-XX:TieredStopAtLevel=1", f"-Dstate={directory}", *java_login()]
    return [java, *flags, "-cp", f"{directory}:{jars}/*", program]


@pytest.fixture(scope="session")
def copier_commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Command line of each client's copier; Java's too, where OTTLA_KAFKA_JARS has its jars."""
    found = {client: command_of(PROGRAMS / f"with_{client}.py") for client in CLIENTS}
    java = compiled("WithJava", tmp_path_factory.mktemp("java"))
    return found | ({"java": java} if java else {})


@pytest.fixture
def word_count_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Command line of the Kafka Streams application."""
    found = os.environ.get(JARS)
    if not found or not list(Path(found).glob("kafka-streams-*.jar")):
        pytest.skip(f"LOUD: {JARS} names no kafka-streams; Kafka Streams was NOT run here")
    return compiled("WordCount", tmp_path_factory.mktemp("java"))


@pytest.fixture
def start_copying(
    plan_cluster: Callable[..., Any], tmp_path: Path, copier_commands: dict[str, list[str]]
) -> Iterator[Callable[..., CopyBench]]:
    """A function that starts a cluster and the copiers: (transaction.version, brokers=, …)."""
    made: list[CopyBench] = []

    def start(level: int, commands: dict[str, list[str]] | None = None, **nodes: int) -> CopyBench:
        nodes = nodes or NODES
        in_sync = {"min_insync_replicas": str(min(2, nodes["brokers"]))}
        cluster = plan_cluster(**nodes, **SETTINGS, **in_sync)
        cluster.start()
        cluster.wait_healthy()
        made.append(CopyBench(cluster, tmp_path, commands or copier_commands))
        made[-1].set_transaction_version(level)
        made[-1].start()
        return made[-1]

    yield start
    for copying in made:
        copying.close()
