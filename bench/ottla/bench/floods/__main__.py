"""Measure a bystander's latency, and the server's resident memory, under floods.

Run it as `python -m ottla.bench.floods --kafka DIR`.  A bystander is a client that sends requests
at a steady rate during the flood.  Memory is sampled before the flood, every 0.1 s until 8 s after
it, and at the end.  Ottla and Kafka run all the time with the same listeners.  They are flooded in
alternating rounds; the other server is idle.  Latencies vary on a busy machine, so compare only the
columns of one run.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.bench.floods.bystander import BystanderLatencies, ask_for, connected
from ottla.bench.floods.senders import (
    Address,
    hold_idle_connections,
    send_new_keys,
    send_tiny_records,
    send_unfinished_frames,
)
from ottla.bench.kafka.security_servers import (
    PASSWORD,
    PLAINTEXT,
    TLS13,
    USER,
    USERS,
    SecurityServer,
    make_certificate,
    open_pair,
)
from ottla.bench.load import Load, make_topic
from ottla.bench.requests import PRODUCE_VERSION, frame_of, small_request
from ottla.model.ids import ZERO_UUID
from ottla.model.limits import KIB, MIB
from ottla.model.settings.security.sasl import PLAIN
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest

TOPIC = "floods"
PRODUCED_BYTES = 900 * KIB
HEAD_START_S = 3.0
CALM_S = 8.0
PAUSE_S = 0.01
RSS_S = 0.1


class ListenerFlood(NamedTuple):
    """A kind of flood, and the listener that receives both the flood and the requests of a regular
    client."""

    send: Callable[[Address, Path, bytes], None] | None
    listener: str
    senders: int = 1


FLOODS = {
    "nothing, TLS": ListenerFlood(None, TLS13),
    "new keys": ListenerFlood(send_new_keys, TLS13, 2),
    "tiny records": ListenerFlood(send_tiny_records, TLS13, 2),
    "nothing, logged in": ListenerFlood(None, USERS),
    "unfinished frames": ListenerFlood(send_unfinished_frames, USERS),
    "idle connections": ListenerFlood(hold_idle_connections, USERS),
}


class FloodRow(NamedTuple):
    """Result of one flood of one server: the server's memory, and the request latencies of the
    bystander, a client that sends requests during the flood."""

    flood: str
    server: str
    waits: BystanderLatencies
    rss_mib: tuple[float, float, float]
    """Resident memory of the server in MiB: before the flood, its maximum, and some seconds after
    the flood."""


def produce_request() -> bytes:
    """Return a frame with a request that produces one large record."""
    batch = build_batch([RecordToBuild(time.time_ns() // 1_000_000, None, bytes(PRODUCED_BYTES))])
    topic = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
    return frame_of(request, PRODUCE_VERSION)


def measure(
    name: str, server_name: str, server: SecurityServer, ca: Path, seconds: float
) -> FloodRow:
    """Flood a server for some seconds, while a bystander sends requests to the same listener.
    Returns the bystander's latencies in seconds, and the server's resident memory in MiB before,
    during and after the flood."""
    flood = FLOODS[name]
    address = server.address(flood.listener)
    metadata = small_request("metadata", TOPIC, ZERO_UUID).frame
    is_logged_in = flood.listener == USERS
    before: tuple[bytes, ...] = ()
    if is_logged_in:
        token = f"\0{USER}\0{PASSWORD}".encode()
        before = (
            frame_of(SaslHandshakeRequest(mechanism=PLAIN), 1),
            frame_of(SaslAuthenticateRequest(auth_bytes=token), 2),
        )
    frame = produce_request() if is_logged_in else metadata
    sizes = [rss_mib(server.pids)]
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(server.pids, sizes, is_over))
    with connected(address, None if is_logged_in else ca) as sock:
        ask_for(sock, frame, before, 1.0, PAUSE_S)
        sizes[:] = [rss_mib(server.pids)]
        watcher.start()
        context = multiprocessing.get_context("spawn")
        senders = [
            context.Process(target=flood.send, args=(address, ca, metadata), daemon=True)
            for _ in range(flood.senders if flood.send else 0)
        ]
        for sender in senders:
            sender.start()
        try:
            if senders:
                time.sleep(HEAD_START_S)
            waits = ask_for(sock, frame, (), seconds, PAUSE_S)
        finally:
            for sender in senders:
                sender.kill()
                sender.join()
            time.sleep(CALM_S if senders else 0)
            is_over.set()
            watcher.join()
    return FloodRow(name, server_name, waits, (sizes[0], max(sizes), rss_mib(server.pids)))


def _watch(pids: Sequence[int], sizes: list[float], is_over: threading.Event) -> None:
    while not is_over.wait(RSS_S):
        sizes.append(rss_mib(pids))


def rss_mib(pids: Sequence[int]) -> float:
    """Return the total resident memory of the given processes in MiB."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * 4 * KIB / MIB


def as_table(rows: Sequence[FloodRow]) -> str:
    """Return the results of floods as a text table."""
    lines = [
        f"{'flood':20}{'server':8}{'asked':>6}{'p50 ms':>9}{'p99 ms':>9}{'longest':>9}"
        f"{'MiB before':>12}{'most':>7}{'after':>7}"
    ]
    for row in rows:
        p50, p99, longest = (row.waits.quantile_ms(part) for part in (0.5, 0.99, 1))
        before, most, after = row.rss_mib
        lines.append(
            f"{row.flood:20}{row.server:8}{len(row.waits.seconds):>6}{p50:>9.1f}{p99:>9.1f}"
            f"{longest:>9.1f}{before:>12.0f}{most:>7.0f}{after:>7.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Start Ottla and Kafka, flood each of them with every kind of flood, and print the results as
    a table."""
    parser = argparse.ArgumentParser(prog="python -m ottla.bench.floods", description=__doc__)
    parser.add_argument("--kafka", type=Path, required=True, help="directory of Kafka's jars")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    parser.add_argument("--floods", nargs="*", default=list(FLOODS), choices=list(FLOODS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-floods-") as folder:
        make_certificate(Path(folder))
        with open_pair(arguments.kafka, Path(folder), {}, has_authorizer=False) as (version, pair):
            for server in pair.values():
                make_topic(
                    Load(bootstrap=server.addresses[PLAINTEXT], topic=TOPIC, replication_factor=1)
                )
            print(f"Kafka {version}", flush=True)
            rows = []
            for name in arguments.floods:
                for server_name, server in pair.items():
                    rows.append(
                        measure(
                            name, server_name, server, Path(folder) / "ca.pem", arguments.seconds
                        )
                    )
                    print(as_table(rows[-1:]), flush=True)
    print()
    print(as_table(rows))


if __name__ == "__main__":
    main()
