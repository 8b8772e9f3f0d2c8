"""The share workload, performed with Kafka's Java client, in a separate Java process for each
member.

The directory of Kafka's jars is the value of the environment variable OTTLA_KAFKA_JARS. A crash of
the client kills the process.
"""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import trio

from ottla.jepsen.clients.completions import (
    DEADLINE_S,
    PAUSE_S,
    TROUBLE,
    failed,
    ok,
    troubled,
    unknown,
)
from ottla.jepsen.clients.own_share import acknowledged, described_group
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.keys import key_of, partition_of
from ottla.jepsen.workloads.load import JAVA, NOTHING_TO_READ, Completion, LoadPlan, Op
from ottla.jepsen.workloads.share import group_of
from ottla.model.errors import ConfigError

JARS = "OTTLA_KAFKA_JARS"
PROGRAM = Path(__file__).with_name("ShareClient.java")
FLAGS = ("-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
POLL_MS = 100
RECORDS_MAX = 5
START_S = 25.0
"""Time limit in seconds for the first response of a Java process."""
LINE_BYTES_MAX = 1 << 20


def java_command() -> list[str]:
    """Return the command that runs the Java program. Raises ConfigError if OTTLA_KAFKA_JARS is not
    set."""
    jars = os.environ.get(JARS)
    if not jars:
        raise ConfigError("--clients", f"java needs {JARS}, the directory of Kafka's jars")
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    return [java, *FLAGS, "-cp", f"{jars}/*", str(PROGRAM)]


class JavaProcess:
    """A running Java program with a share consumer. The program reads commands from its standard
    input."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._text = b""

    @staticmethod
    async def start(bootstrap: str, group: str) -> "JavaProcess":
        """Start the Java program as a member of a share group, and return its process."""
        words = [*java_command(), bootstrap, group, str(RECORDS_MAX)]
        process = await trio.lowlevel.open_process(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return JavaProcess(process)

    async def ask(self, *words: str) -> list[str] | None:
        """Send a command to the Java process and return the words of the response, or None if the
        process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            await self._process.stdin.send_all(" ".join(words).encode() + b"\n")
            while b"\n" not in self._text and len(self._text) < LINE_BYTES_MAX:
                data = await self._process.stdout.receive_some()
                if not data:
                    return None
                self._text += data
        except trio.BrokenResourceError:
            return None
        line, _, self._text = self._text.partition(b"\n")
        return line.decode().split()

    async def kill(self) -> None:
        """Kill the Java process, and wait for its end."""
        with trio.CancelScope(shield=True):
            self._process.kill()
            await self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    await stream.aclose()


class JavaShareClient:
    """Load client for one thread of the share workload, with Kafka's Java client."""

    def __init__(self, bootstrap: str, thread: int, plan: LoadPlan) -> None:
        java_command()
        self._bootstrap = bootstrap
        self._thread = thread
        self._group = group_of(plan)
        self._lives = count()
        self._name = ""
        self._process: JavaProcess | None = None

    async def invoke(self, op: Op) -> Completion:
        """Perform an operation within its deadline, and return its completion (outcome event)."""
        if op.f == "crash":
            await self.drop()
            return Completion(EventKind.INFO, None, None, {"client": JAVA})
        done: Completion | None = None
        with trio.move_on_after(START_S if op.f == "join" else DEADLINE_S):
            done = await self._perform(op)
        if done is None:
            await self.drop()
            done = unknown(op, "Java gave no answer in time")
        if done.kind is not EventKind.OK:
            await trio.sleep(PAUSE_S)
        return replace(done, extra={**done.extra, "client": JAVA})

    async def drop(self) -> None:
        """Kill the client's Java process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            await process.kill()

    async def _perform(self, op: Op) -> Completion:
        if op.f == "join":
            return await self._join(op)
        if op.f == "start-offsets":
            try:
                found = await described_group(self._bootstrap, self._group)
            except TROUBLE as error:
                return troubled(op, error)
            return ok({**op.value, "keys": found})
        if self._process is None:
            return failed(NOTHING_TO_READ)
        if op.f == "take":
            return await self._take(op, self._process)
        if op.f == "acknowledge":
            return await self._acknowledge(op, self._process)
        assert op.f == "leave", op.f
        await self._process.ask("leave")
        await self.drop()
        return ok()

    async def _join(self, op: Op) -> Completion:
        await self.drop()
        self._process = await JavaProcess.start(self._bootstrap, self._group)
        found = await self._process.ask("join", *op.value["topics"])
        if found is None or found[0] != "ok":
            await self.drop()
            return failed(f"Java did not start: {found}")
        self._name = f"java-{self._thread}-{next(self._lives)}"
        return ok({**op.value, "member": self._name})

    async def _take(self, op: Op, process: JavaProcess) -> Completion:
        found = await process.ask("take", str(POLL_MS))
        if found is None or found[0] != "ok":
            # Records of the poll may be unacknowledged, so that every later poll would fail.
            await self.drop()
            return failed(f"{NOTHING_TO_READ}: {found}")
        keys: dict[str, list[Json]] = {}
        for word in found[1:]:
            topic, partition, offset, value, times = word.split(":")
            row = [int(offset), int(value), int(times), None]
            keys.setdefault(key_of(topic, int(partition)), []).append(row)
        return ok({**op.value, "member": self._name, "keys": keys})

    async def _acknowledge(self, op: Op, process: JavaProcess) -> Completion:
        words = [
            ":".join((*map(str, partition_of(key)), str(offset), kind))
            for key, acks in op.value["keys"].items()
            for offset, kind in acks
        ]
        found = await process.ask("acknowledge", str(int(DEADLINE_S * 900)), *words)
        if found is None or found[0] != "ok":
            await self.drop()
            return unknown(op, f"Java: {found}")
        outcomes: dict[str, str] = {}
        for word in found[1:]:
            topic, partition, outcome = word.rsplit(":", 2)
            outcomes[key_of(topic, int(partition))] = outcome
        keys = {
            key: [[offset, kind, outcomes.get(key) == "ok" or None] for offset, kind in acks]
            for key, acks in op.value["keys"].items()
        }
        return acknowledged({**op.value, "keys": keys}, set(outcomes.values()) - {"ok"})


@asynccontextmanager
async def open_java_share(
    bootstrap: str, thread: int, plan: LoadPlan
) -> AsyncIterator[JavaShareClient]:
    """Open and yield a load client for the share workload. At the end of the block its Java process
    is killed."""
    client = JavaShareClient(bootstrap, thread, plan)
    try:
        yield client
    finally:
        await client.drop()
