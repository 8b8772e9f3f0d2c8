"""An S3 server for the tiered storage of a cluster under test, as a process that can be killed,
paused and slowed.

The server is gofakes3, found on PATH. It keeps objects in files, so that they outlive it.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import trio

from ottla.jepsen.processes.cluster_claim import RUN_VARIABLE, MachineClaim
from ottla.jepsen.processes.nodes import NodeError
from ottla.model.install_hint import install_hint

SERVER = "gofakes3"
SERVER_HINT = "go install github.com/johannesboyne/gofakes3/cmd/gofakes3@latest"
BUCKET = "bucket"
PREFIX = "jepsen"
START_TIMEOUT_S = 10.0
LOOK_AGAIN_S = 0.05
STOPPED_S, RUNNING_S = 0.4, 0.05
"""Seconds for which a slow server is stopped, and then runs, in turns. A request that takes
milliseconds then takes up to several seconds."""


def missing_store() -> str | None:
    """Return the reason why this machine cannot run an object store, with the command that installs
    what is missing. Returns None if it can."""
    if shutil.which(SERVER) is None:
        return f"needs {SERVER} on PATH; install it with: {SERVER_HINT}"
    if find_spec("obstore") is None:
        return f"needs obstore, which is not installed; install it with: {install_hint('tiered')}"
    return None


def server_command(binary: str, directory: Path, host: str, port: int) -> list[str]:
    """Return the command line of a gofakes3 server, which keeps its objects in `directory`."""
    words = [binary, "-backend", "fs", "-fs.path", str(directory), "-fs.create", "-quiet"]
    return [*words, "-initialbucket", BUCKET, "-host", f"{host}:{port}"]


def access_settings(host: str, port: int) -> dict[str, str]:
    """Return the settings with which brokers and commands reach the server at an address."""
    storage = "remote.log.storage"
    return {
        f"{storage}.endpoint": f"http://{host}:{port}",
        f"{storage}.region": "us-east-1",
        f"{storage}.access.key.id": "id",
        f"{storage}.secret.access.key": "key",
    }


class ObjectStoreServer:
    """The S3 server of one run. Owns its process."""

    def __init__(self, directory: Path, host: str, run_id: str) -> None:
        self._directory = directory
        with socket.create_server((host, 0)) as probe:
            self._address: tuple[str, int] = (host, probe.getsockname()[1])
        self._environment = {**os.environ, RUN_VARIABLE: run_id}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_slow = False

    def settings(self, broker_count: int) -> Mapping[str, str]:
        """Return the settings of nodes that keep segments in this store."""
        storage, manager = "remote.log.storage", "remote.log.manager.task"
        metadata = "rlmm.config.remote.log.metadata.topic"
        replicas = min(3, broker_count)
        return {
            f"{storage}.system.enable": "true",
            f"{storage}.uri": f"s3://{BUCKET}/{PREFIX}",
            **access_settings(*self._address),
            # Segments are copied and deleted locally many times in a run.
            f"{manager}.interval.ms": "500",
            f"{manager}.retry.backoff.max.ms": "2000",
            "log.retention.check.interval.ms": "500",
            f"{metadata}.num.partitions": "2",
            f"{metadata}.replication.factor": str(replicas),
            f"{metadata}.min.isr": str(max(1, replicas - 1)),
        }

    def count_copied_segments(self) -> int:
        """Return the number of segments whose copies are complete in the store."""
        return sum(1 for _ in self._directory.rglob("*.manifest.json"))

    async def start(self) -> None:
        """Start the server unless it runs, and wait until it accepts connections. Raises NodeError
        if it does not."""
        if self._process is None:
            self._process = subprocess.Popen(
                server_command(SERVER, self._directory, *self._address),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._environment,
            )
        with trio.move_on_after(START_TIMEOUT_S):
            while True:
                with suppress(OSError):
                    async with await trio.open_tcp_stream(*self._address):
                        return
                await trio.sleep(LOOK_AGAIN_S)
        raise NodeError(f"{SERVER} does not accept connections after {START_TIMEOUT_S:g} s")

    def kill(self) -> None:
        """Kill the server by SIGKILL if it runs. Its objects remain."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Pause the server (SIGSTOP). The kernel still accepts connections for it."""
        self._send(signal.SIGSTOP)

    def slow_down(self) -> None:
        """Pause and resume the server in turns until it is resumed."""
        self._is_slow = True

    def resume(self) -> None:
        """Let the server run at full speed again after a pause."""
        self._is_slow = False
        self._send(signal.SIGCONT)

    async def keep_slow(self) -> None:
        """Pause and resume the server in turns while it is to be slow, until cancelled."""
        while True:
            if self._is_slow:
                self._send(signal.SIGSTOP)
                await trio.sleep(STOPPED_S)
                self._send(signal.SIGCONT)
            await trio.sleep(RUNNING_S)

    def _send(self, which: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(which)


@asynccontextmanager
async def open_object_store(
    claim: MachineClaim, host: str, directory: Path
) -> AsyncIterator[ObjectStoreServer]:
    """Start an S3 server at an address of this machine, with its objects in a new directory, and
    yield it. It is killed at the end of the block. Raises NodeError if it cannot start."""
    reason = missing_store()
    if reason is not None:
        raise NodeError(f"the object store {reason}")
    directory.mkdir()
    server = ObjectStoreServer(directory, host, claim.run_id)
    try:
        await server.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.keep_slow)
            yield server
            nursery.cancel_scope.cancel()
    finally:
        server.kill()
