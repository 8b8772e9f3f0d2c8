"""What TLS costs a broker: the same work over a plain and an encrypted listener, in turn.

`python -m ottla.bench.tls_cost [MEGABYTES] [ROUNDS]` starts a broker in a process of its own and
has librdkafka produce and consume 1 KB records over either listener.  It prints MB/s and the
process's CPU seconds per GB, medians of the rounds, and handshakes a second with the longest pause
of the loop.  The load shares the machine: compare the rows with each other.  Needs `openssl`.
"""

import argparse
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import trio

from ottla.bench.processes import usage_of
from ottla.jepsen.in_process import HOST, open_in_process_cluster
from ottla.model.limits import MIB
from ottla.telemetry.loop_pause_driver import LoopPauseMeter

LISTENERS = ("PLAINTEXT", "SSL")
RECORD = bytes(range(256)) * 4
TOPIC = "tls-cost"
MB = 1_000_000
GB = 1_000_000_000
HANDSHAKE_S = 4.0
TIMEOUT_S = 120.0


def make_certificate(directory: Path) -> Path:
    """Make a certificate that is its own CA, with its key, in one file."""
    key, certificate = directory / "key.pem", directory / "ca.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=broker", "-keyout", str(key)),
            *("-addext", f"subjectAltName=IP:{HOST}", "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    whole = directory / "server.pem"
    whole.touch(mode=0o600)
    whole.write_bytes(key.read_bytes() + certificate.read_bytes())
    return whole


async def serve(directory: Path) -> None:
    """Run a controller and a broker until the input ends; print where the listeners are.

    Each line of the input is answered by the longest pause of the loop since the last one, in ms.
    """
    settings = {
        "listeners": ",".join(f"{name}://{HOST}:0" for name in LISTENERS),
        "ssl.keystore.location": str(directory / "server.pem"),
        "log.segment.bytes": str(64 * MIB),
    }
    meter = LoopPauseMeter()
    trio.lowlevel.add_instrument(meter)
    async with open_in_process_cluster(
        directory=directory / "data", broker_settings=settings
    ) as cluster:
        (broker,) = cluster.brokers.values()
        print(*(broker.addresses[name][1] for name in LISTENERS), flush=True)
        while await trio.to_thread.run_sync(sys.stdin.readline):
            print(f"{meter.take_longest_ms():.1f}", flush=True)


class ServedBroker:
    """The broker's process, and where it listens."""

    def __init__(self, process: "subprocess.Popen[str]", directory: Path) -> None:
        self._process = process
        self.ca = directory / "ca.pem"
        self.ports = dict(zip(LISTENERS, map(int, self._line().split()), strict=True))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def longest_pause_ms(self) -> float:
        """Return how long the loop was held since this was asked last."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def cpu_s(self) -> float:
        """Return the CPU seconds it has used."""
        usage = usage_of([self._process.pid])
        return usage.user_s + usage.system_s

    def settings(self, listener: str) -> dict[str, Any]:
        """Return how librdkafka reaches a listener."""
        return {
            "bootstrap.servers": f"{HOST}:{self.ports[listener]}",
            "security.protocol": listener,
            **({"ssl.ca.location": str(self.ca)} if listener == "SSL" else {}),
        }


@contextmanager
def open_served_broker() -> Iterator[ServedBroker]:
    """Start a broker in a process of its own; end it with the block."""
    with tempfile.TemporaryDirectory(prefix="ottla-tls-") as name:
        directory = Path(name)
        make_certificate(directory)
        with subprocess.Popen(
            [sys.executable, "-m", "ottla.bench.tls_cost", "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield ServedBroker(process, directory)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(TIMEOUT_S)


def produce(settings: dict[str, Any], topic: str, size: int) -> None:
    """Send records of `size` bytes in all."""
    from confluent_kafka import Producer

    producer = Producer({**settings, "linger.ms": 20, "batch.size": 512 * 1024, "acks": "all"})
    for _ in range(size // len(RECORD)):
        while True:
            try:
                producer.produce(topic, RECORD, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    assert not producer.flush(TIMEOUT_S)


def consume(settings: dict[str, Any], topic: str, size: int) -> None:
    """Read records of `size` bytes in all."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {**settings, "group.id": "tls", "fetch.min.bytes": 512 * 1024, "check.crcs": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = size // len(RECORD)
    while left > 0:
        found = consumer.consume(min(left, 10_000), TIMEOUT_S)
        assert found
        left -= len(found)
    consumer.close()


def handshakes(broker: ServedBroker, version: ssl.TLSVersion) -> dict[str, float]:
    """Make connections one after the other; return how many a second, and what they cost."""
    context = ssl.create_default_context(cafile=str(broker.ca))
    context.minimum_version = context.maximum_version = version
    broker.longest_pause_ms()
    cpu_s, began, count = broker.cpu_s(), time.perf_counter(), 0
    while time.perf_counter() - began < HANDSHAKE_S:
        with (
            socket.create_connection((HOST, broker.ports["SSL"])) as sock,
            context.wrap_socket(sock, server_hostname=HOST),
        ):
            count += 1
    seconds = time.perf_counter() - began
    return {
        "a second": count / seconds,
        "broker's CPU ms each": 1e3 * (broker.cpu_s() - cpu_s) / count,
        "longest pause ms": broker.longest_pause_ms(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="ottla.bench.tls_cost", description=__doc__)
    parser.add_argument("megabytes", nargs="?", type=int, default=200)
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        trio.run(serve, arguments.serve)
        return
    size = arguments.megabytes * MB
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with open_served_broker() as broker:
        for number in range(arguments.rounds):
            for listener in LISTENERS if number % 2 == 0 else LISTENERS[::-1]:
                topic = f"{TOPIC}-{listener}-{number}"
                for work in (produce, consume):
                    cpu_s, began = broker.cpu_s(), time.perf_counter()
                    work(broker.settings(listener), topic, size)
                    rate = size / MB / (time.perf_counter() - began)
                    cost = (broker.cpu_s() - cpu_s) * GB / size
                    found.setdefault((work.__name__, listener), []).append((rate, cost))
        for (name, listener), rounds in sorted(found.items()):
            rate, cost = (median(each) for each in zip(*rounds, strict=True))
            print(f"{name:8} {listener:10} {rate:7.1f} MB/s {cost:6.2f} CPU-s/GB")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            figures = handshakes(broker, version)
            print(
                f"handshakes {version.name}", {key: round(one, 2) for key, one in figures.items()}
            )


if __name__ == "__main__":
    main()
