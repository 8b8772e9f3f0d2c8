"""Real packets between real namespaces: cut links are silent, and other links are unaffected."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.cluster_claim import claimed
from ottla.jepsen.processes.network import NetworkFaults
from ottla.jepsen.processes.network_links import CLIENTS
from ottla.jepsen.processes.network_namespaces import NamespaceNetwork, open_namespaces

NODES = ("a", "b", "c")
SERVE = """
import socket, threading
def drain(connection):
    while connection.recv(65536):
        pass
server = socket.create_server(("0.0.0.0", 9092))
print("ready", flush=True)
while True:
    threading.Thread(target=drain, args=[server.accept()[0]], daemon=True).start()
"""
REACH = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9092), timeout=float(sys.argv[2]))
except TimeoutError:
    sys.exit(1)
"""
pytestmark = pytest.mark.cluster


@asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[NamespaceNetwork]:
    """Open a network with a listener on every node."""
    with ExitStack() as stack:
        claim = stack.enter_context(claimed(directory))
        async with open_namespaces(claim, NODES) as network:
            for node in NODES:
                stack.enter_context(listening(network, node))
            yield network


class listening:  # noqa: N801 (used as a block)
    """A listener on one node, for the length of a block."""

    def __init__(self, network: NamespaceNetwork, node: str) -> None:
        words = [*network.endpoints[node].command_prefix, sys.executable, "-c", SERVE]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE)

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate()


def host_of(network: NamespaceNetwork, node: str) -> str:
    """Return a node's address."""
    return network.endpoints[node].advertised.rpartition(":")[0]


async def check(network: NamespaceNetwork, expected: set[tuple[str, str]]) -> None:
    """Assert that exactly these pairs connect, (client, server), and that other clients get no
    packet."""

    async def attempt(sender: str, receiver: str) -> None:
        prefix = () if sender == CLIENTS else network.endpoints[sender].command_prefix
        is_expected = (sender, receiver) in expected
        patience_s = "20" if is_expected else "0.3"
        words = [*prefix, sys.executable, "-c", REACH, host_of(network, receiver), patience_s]
        done = await trio.run_process(words, check=False, capture_stderr=True)
        assert done.returncode == (0 if is_expected else 1), f"{sender} to {receiver}: {done}"

    async with trio.open_nursery() as nursery:
        for sender, receiver in EVERYBODY:
            nursery.start_soon(attempt, sender, receiver)


EVERYBODY = {(one, other) for one in (*NODES, CLIENTS) for other in NODES if one != other}


async def test_what_is_cut_is_silent_and_nothing_else_is(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.NAMESPACES)
    async with serving(tmp_path) as network:
        faults = NetworkFaults(network)
        await check(network, EVERYBODY)
        # A connection needs both ways.
        await faults.cut("a", "b", one_way=True)
        await faults.cut("c", CLIENTS)
        await check(network, EVERYBODY - {("a", "b"), ("b", "a"), (CLIENTS, "c")})
        await faults.heal_all()
        await check(network, EVERYBODY)


async def test_over_a_one_way_cut_the_other_way_still_speaks(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.NAMESPACES)
    async with serving(tmp_path) as network:
        faults = NetworkFaults(network)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind((network._addresses[CLIENTS], 0))
            here.settimeout(0.3)
            say = (
                "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
                f"s.sendto(b'hello', {here.getsockname()!r})"
            )
            words = [*network.endpoints["a"].command_prefix, sys.executable, "-c", say]
            await faults.cut(CLIENTS, "a", one_way=True)
            await trio.run_process(words)
            assert here.recv(10) == b"hello"
            await faults.heal_all()
            await faults.cut("a", CLIENTS, one_way=True)
            await trio.run_process(words)
            with pytest.raises(TimeoutError):
                here.recv(10)


async def test_lost_packets_are_about_as_many_as_was_asked_for(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.NAMESPACES)
    async with serving(tmp_path) as network:
        await NetworkFaults(network).loss(["a"], 0.3)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
            here.bind((network._addresses[CLIENTS], 0))
            here.setblocking(False)
            say = (
                "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
                f"[s.sendto(b'x', {here.getsockname()!r}) for _ in range(200)]"
            )
            words = [*network.endpoints["a"].command_prefix, sys.executable, "-c", say]
            await trio.run_process(words)
            arrived = len(list(datagrams(here)))
        assert 100 < arrived < 180


def datagrams(here: socket.socket) -> Iterator[bytes]:
    """Yield what has arrived."""
    while True:
        try:
            yield here.recv(10)
        except BlockingIOError:
            return


async def test_a_slow_link_takes_its_time(tmp_path: Path, need: Callable[..., None]) -> None:
    need(Ability.NAMESPACES, Ability.RATES)
    async with serving(tmp_path) as network:
        faults = NetworkFaults(network)
        await faults.slow(["a"], 800_000)
        with socket.create_connection((host_of(network, "a"), 9092)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            connection.settimeout(1)
            # At 100 kB/s this takes two minutes, far more than any buffer on the way holds.
            with pytest.raises(TimeoutError):
                connection.sendall(bytes(12_000_000))
            await faults.heal_all()
            connection.settimeout(60)
            connection.sendall(bytes(12_000_000))


async def test_a_reset_ends_connections_with_an_error(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.NAMESPACES, Ability.RESETS)
    async with serving(tmp_path) as network:
        with (
            socket.create_connection((host_of(network, "a"), 9092)) as hit,
            socket.create_connection((host_of(network, "b"), 9092)) as spared,
        ):
            assert await NetworkFaults(network).reset(["a"]) == 1
            with pytest.raises(ConnectionResetError):
                hit.recv(1)
            spared.settimeout(0.1)
            with pytest.raises(TimeoutError):
                spared.recv(1)
