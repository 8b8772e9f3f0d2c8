"""Kafka's Java client in the roll: a transactional writer and a member of a group.

Each is a Java process that prints a line for each event.  The writer also writes to a compacted
topic, in the same transactions.
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ottla.bench.kafka.kafka_server import java_program
from tests.cluster.secure_form import java_login
from tests.cluster.transactional_writers import PARTITION_COUNT, Writer
from tests.cluster.upgrades.group_readers import GroupReader

JARS = "OTTLA_KAFKA_JARS"
PROGRAM = Path(__file__).with_name("JavaClient.java")
FLAGS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
COMPACTED = "compacted"
KEY_COUNT = 10
COMPACTED_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}
COMPILE_TIMEOUT_S = 120.0


def java_client(directory: Path) -> list[str]:
    """Compile the client; return its command, or an empty list without Kafka's jars."""
    jars = os.environ.get(JARS)
    if not jars:
        print(f"LOUD: {JARS} is not set; Java's client and compaction were NOT in the roll")
        return []
    java = java_program(os.environ)
    words = [f"{java}c", "-cp", f"{jars}/*", "-d", str(directory), str(PROGRAM)]
    subprocess.run(words, check=True, timeout=COMPILE_TIMEOUT_S)
    return [java, *FLAGS, *java_login(), "-cp", f"{directory}:{jars}/*", PROGRAM.stem]


@contextmanager
def printed_lines(
    command: Sequence[str], is_stopping: threading.Event
) -> Iterator[Iterator[list[str]]]:
    """Start a client that runs until an event is set; yield the words of its lines."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def end() -> None:
            is_stopping.wait()
            stdin.close()

        threading.Thread(target=end, daemon=True).start()
        try:
            yield (line.split() for line in stdout)
        finally:
            is_stopping.set()
        assert process.wait() == 0, command


class JavaWriter(Writer):
    """A writer by Java's client."""

    def __init__(self, client: Mapping[str, str], name: str, command: Sequence[str]) -> None:
        super().__init__(client, name)
        words = (self.client["bootstrap.servers"], name, PARTITION_COUNT, COMPACTED, KEY_COUNT)
        self._command = [*command, "write", *map(str, words)]

    def run(self) -> None:
        """Write until it is to stop."""
        with printed_lines(self._command, self.is_stopping) as lines:
            for event, *words in lines:
                if event == "committed":
                    self.committed_at.append(time.monotonic())
                else:
                    self.errors.append(" ".join(words))


class JavaReader(GroupReader):
    """A member by Java's client."""

    def __init__(
        self,
        client: Mapping[str, str],
        group: str,
        topics: Sequence[str],
        protocol: str,
        command: Sequence[str],
    ) -> None:
        super().__init__(client, group, topics, protocol)
        bootstrap = self.client["bootstrap.servers"]
        self._command = [*command, "read", bootstrap, group, protocol, *topics]

    def run(self) -> None:
        """Read until it is to stop."""
        with printed_lines(self._command, self.is_stopping) as lines:
            for _, topic, partition, value in lines:
                self.note(topic, int(partition), value.encode())
