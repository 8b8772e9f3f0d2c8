"""Proxies know both ends of each connection, and pass on what no fault blocks, without root."""

import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from ottla.jepsen.processes.cluster_claim import claimed
from ottla.jepsen.processes.network import NetworkFaults
from ottla.jepsen.processes.network_links import CLIENTS
from ottla.jepsen.processes.network_proxies import ProxyNetwork, open_proxies

NODES = ("a", "b", "c")
PAIRS = [(one, other) for one in NODES for other in NODES if one != other]
EVERYBODY = {one + other for one, other in PAIRS}
MEMBER = """
import socket, sys, threading
def answer(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
def serve(server):
    while True:
        threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=serve, args=[server], daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    port, patience_s = line.split()
    # As gRPC does it: IPv4 by a socket that can do both.
    family = socket.AF_INET6 if sys.argv[2] == "6" else socket.AF_INET
    host = "::ffff:127.0.0.1" if sys.argv[2] == "6" else "127.0.0.1"
    with socket.socket(family) as connection:
        connection.settimeout(float(patience_s))
        connection.connect((host, int(port)))
        connection.sendall(b"hello")
        try:
            print("yes" if connection.recv(5) == b"hello" else "ended", flush=True)
        except TimeoutError:
            print("silence", flush=True)
        except ConnectionResetError:
            print("reset", flush=True)
"""
pytestmark = pytest.mark.cluster


class Member:
    """A node that echoes its input, and sends to another one on demand."""

    def __init__(self, port: int, family: str) -> None:
        words = [sys.executable, "-c", MEMBER, str(port), family]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.line()

    def line(self) -> str:
        """Return the next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    async def hears(self, port: int, patience_s: float) -> str:
        """Return how it went to ask who listens on a port."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{port} {patience_s}\n")
        self.process.stdin.flush()
        return await trio.to_thread.run_sync(self.line)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.communicate()


class Town:
    """Nodes behind their proxies."""

    def __init__(self, network: ProxyNetwork, members: dict[str, Member]) -> None:
        self.network = network
        self.members = members

    def port_of(self, node: str) -> int:
        """Return the advertised port."""
        return int(self.network.endpoints[node].advertised.rpartition(":")[2])

    async def check(self, expected: set[str]) -> None:
        """Assert that exactly these pairs reach each other, the client named first."""
        for asker, other in PAIRS:
            is_expected = asker + other in expected
            # On a busy machine an answer may take its time; silence need not be waited for long.
            patience_s = 20 if is_expected else 0.3
            found = await self.members[asker].hears(self.port_of(other), patience_s)
            assert found == ("yes" if is_expected else "silence"), f"{asker} asks {other}"


@asynccontextmanager
async def town(directory: Path, family: str = "4") -> AsyncIterator[Town]:
    """Run three nodes behind proxies."""
    with ExitStack() as stack:
        claim = stack.enter_context(claimed(directory))
        async with open_proxies(claim, NODES) as network:
            members: dict[str, Member] = {}
            for node in NODES:
                port = int(network.endpoints[node].binds.rpartition(":")[2])
                members[node] = Member(port, family)
                stack.callback(members[node].close)
            network.find_pid = lambda node: members[node].process.pid
            yield Town(network, members)


@pytest.mark.parametrize("family", ["4", "6"])
async def test_a_cut_holds_back_what_the_two_say_and_nothing_else(
    tmp_path: Path, family: str
) -> None:
    async with town(tmp_path, family) as all_:
        faults = NetworkFaults(all_.network)
        await all_.check(EVERYBODY)
        await faults.cut("a", "b")
        await all_.check(EVERYBODY - {"ab", "ba"})
        async with await trio.open_tcp_stream("127.0.0.1", all_.port_of("a")) as client:
            await client.send_all(b"x")
            assert await client.receive_some(1) == b"x"
        await faults.heal_all()
        await all_.check(EVERYBODY)


async def test_over_a_one_way_cut_one_hears_and_is_not_heard(tmp_path: Path) -> None:
    async with town(tmp_path) as all_:
        faults = NetworkFaults(all_.network)
        async with await trio.open_tcp_stream("127.0.0.1", all_.port_of("a")) as client:
            await client.send_all(b"1")
            assert await client.receive_some(1) == b"1"
            # The node's output is lost; its input arrives.
            await faults.cut("a", CLIENTS, one_way=True)
            await client.send_all(b"2")
            with trio.move_on_after(0.2) as scope:
                await client.receive_some(1)
            assert scope.cancelled_caught
            await faults.heal_all()
            with trio.fail_after(60):
                assert await client.receive_some(1) == b"2"


async def test_a_connection_that_was_reset_before_it_is_accepted_harms_no_other(
    tmp_path: Path,
) -> None:
    async with town(tmp_path) as all_:
        with socket.create_connection(("127.0.0.1", all_.port_of("a"))) as hasty:
            hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await all_.check(EVERYBODY)


async def test_a_reset_ends_connections_of_the_node_alone(tmp_path: Path) -> None:
    async with (
        town(tmp_path) as all_,
        await trio.open_tcp_stream("127.0.0.1", all_.port_of("a")) as hit,
        await trio.open_tcp_stream("127.0.0.1", all_.port_of("b")) as spared,
    ):
        for client in (hit, spared):
            await client.send_all(b"x")
            assert await client.receive_some(1) == b"x"
        assert await NetworkFaults(all_.network).reset(["a"]) == 1
        with pytest.raises(trio.BrokenResourceError):
            await hit.receive_some(1)
        await spared.send_all(b"y")
        assert await spared.receive_some(1) == b"y"


async def test_a_slow_link_takes_its_time(tmp_path: Path) -> None:
    async with town(tmp_path) as all_:
        await NetworkFaults(all_.network).slow(["a"], 800_000)
        async with await trio.open_tcp_stream("127.0.0.1", all_.port_of("a")) as client:
            began_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.send_all, bytes(40_000))
                count = 0
                while count < 40_000:
                    count += len(await client.receive_some())
            # 40 kB at 100 kB/s.
            assert trio.current_time() - began_s > 0.3


async def test_what_ends_on_one_side_ends_on_the_other(tmp_path: Path) -> None:
    async with town(tmp_path) as all_:
        client = await trio.open_tcp_stream("127.0.0.1", all_.port_of("a"))
        async with client:
            await client.send_all(b"x")
            assert await client.receive_some(1) == b"x"
            all_.members["a"].process.kill()
            # A reset is an end, too.
            with trio.fail_after(60), suppress(trio.BrokenResourceError):
                assert await client.receive_some(1) == b""
