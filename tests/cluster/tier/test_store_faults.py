"""Tiered storage on an S3 server that keeps objects in files, while the server is killed, stopped
and slowed, and brokers are killed: every acknowledged record is readable exactly once, in order.

The server is gofakes3, found on PATH: `go install
github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0`. `OTTLA_FAULTS_SECONDS=600
OTTLA_TESTS=full pytest tests/cluster/tier/test_store_faults.py -s` runs longer.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.jepsen.processes.object_store import BUCKET, server_command

SERVER = shutil.which("gofakes3")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(
        SERVER is None, reason="LOUD: no gofakes3 on PATH; faults of an S3 server were NOT tested"
    ),
    pytest.mark.skipif(
        find_spec("obstore") is None, reason="needs obstore: pip install -e '.[tiered]'"
    ),
]
Processes = Any  # the classes of the fixtures, in conftest.py
Load = Any
SECONDS = float(os.environ.get("OTTLA_FAULTS_SECONDS", "40"))
TOPIC, PARTITIONS = "load", 3
METADATA = "rlmm_config_remote_log_metadata_topic_"


class S3Server:
    """A gofakes3 process, whose objects outlive it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert SERVER is not None
        command = server_command(SERVER, self._directory, "127.0.0.1", self.port)
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(200):
            with socket.socket() as found:
                if found.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("gofakes3 does not listen")

    def send(self, which: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(which)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    directory = tmp_path / "s3"
    directory.mkdir()
    made = S3Server(directory)
    made.start()
    yield made
    made.kill()


class StoreChaos:
    """Faults of the server and of brokers, at random."""

    def __init__(
        self, cluster: Processes, server: S3Server, load: Load, dice: random.Random
    ) -> None:
        self._cluster = cluster
        self._server = server
        self._load = load
        self._dice = dice
        self.kinds = (self._kill, self._stop, self._slow, self._kill_broker, self._kill_both)

    def _wait(self, most_s: float) -> None:
        time.sleep(self._dice.uniform(0.3, most_s))

    def _kill(self) -> None:
        self._load.mark("kill -9 the S3 server")
        self._server.kill()
        self._wait(6)
        self._server.start()

    def _stop(self) -> None:
        self._load.mark("the S3 server hangs")
        self._server.send(signal.SIGSTOP)
        self._wait(8)
        self._server.send(signal.SIGCONT)

    def _slow(self) -> None:
        self._load.mark("the S3 server is slow")
        for _ in range(8):
            self._server.send(signal.SIGSTOP)
            time.sleep(0.4)
            self._server.send(signal.SIGCONT)
            time.sleep(0.05)

    def _kill_broker(self) -> None:
        victim = self._dice.choice(self._cluster.named("broker"))
        self._load.mark(f"kill -9 {victim}")
        self._cluster.kill(victim)
        self._wait(2)
        self._cluster.start(victim)

    def _kill_both(self) -> None:
        victim = self._dice.choice(self._cluster.named("broker"))
        self._load.mark(f"kill -9 {victim} and the S3 server")
        self._server.kill()
        self._cluster.kill(victim)
        self._wait(2)
        self._cluster.start(victim)
        self._server.start()


def test_no_acknowledged_record_is_lost_while_the_store_fails(
    plan_cluster: Callable[..., Processes],
    start_load: Callable[..., Load],
    server: S3Server,
    tmp_path: Path,
) -> None:
    cluster: Processes = plan_cluster(
        controllers=1,
        brokers=2,
        broker_session_timeout_ms="1500",
        broker_heartbeat_interval_ms="300",
        remote_log_storage_system_enable="true",
        remote_log_storage_uri=f"s3://{BUCKET}/one",
        remote_log_storage_endpoint=f"http://127.0.0.1:{server.port}",
        remote_log_storage_region="us-east-1",
        remote_log_storage_access_key_id="id",
        remote_log_storage_secret_access_key="key",
        remote_log_manager_task_interval_ms="500",
        remote_log_manager_task_retry_backoff_max_ms="2000",
        log_retention_check_interval_ms="500",
        **{f"{METADATA}num_partitions": "2", f"{METADATA}replication_factor": "2"},
        **{f"{METADATA}min_isr": "1"},
    )
    cluster.start(*cluster.names)
    cluster.wait_healthy()
    admin = AdminClient(dict(cluster.client))
    settings = {
        "remote.storage.enable": "true",
        "segment.bytes": str(1 << 20),
        "local.retention.bytes": "1",
        "min.insync.replicas": "2",
        "file.delete.delay.ms": "0",
    }
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2, config=settings)])[TOPIC].result(30)
    load = start_load(cluster, TOPIC, rate=4_000)
    seed = int(os.environ.get("OTTLA_FAULTS_SEED", time.time_ns() % 1_000_000))
    print(f"OTTLA_FAULTS_SEED={seed}")
    chaos = StoreChaos(cluster, server, load, random.Random(seed))
    kinds = list(chaos.kinds)
    random.Random(seed).shuffle(kinds)
    ends_s = time.monotonic() + SECONDS
    count = 0
    while count < len(kinds) or time.monotonic() < ends_s:
        kinds[count % len(kinds)]()
        count += 1
        time.sleep(1.5)
    cluster.wait_healthy(180)
    run = load.stop()
    assert run.is_clean, run.report

    def starts() -> list[dict[str, Any]]:
        done = cluster.ottla("tier", "status", TOPIC, "--format", "json")
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    # The backlog is copied, and most records were read from the server above.
    cluster.wait_for(
        lambda: all(one["not_copied"] * 100 < 3 << 20 for one in starts()), "copies", 120
    )
    assert all(one["only_copied"] for one in starts())
    path = tmp_path / "store.properties"
    path.write_text(
        f"remote.log.storage.endpoint=http://127.0.0.1:{server.port}\n"
        "remote.log.storage.region=us-east-1\nremote.log.storage.access.key.id=id\n"
        "remote.log.storage.secret.access.key=key\n"
    )
    words = ["tier", "verify", "--uri", f"s3://{BUCKET}/one", "--full", "--config", str(path)]
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", *words], capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
