"""Measures producers on a disk that is much smaller than the load: `python -m
ottla.bench.tier.small_disk`.

Two clusters of real processes run side by side, each on its own tmpfs. One has tiered storage with
unlimited local retention and `local.retention.free.bytes`, and a small tmpfs. The other has no
tiered storage, and a tmpfs that is large enough for all records. Both get the same load, several
times the size of the small disk. Finally, all records are read back from the tiered cluster.

The program mounts the tmpfs in its own mount namespace, and exits with code 77 if that is not
permitted. It needs librdkafka (confluent-kafka).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MIB = 1 << 20
TOPIC = "load"
PARTITIONS = 2
RECORD_BYTES = 1_000
TICK_S = 0.002
GAP_S = 0.25
"""Seconds without an event-loop iteration after which the whole machine counts as stopped, probably
by another program. Latencies of records that are in flight are then not counted."""
SKIPPED = 77
METADATA = "rlmm.config.remote.log.metadata.topic"
FEW_COPIES = (f"{METADATA}.num.partitions=1", "log.retention.check.interval.ms=1000")


class LoadedCluster:
    """One cluster of real processes on a tmpfs, with its producer and the latencies of records."""

    def __init__(self, name: str, root: Path, arguments: argparse.Namespace) -> None:
        self.name = name
        self.mount = root / name
        self.mount.mkdir()
        self.is_tiered = name == "tiered"
        disks = 1.0 if self.is_tiered else arguments.times + 1
        size = f"size={int(disks * arguments.disk_mib)}m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", self.mount], check=True)
        self.directory = self.mount / "cluster"
        self.log = (root / f"{name}.log").open("w")
        settings = [*FEW_COPIES]
        words = ["--controllers", "1", "--brokers", "1", "--port", "0", "--no-console"]
        if self.is_tiered:
            words += ["--tier", arguments.uri or f"file://{root}/store"]
            settings += [
                f"local.retention.free.bytes={arguments.free_mib * MIB}",
                "remote.log.manager.task.interval.ms=5000",
            ]
        words += [word for text in settings for word in ("--set", text)]
        self._command = [sys.executable, "-m", "ottla.cli", "up", "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [*self._command, *words], stdout=self.log, stderr=subprocess.STDOUT
        )
        self.latencies_ms: list[float] = []
        self.failures: list[str] = []
        self.sent = self.delivered = self.passed_over = 0
        self.free_min = 1 << 62

    def ottla(self, *words: str, code: int | None = 0) -> str:
        """Run a command of `ottla` with this cluster, and return its output."""
        command = [sys.executable, "-m", "ottla.cli", *words, "--dir", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if code is not None and done.returncode != code:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def open(self, arguments: argparse.Namespace) -> None:
        """Wait until the cluster serves, create the topic, and open the producer."""
        from confluent_kafka import Producer

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
        self.client = {"bootstrap.servers": plan["bootstrap"]}
        configs = [f"segment.bytes={arguments.segment_mib * MIB}", "file.delete.delay.ms=1000"]
        if self.is_tiered:
            configs += ["remote.storage.enable=true", "retention.ms=-1", "retention.bytes=-1"]
        words = [word for text in configs for word in ("--config", text)]
        self.ottla("topic", "create", TOPIC, "--partitions", str(PARTITIONS), *words)
        settings = {"acks": "all", "linger.ms": 5, "delivery.timeout.ms": 60_000, "log_level": 0}

        self.producer = Producer({**self.client, **settings})

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

            value = (b"%d " % number).ljust(RECORD_BYTES, b".")
            self.producer.produce(TOPIC, value, partition=partition, on_delivery=on_delivery)
            self.sent += 1

    def look(self) -> None:
        """Measure the free space of the disk, and store the value."""
        found = os.statvfs(self.mount)
        self.free_min = min(self.free_min, found.f_bavail * found.f_frsize)

    def read_back(self) -> int:
        """Read all records from the start. Returns their number; raises RuntimeError for a record
        that is missing or in the wrong place."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self.client, "group.id": "all", "enable.auto.commit": False})
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        expected = [0] * PARTITIONS
        deadline = time.monotonic() + 600
        while sum(expected) < self.sent and time.monotonic() < deadline:
            for message in consumer.consume(5_000, 1):
                if message.error() is not None:
                    raise RuntimeError(message.error())
                index = message.partition()
                number = int(message.value().split()[0])
                if number != message.offset() or number != expected[index]:
                    raise RuntimeError(f"{index}: {expected[index]} expected, {number} found")
                expected[index] += 1
        consumer.close()
        return sum(expected)

    def figures(self) -> dict[str, Any]:
        """Return the measured values of the run by name."""
        found = sorted(self.latencies_ms)
        status = json.loads(self.ottla("status", "--format", "json", code=None))
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


def measure(root: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run two clusters under the same load, and return their measured values."""
    (root / "store").mkdir()
    clusters = [LoadedCluster(name, root, arguments) for name in ("tiered", "plain")]
    try:
        for each in clusters:
            each.open(arguments)
        total = arguments.times * arguments.disk_mib * MIB // RECORD_BYTES
        rate = total / (arguments.minutes * 60)
        gaps: list[float] = []
        loads: list[float] = []
        started = last = looked = time.monotonic()
        due = 0.0
        while clusters[0].sent < total:
            now = time.monotonic()
            if now - last > GAP_S:
                gaps.append(now)
                started += now - last  # a stop is no reason for a burst
            last = now
            due = min(total, (now - started) * rate)
            for each in clusters:
                each.send(int(due) - each.sent, gaps)
                each.producer.poll(0)
            if now - looked > 1:
                looked = now
                loads.append(os.getloadavg()[0])
                for each in clusters:
                    each.look()
            time.sleep(TICK_S)
        for each in clusters:
            each.producer.flush(120)
        took_s = time.monotonic() - started
        figures: dict[str, Any] = {each.name: each.figures() for each in clusters}
        figures["seconds"] = round(took_s)
        figures["stops of the machine"] = len(gaps)
        figures["load of the machine"] = round(sum(loads) / max(1, len(loads)), 1)
        plain_ms = figures["plain"]["p99_ms"]
        figures["p99 tiered / plain"] = round(figures["tiered"]["p99_ms"] / max(0.1, plain_ms), 2)
        figures["read back"] = clusters[0].read_back()
        return figures
    finally:
        for each in clusters:
            each.close()


def main() -> int:
    """Parse the options, and run the measurement in a mount namespace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--disk-mib", type=int, default=384)
    parser.add_argument("--free-mib", type=int, default=128)
    parser.add_argument("--segment-mib", type=int, default=16)
    parser.add_argument("--times", type=float, default=3.0, help="load, in sizes of the disk")
    parser.add_argument("--uri", default="", help="object store (default: a directory)")
    parser.add_argument("--keep", action="store_true", help="keep the logs of the clusters")
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measure(Path(arguments.inside), arguments), indent=1))
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
