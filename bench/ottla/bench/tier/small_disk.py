"""Measures producers on a disk that is much smaller than the load, or whose object store is down:
`python -m ottla.bench.tier.small_disk`.

Two clusters of real processes run side by side, each on a tmpfs of its own: one with tiered
storage and `local.retention.free.bytes` on a small one, the other without on one that is large
enough. Both get the same load, several times the size of the small disk, and the same again into an
untiered topic of bounded retention. Consumers read the topics from their beginning from time
to time, and in the end all records are read back. Each minute, one line with counts and latencies
is printed.

With `--s3-server`, the objects are kept by a gofakes3 process, which `--down-from` and
`--down-minutes` stop and start. In the end the copies must be complete, and sound by `ottla tier
verify --full`.

The program mounts in a mount namespace of its own, and ends with code 77 where that is not
permitted. It needs librdkafka (confluent-kafka).
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla.bench.processes import usage_of
from ottla.jepsen.processes.object_store import BUCKET, access_settings, server_command

MIB = 1 << 20
TOPIC = "load"
CONTROL_TOPIC = "control"
PARTITIONS = 2
TICK_S = 0.002
GAP_S = 0.25
"""Seconds without an event-loop iteration after which the whole machine counts as stopped, probably
by another program. Latencies of records that are in flight are then not counted."""
SKIPPED = 77
METADATA = "rlmm.config.remote.log.metadata.topic"
FEW_COPIES = (f"{METADATA}.num.partitions=1", "log.retention.check.interval.ms=1000")
DRAIN_TIMEOUT_S = 900.0
SEND_TIMEOUT_MS = 600_000
"""Timeout of a record, longer than a stop of the whole machine by another program."""


class S3Server:
    """A gofakes3 process with its objects in a directory."""

    def __init__(self, binary: str, directory: Path) -> None:
        directory.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._address: tuple[str, int] = probe.getsockname()
        self._command = server_command(binary, directory, *self._address)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> list[str]:
        """Settings of brokers, and of commands that read the bucket."""
        return [f"{key}={value}" for key, value in access_settings(*self._address).items()]

    def start(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        """Kill the process if it runs. Its objects remain."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Lane:
    """One topic with its producer and the latencies of its records."""

    def __init__(self, topic: str, bootstrap: str, record_bytes: int) -> None:
        from confluent_kafka import Producer

        self.topic = topic
        self.bootstrap = bootstrap
        self._record_bytes = record_bytes
        settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.timeout.ms": SEND_TIMEOUT_MS,
            "log_level": 0,
        }
        self.producer = Producer(settings)
        self.latencies_ms: list[float] = []
        self._minute_from = 0
        self.failures: list[str] = []
        self.sent = self.delivered = self.passed_over = 0

    def send(self, count: int, gaps: list[float]) -> None:
        """Send records. The value of a record is its number within its partition."""
        for _ in range(count):
            number, partition = divmod(self.sent, PARTITIONS)
            started = time.monotonic()

            def on_delivery(error: Any, message: Any, started: float = started) -> None:
                self.delivered += 1
                if error is not None:
                    self.failures.append(str(error))
                elif gaps and gaps[-1] > started:
                    self.passed_over += 1
                else:
                    self.latencies_ms.append((time.monotonic() - started) * 1000)

            value = (b"%d " % number).ljust(self._record_bytes, b".")
            self.producer.produce(self.topic, value, partition=partition, on_delivery=on_delivery)
            self.sent += 1

    def figures(self, *, is_minute: bool = False) -> dict[str, Any]:
        """Return counts and latencies of the whole run, or of the time since the last minute's."""
        first = self._minute_from if is_minute else 0
        found = sorted(self.latencies_ms[first:])
        if is_minute:
            self._minute_from = len(self.latencies_ms)
        return {
            "sent": self.sent,
            "delivered": self.delivered,
            "failed": len(self.failures),
            "failures": sorted(set(self.failures))[:3],
            "not counted": self.passed_over,
            "p50_ms": round(percentile(found, 0.5), 1),
            "p99_ms": round(percentile(found, 0.99), 1),
            "p999_ms": round(percentile(found, 0.999), 1),
            "max_ms": round(found[-1], 1) if found else None,
        }


class LoadedCluster:
    """One cluster of real processes on a tmpfs, with its loads."""

    def __init__(
        self, name: str, root: Path, arguments: argparse.Namespace, server: S3Server | None
    ) -> None:
        self.name = name
        self.mount = root / name
        self.mount.mkdir()
        self.is_tiered = name == "tiered"
        disks = 1.0 if self.is_tiered else arguments.times + 1.5
        size = f"size={int(disks * arguments.disk_mib)}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", self.mount], check=True)
        self.directory = self.mount / "cluster"
        self.log = (root / f"{name}.log").open("w")
        settings = [*FEW_COPIES]
        words = ["--controllers", "1", "--brokers", "1", "--port", "0", "--no-console"]
        if self.is_tiered:
            words += ["--tier", f"s3://{BUCKET}/one" if server else f"file://{root}/store"]
            settings += server.settings if server else []
            settings += [
                f"local.retention.free.bytes={arguments.free_mib * MIB}",
                "remote.log.manager.task.interval.ms=5000",
            ]
        words += [word for text in settings for word in ("--set", text)]
        self._command = [sys.executable, "-m", "ottla.cli", "up", "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [*self._command, *words], stdout=self.log, stderr=subprocess.STDOUT
        )
        self.lanes: list[Lane] = []
        self.free_min = 1 << 62
        self._status: subprocess.Popen[str] | None = None

    def ottla(self, *words: str, code: int | None = 0) -> str:
        """Run a command of `ottla` with this cluster, and return its output."""
        command = [sys.executable, "-m", "ottla.cli", *words, "--dir", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if code is not None and done.returncode != code:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def open(self, arguments: argparse.Namespace) -> None:
        """Wait until the cluster serves, create the topics, and open the producers."""
        deadline = time.monotonic() + 120
        while True:
            try:
                self.ottla("status")
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)
        plan = json.loads((self.directory / "cluster.json").read_text())
        self.bootstrap = plan["bootstrap"]
        self.pids = [node["pid"] for role in ("controllers", "brokers") for node in plan[role]]
        configs = [f"segment.bytes={arguments.segment_mib * MIB}", "file.delete.delay.ms=1000"]
        unlimited = ["retention.ms=-1", "retention.bytes=-1"]
        if self.is_tiered:
            local = arguments.local_mib
            tiered = ["remote.storage.enable=true", *unlimited]
            tiered += [f"local.retention.bytes={local * MIB}"] if local else []
            self._create(TOPIC, [*configs, *tiered])
        else:
            self._create(TOPIC, [*configs, *unlimited])
        bounded = f"retention.bytes={2 * arguments.segment_mib * MIB}"
        self._create(CONTROL_TOPIC, [*configs, bounded])
        topics = (TOPIC, CONTROL_TOPIC)
        self.lanes = [Lane(topic, self.bootstrap, arguments.record_bytes) for topic in topics]

    def _create(self, topic: str, configs: list[str]) -> None:
        words = [word for text in configs for word in ("--config", text)]
        self.ottla("topic", "create", topic, "--partitions", str(PARTITIONS), *words)

    def look(self) -> None:
        """Measure the free space of the disk, and store the value."""
        found = os.statvfs(self.mount)
        self.free_now = found.f_bavail * found.f_frsize
        self.free_min = min(self.free_min, self.free_now)

    def minute(self) -> dict[str, Any]:
        """Return the values of the last minute by name, with the status that was asked for a minute
        ago, and ask for the next one."""
        status: Any = None
        if self._status is not None:
            text, _ = self._status.communicate(timeout=120)
            found = json.loads(text or "{}")
            names = ("healthy", "reasons", "warnings", "tier")
            status = {name: found.get(name) for name in names}
        words = [sys.executable, "-m", "ottla.cli", "status", "--format", "json"]
        words += ["--dir", str(self.directory)]
        self._status = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        usage = usage_of(self.pids)
        return {
            **{lane.topic: lane.figures(is_minute=True) for lane in self.lanes},
            "free MiB": round(self.free_now / MIB, 1),
            "cpu_s": round(usage.user_s + usage.system_s, 1),
            "rss MB": round(usage.rss_bytes / 1e6),
            "status": status,
        }

    def read(self, topic: str, mb_s: float, *, is_local: bool = False) -> subprocess.Popen[str]:
        """Start a process that reads a topic from its beginning, or from the local one."""
        asked = [str(self.directory), self.bootstrap, topic, str(mb_s), "local" * is_local]
        command = [sys.executable, "-m", "ottla.bench.tier.small_disk", "--read", json.dumps(asked)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def tier_rows(self) -> list[dict[str, Any]]:
        """Return the rows of `ottla tier status`."""
        found: list[dict[str, Any]] = json.loads(
            self.ottla("tier", "status", TOPIC, "--format", "json", code=None)
        )
        return found

    def figures(self) -> dict[str, Any]:
        """Return the measured values of the run by name."""
        status = json.loads(self.ottla("status", "--format", "json", code=None))
        return {
            **{lane.topic: lane.figures() for lane in self.lanes},
            "least free MiB": round(self.free_min / MIB, 1),
            "healthy": status["healthy"],
            "reasons": status["reasons"],
            "warnings": status["warnings"],
            "tier": status.get("tier"),
        }

    def close(self) -> None:
        """Stop the cluster's processes."""
        self.process.terminate()
        self.process.wait(60)
        self.log.close()


def percentile(values: Sequence[float], part: float) -> float:
    """Return a percentile of sorted values, or 0 without values."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def read_topic(directory: str, bootstrap: str, topic: str, mb_s: str, where: str) -> int:
    """Read a topic to its present end, at a limited rate in MB a second, and print the counts.
    Returns 1 after a record in the wrong place, or if the end was not reached in 10 minutes."""
    from confluent_kafka import Consumer, TopicPartition

    client = {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    consumer = Consumer({**client, "queued.max.messages.kbytes": 8_192, "log_level": 0})
    bounds = [consumer.get_watermark_offsets(TopicPartition(topic, n)) for n in range(PARTITIONS)]
    expected = [low for low, _ in bounds]
    if where:
        words = [sys.executable, "-m", "ottla.cli", "tier", "status", topic, "--format", "json"]
        done = subprocess.run([*words, "--dir", directory], capture_output=True, check=False)
        for row in json.loads(done.stdout):
            expected[int(str(row["partition"]).split(":")[-1])] = row["local_start_offset"]
    first = list(expected)
    consumer.assign([TopicPartition(topic, n, expected[n]) for n in range(PARTITIONS)])
    ends = [high for _, high in bounds]
    started = time.monotonic()
    size, problem = 0, ""
    while any(expected[n] < ends[n] for n in range(PARTITIONS)) and not problem:
        if time.monotonic() - started > 600:
            problem = "the end was not reached"
        for message in consumer.consume(100, 1):
            if message.error() is not None:
                problem = str(message.error())
                break
            index, size = message.partition(), size + len(message.value())
            number = int(message.value().split()[0])
            if number != message.offset() or number != expected[index]:
                problem = f"{index}: {expected[index]} expected, {number} at {message.offset()}"
                break
            expected[index] += 1
        time.sleep(max(0.0, started + size / (float(mb_s) * 1e6) - time.monotonic()))
    took_s = time.monotonic() - started
    counts = {"topic": topic, "from": first, "to": expected, "MB": round(size / 1e6, 1)}
    print(json.dumps({**counts, "seconds": round(took_s, 1), "problem": problem}))
    consumer.close()
    return 1 if problem else 0


class Measurement:
    """One measurement: the load, its minutes and its end."""

    def __init__(self, root: Path, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._root = root
        binary = arguments.s3_server
        self._server = S3Server(binary, root / "store") if binary else None
        if self._server is None:
            (root / "store").mkdir()
        else:
            self._server.start()
        self._is_down = False
        names = ("tiered",) if arguments.no_plain else ("tiered", "plain")
        self._clusters = [LoadedCluster(name, root, arguments, self._server) for name in names]
        self._tiered = self._clusters[0]
        self._readers: list[subprocess.Popen[str]] = []
        self._gaps: list[float] = []
        self._loads: list[float] = []
        self._total = int(arguments.times * arguments.disk_mib * MIB // arguments.record_bytes)

    def measure(self) -> dict[str, Any]:
        """Load the clusters, read the records back, and return the measured values."""
        for each in self._clusters:
            each.open(self._arguments)
        took_s = self._load()
        figures: dict[str, Any] = {each.name: each.figures() for each in self._clusters}
        figures["seconds"] = round(took_s)
        figures["stops of the machine"] = len(self._gaps)
        figures["load of the machine"] = round(sum(self._loads) / max(1, len(self._loads)), 1)
        tiered_ms = figures["tiered"][TOPIC]["p99_ms"]
        beside = {"control": figures["tiered"][CONTROL_TOPIC]}
        beside |= {"plain": figures["plain"][TOPIC]} if "plain" in figures else {}
        for name, found in beside.items():
            figures[f"p99 tiered / {name}"] = round(tiered_ms / max(0.1, found["p99_ms"]), 2)
        figures["drained after s"] = self._drain()
        figures["read back"] = [
            cluster.read(TOPIC, 50).communicate()[0].strip() for cluster in self._clusters
        ]
        figures["verify"] = self._verify()
        return figures

    def _load(self) -> float:
        lanes = [lane for each in self._clusters for lane in each.lanes]
        rate = self._total / (self._arguments.minutes * 60)
        minutes = 0
        started = last = looked = time.monotonic()
        while lanes[0].sent < self._total:
            now = time.monotonic()
            if now - last > GAP_S:
                self._gaps.append(now)
                started += now - last  # a stop is no reason for a burst
            last = now
            due = min(self._total, int((now - started) * rate))
            for lane in lanes:
                lane.send(due - lane.sent, self._gaps)
                lane.producer.poll(0)
            if now - looked > 1:
                looked = now
                self._loads.append(os.getloadavg()[0])
                for each in self._clusters:
                    each.look()
                if now - started > 60 * (minutes + 1):
                    minutes += 1
                    self._report(minutes)
                    self._switch_store(minutes)
                    self._start_readers(minutes)
                    last = time.monotonic()
            time.sleep(TICK_S)
        for lane in lanes:
            lane.producer.flush(120)
        return time.monotonic() - started

    def _report(self, minutes: int) -> None:
        found: dict[str, Any] = {"minute": minutes, "store is down": self._is_down}
        found |= {each.name: each.minute() for each in self._clusters}
        found["load"] = round(os.getloadavg()[0], 1)
        found["stops"] = len(self._gaps)
        done = [each for each in self._readers if each.poll() is not None]
        self._readers = [each for each in self._readers if each not in done]
        found["read"] = [each.communicate()[0].strip() for each in done]
        print(json.dumps(found), file=sys.stderr, flush=True)

    def _switch_store(self, minutes: int) -> None:
        down_from = self._arguments.down_from
        if self._server is None or not down_from:
            return
        if minutes == down_from:
            self._server.stop()
            self._is_down = True
        if minutes == down_from + self._arguments.down_minutes:
            self._server.start()
            self._is_down = False

    def _start_readers(self, minutes: int) -> None:
        every = self._arguments.read_every
        if not every or minutes % every:
            return
        mb_s = self._arguments.read_mb_s
        for each in self._clusters:
            is_local = self._is_down and each.is_tiered
            self._readers.append(each.read(TOPIC, mb_s, is_local=is_local))

    def _drain(self) -> float | None:
        """Wait until at most the active segments lack copies. Returns the seconds that it took, or
        None if it took too long."""
        started = time.monotonic()
        most = self._arguments.segment_mib * MIB // self._arguments.record_bytes + 1
        while time.monotonic() - started < DRAIN_TIMEOUT_S:
            if all(row["not_copied"] <= most for row in self._tiered.tier_rows()):
                return round(time.monotonic() - started, 1)
            time.sleep(2)
        return None

    def _verify(self) -> str:
        path = self._root / "store.properties"
        path.write_text("\n".join(self._server.settings if self._server else []))
        uri = f"s3://{BUCKET}/one" if self._server else f"file://{self._root}/store"
        words = ["tier", "verify", "--full", "--uri", uri, "--config", str(path)]
        command = [sys.executable, "-m", "ottla.cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return f"code {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"

    def close(self) -> None:
        """Stop all processes."""
        for reader in self._readers:
            reader.kill()
        for each in self._clusters:
            each.close()
        if self._server is not None:
            self._server.stop()


def main() -> int:
    """Parse the options, and run the measurement in a mount namespace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--disk-mib", type=int, default=384)
    parser.add_argument("--free-mib", type=int, default=128)
    parser.add_argument("--segment-mib", type=int, default=16)
    parser.add_argument("--local-mib", type=int, default=0, help="local.retention.bytes")
    parser.add_argument("--record-bytes", type=int, default=1_000)
    parser.add_argument("--times", type=float, default=3.0, help="load, in sizes of the disk")
    parser.add_argument("--no-plain", action="store_true", help="no cluster without tiers")
    parser.add_argument("--read-every", type=int, default=0, help="minutes between consumers")
    parser.add_argument("--read-mb-s", type=float, default=20.0, help="rate of a consumer")
    parser.add_argument("--s3-server", default="", help="gofakes3, as store (default: files)")
    parser.add_argument("--down-from", type=int, default=0, help="minute of the store's stop")
    parser.add_argument("--down-minutes", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the logs of the clusters")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        return read_topic(*json.loads(arguments.read))
    if arguments.inside:
        run = Measurement(Path(arguments.inside), arguments)
        try:
            print(json.dumps(run.measure(), indent=1))
        finally:
            run.close()
        return 0
    root = tempfile.mkdtemp(prefix="ottla-small-disk-")
    inside = [sys.executable, "-m", "ottla.bench.tier.small_disk", *sys.argv[1:], "--inside", root]
    probe = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", root]
    try:
        if subprocess.run(probe, check=False).returncode:
            print("skipped: this machine permits no mounts", file=sys.stderr)
            return SKIPPED
        return subprocess.run(["unshare", "--mount", *inside], check=False).returncode
    finally:
        if not arguments.keep:
            shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
