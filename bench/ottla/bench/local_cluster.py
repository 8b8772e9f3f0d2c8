"""A local cluster for one measurement: runs `ottla up` in a separate process, sends requests to its
nodes and kills them."""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import trio

from ottla.bench.processes import usage_of
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import METADATA_TOPIC, NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_node_response import DescribeNodeResponse
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse

READY_WORDS = b"is ready"
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
BYTECODE_DIRECTORY = "PYTHONPYCACHEPREFIX"
STOP_TIMEOUT_S = 60.0
ASK_AGAIN_S = 0.005
ANSWER_TIMEOUT_S = 1.0
PATIENCE_S = 60.0
MB = 1_000_000

T = TypeVar("T")


def installed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the environment variables that allows Python to write bytecode.

    If PYTHONDONTWRITEBYTECODE is set, the copy lacks it, and PYTHONPYCACHEPREFIX is a temporary
    directory unless it was set.  Programs then load bytecode from their second startup on, like
    programs of an installed package.  Without bytecode, every startup compiles some 700 modules,
    which takes longer than the rest of the startup.
    """
    found = dict(environment)
    if found.pop(NO_BYTECODE, ""):
        found.setdefault(BYTECODE_DIRECTORY, _bytecode_directory())
    return found


@cache
def _bytecode_directory() -> str:
    """Create a directory for the Python bytecode of this process, and return its path. The
    directory is removed when the process ends."""
    path = tempfile.mkdtemp(prefix="ottla-bench-bytecode-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class RunningCluster:
    """Local cluster of nodes with names such as "controller 101" and "broker 2", to which requests
    can be sent."""

    def __init__(self, bootstrap: str, pids: dict[str, int], ready_s: float) -> None:
        self.bootstrap = bootstrap
        self.pids = pids
        self.ready_s = ready_s
        self.starter_pid: int | None = None
        """Id of the process that forked the nodes and shares memory with them. None if there is no
        such process."""

    @property
    def all_pids(self) -> list[int]:
        """Process ids of all processes of the local cluster."""
        starter = [] if self.starter_pid is None else [self.starter_pid]
        return [*self.pids.values(), *starter]

    def kill(self, name: str) -> None:
        """Kill a node of the local cluster by SIGKILL."""
        os.kill(self.pids.pop(name), signal.SIGKILL)

    def rss_mb(self) -> dict[str, float]:
        """Return the resident memory in MB of every node, by the node's name."""
        return {name: round(usage_of([pid]).rss_bytes / MB, 1) for name, pid in self.pids.items()}

    def wait_for(self, ask: Callable[[Cluster], Awaitable[T | None]]) -> T:
        """Call `ask` every few milliseconds until the result is not None, and return the result.

        Raises trio.TooSlowError after PATIENCE_S seconds.
        """

        async def body() -> T:
            with trio.fail_after(PATIENCE_S):
                while True:
                    # The broker is not ready yet, or does not know the result.  After a timeout,
                    # the connections are new.
                    with suppress(ConnectionLostError, RefusedError, trio.TooSlowError):
                        async with open_cluster(parse_bootstrap(self.bootstrap)) as cluster:
                            while True:
                                with trio.fail_after(ANSWER_TIMEOUT_S):
                                    found = await ask(cluster)
                                if found is not None:
                                    return found
                                await trio.sleep(ASK_AGAIN_S)
                    await trio.sleep(ASK_AGAIN_S)

        return trio.run(body)

    def leader(self, topic: str, *, other_than: int = -1) -> int:
        """Wait until the topic's first partition has a leader other than `other_than`, and return
        the leader."""

        async def ask(cluster: Cluster) -> int | None:
            (found,) = (await cluster.metadata([topic])).topics
            leader = found.partitions[0].leader_id if found.partitions else -1
            return leader if leader not in (-1, other_than) else None

        return self.wait_for(ask)

    def active_controller(self, *, other_than: int = -1) -> int:
        """Wait until the quorum has a leader other than `other_than`, and return the leader."""
        asked = DescribeQuorumRequest(
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])]
        )

        async def ask(cluster: Cluster) -> int | None:
            answer = await cluster.request(asked, DescribeQuorumResponse)
            if answer.error_code != ErrorCode.NONE:
                return None
            leader = answer.topics[0].partitions[0].leader_id
            return leader if leader not in (-1, other_than) else None

        return self.wait_for(ask)

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every replica of a topic is in sync."""

        async def ask(cluster: Cluster) -> bool | None:
            (found,) = (await cluster.metadata([topic])).topics
            rows = found.partitions
            is_whole = rows and all(len(row.isr_nodes) == len(row.replica_nodes) for row in rows)
            return True if is_whole else None

        self.wait_for(ask)

    def metrics(self, broker_id: int) -> dict[str, float]:
        """Return the values of a broker's metrics, by name."""

        async def ask(cluster: Cluster) -> dict[str, float]:
            await cluster.metadata([])
            node = NodeId(broker_id)
            answer = await cluster.request(DescribeNodeRequest(), DescribeNodeResponse, node=node)
            return {metric.name: metric.value for metric in answer.metrics}

        return self.wait_for(ask)


class StartedCluster(RunningCluster):
    """Local cluster that was started by `ottla up`. Its nodes have the names that the command
    prints."""

    def __init__(self, directory: Path, ready_s: float) -> None:
        self._path = directory / "cluster.json"
        super().__init__(json.loads(self._path.read_text())["bootstrap"], {}, ready_s)
        self.look()

    def look(self) -> dict[str, int]:
        """Return the process ids of all nodes, by node name. A restarted node has a new process
        id."""
        found = json.loads(self._path.read_text())
        self.pids = {
            f"{role} {node['id']}": node["pid"]
            for role in ("controller", "broker")
            for node in found[f"{role}s"]
        }
        return self.pids


@contextmanager
def open_local_cluster(
    *,
    controllers: int = 3,
    brokers: int = 3,
    restarts: bool = False,
    python: str = sys.executable,
    **settings: str,
) -> Iterator[StartedCluster]:
    """Start a local cluster in a temporary directory, and yield it. At the end of the block, it is
    stopped and its data are deleted.

    If `restarts`, a node that dies is restarted. `python` is the interpreter that runs the cluster.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        open_cluster_in(
            Path(directory),
            controllers=controllers,
            brokers=brokers,
            restarts=restarts,
            python=python,
            **settings,
        ) as cluster,
    ):
        yield cluster


@contextmanager
def open_cluster_in(
    directory: Path,
    *,
    controllers: int = 3,
    brokers: int = 3,
    restarts: bool = False,
    python: str = sys.executable,
    **settings: str,
) -> Iterator[StartedCluster]:
    """Start a new local cluster in a directory, or the cluster that exists there, and yield it. At
    the end of the block, it is stopped and its data are kept."""
    # Web pages would compete with the measured nodes for the CPU.
    command = [python, "-m", "ottla.cli", "up", "--no-console", "--dir", str(directory)]
    if not (directory / "cluster.json").exists():
        command += ["--port", "0"]
        command += ["--controllers", str(controllers), "--brokers", str(brokers)]
    command += ["--restart"] if restarts else []
    for key, value in settings.items():
        command += ["--set", f"{key.replace('_', '.')}={value}"]
    started = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=installed_environment(os.environ),
    )
    try:
        assert child.stdout is not None
        if READY_WORDS not in child.stdout.readline():
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "the cluster did not start; try 'ottla up'"
            )
        cluster = StartedCluster(directory, time.perf_counter() - started)
        cluster.starter_pid = child.pid
        yield cluster
    finally:
        child.terminate()
        child.wait(STOP_TIMEOUT_S)
        if child.stdout is not None:
            child.stdout.close()
