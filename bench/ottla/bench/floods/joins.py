"""Time that a broker needs to join a flooded controller: `python -m ottla.bench.floods.joins`.

A controller and a broker authenticate each other by certificates.  The broker is first restarted
several times on an idle machine.  It is then restarted several times while idle connections fill
the controller's listener, over IPv4 and IPv6.  The idle clients reconnect whenever the controller
closes their connection.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.bench.floods.senders import IDLE_COUNT, hold_idle_connections
from ottla.node.local.certificate_authority_driver import CertificateAuthority
from ottla.node.local.local_nodes_driver import (
    NODE_MODULE,
    LocalNode,
    NotReadyError,
    end_nodes,
    free_ports,
    start_node,
    wait_until_ready,
)

HOST = "127.0.0.1"
FAMILIES = (HOST, "::1")
CONTROLLER_ID, BROKER_ID = 101, 1
CLUSTER_ID = "31KS2JtqQaygF2owBPlqAQ"
DIRECTORY_ID = "3Db5QLSqSZieL3rJBUUegA"
HEAD_START_S = 6.0
"""Time in seconds for which idle connections are open before the time of a join is measured. It
exceeds the controller's time limit for a handshake."""
READY_S_MAX = 150.0
END_S = 30.0


class JoiningPair:
    """A controller and a broker: their .properties files in a folder, and their processes."""

    def __init__(self, folder: Path) -> None:
        """Write the .properties files of both nodes and format their directories. Starts no
        process."""
        self.port, broker_port = free_ports(2, HOST)
        self._folder = folder
        authority = CertificateAuthority.make("nodes")
        (folder / "trusted.pem").write_text(authority.certificate)
        shared = {
            "controller.quorum.voters": f"{CONTROLLER_ID}@{HOST}:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.truststore.location": str(folder / "trusted.pem"),
        }
        roles = {
            "controller": (CONTROLLER_ID, f"CONTROLLER://:{self.port}", "metadata.log.dir"),
            "broker": (BROKER_ID, f"PLAINTEXT://{HOST}:{broker_port}", "log.dirs"),
        }
        for role, (node_id, listeners, directory_key) in roles.items():
            issued = authority.issue(role, [HOST], node_id=node_id)
            issued.write(folder / f"{role}.pem")
            own = {
                "process.roles": role,
                "node.id": str(node_id),
                "listeners": listeners,
                directory_key: str(folder / role),
                "ssl.keystore.location": str(folder / f"{role}.pem"),
            }
            self._format(role, {**shared, **own})

    def _format(self, role: str, texts: Mapping[str, str]) -> None:
        lines = [f"{key}={text}\n" for key, text in texts.items()]
        self._properties(role).write_text("".join(lines))
        command = [sys.executable, "-m", NODE_MODULE, "storage", "format"]
        where = ["--config", str(self._properties(role)), "--cluster-id", CLUSTER_ID]
        if role == "controller":
            voter = f"{CONTROLLER_ID}@{HOST}:{self.port}:{DIRECTORY_ID}"
            where += ["--initial-controllers", voter]
        subprocess.run([*command, *where], check=True, stdout=subprocess.DEVNULL)

    def _properties(self, role: str) -> Path:
        return self._folder / f"{role}.properties"

    @contextmanager
    def started(self, role: str) -> Iterator[float | None]:
        """Start one of the two nodes. Yields the seconds until it accepts requests, or None if it
        does not accept them in time."""
        with (self._folder / f"{role}.log").open("ab") as log:
            began_s = time.monotonic()
            node: LocalNode = start_node(role, self._properties(role), output=log)
        ready_s: float | None = None
        try:
            try:
                wait_until_ready([node], READY_S_MAX)
                ready_s = time.monotonic() - began_s
            except NotReadyError as error:
                print(error)
            yield ready_s
        finally:
            end_nodes([node.process], END_S)


@contextmanager
def idle_connections(port: int, folder: Path) -> Iterator[None]:
    """Keep idle connections to a port open over each address family, while the block runs."""
    context = multiprocessing.get_context("spawn")
    holders = [
        context.Process(target=hold_idle_connections, args=((host, port), folder, b""), daemon=True)
        for host in FAMILIES
    ]
    for holder in holders:
        holder.start()
    try:
        time.sleep(HEAD_START_S)
        yield
    finally:
        for holder in holders:
            holder.kill()
            holder.join()


def held_count(port: int) -> int:
    """Return the number of clients' connections to a port of this machine that the server has not
    closed."""
    held = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            remote, state = line.split()[2:4]
            held += state == "01" and int(remote.rpartition(":")[2], 16) == port
    return held


def measure_joins(pair: JoiningPair, count: int) -> Iterator[str]:
    """Restart the broker `count` times, and yield the time of each join to the controller as
    text."""
    for _ in range(count):
        with pair.started("broker") as ready_s:
            yield _row("nothing", ready_s, 0)
    with idle_connections(pair.port, Path(tempfile.gettempdir())):
        for _ in range(count):
            held = held_count(pair.port)
            with pair.started("broker") as ready_s:
                yield _row("idle connections", ready_s, held)


def _row(flood: str, ready_s: float | None, held: int) -> str:
    shown = "never" if ready_s is None else f"{ready_s:.2f}"
    return f"{flood:20}{held:>8}{shown:>10}{os.getloadavg()[0]:>8.1f}"


def main() -> None:
    """Start a controller and a broker, and print how long each join of the broker took."""
    parser = argparse.ArgumentParser(prog="python -m ottla.bench.floods.joins", description=__doc__)
    parser.add_argument("--joins", type=int, default=3, help="with and without a flood")
    arguments = parser.parse_args()
    print(f"{IDLE_COUNT:,} idle connections by each of {', '.join(FAMILIES)}")
    print(f"{'flood':20}{'held':>8}{'ready s':>10}{'load':>8}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ottla-joins-") as folder:
        pair = JoiningPair(Path(folder))
        with pair.started("controller"):
            # The first start registers the broker; only restarts are measured.
            with pair.started("broker"):
                pass
            for row in measure_joins(pair, arguments.joins):
                print(row, flush=True)


if __name__ == "__main__":
    main()
