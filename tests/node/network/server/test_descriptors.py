"""A broker's server under a low limit of file descriptors, in a process of its own."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

LIMIT = 400
CLIENTS = 450

SERVER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
import trio
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.node.clock_driver import RealClock
from ottla.storage.disk.real_disk_driver import RealDisk

async def main():
    disk = RealDisk()
    listeners = [Listener(name="PLAINTEXT", host="127.0.0.1", port=0)]
    async with open_socket_server(
        listeners, Dispatcher(), clock=RealClock(), disk=disk, backlog=1_000
    ) as server:
        print(server.addresses["PLAINTEXT"][1], flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        # They are accepted some in a turn.
        with trio.fail_after(30):
            while server.connection_count < 150:
                await trio.sleep(0.01)
        files = []
        while len(files) < 100:
            files.append(disk.open(f"{sys.argv[1]}/{len(files)}.log", create=True))
        print(server.connection_count, len(files), flush=True)
        server.resume_accepting()
        await trio.to_thread.run_sync(sys.stdin.readline)
        print(server.connection_count, flush=True)

trio.run(main)
"""


def test_idle_connections_leave_descriptors_for_the_logs(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with ExitStack() as clients:
        port = int(process.stdout.readline())
        for _ in range(CLIENTS):
            clients.enter_context(socket.create_connection(("127.0.0.1", port)))
        process.stdin.write("\n")
        process.stdin.flush()
        connections, files = map(int, process.stdout.readline().split())
        process.stdin.write("\n")
        process.stdin.flush()
        bounded_again = int(process.stdout.readline())
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert files == 100
    assert connections == bounded_again == (LIMIT - 100) // 2


CROWDED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
import trio
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.node.clock_driver import RealClock
from ottla.storage.disk.real_disk_driver import RealDisk

async def main():
    async with open_socket_server(
        [Listener(name="PLAINTEXT", host="127.0.0.1", port=0)],
        Dispatcher(),
        clock=RealClock(),
        disk=RealDisk(),
    ) as server:
        logs = []
        while not logs or logs[-1] < 360:
            logs.append(os.open(os.devnull, os.O_RDONLY))
        print(server.addresses["PLAINTEXT"][1], flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        print(server.connection_count, flush=True)

trio.run(main)
"""


def test_clients_leave_descriptors_for_the_metadata_however_many_the_logs_have() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CROWDED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with ExitStack() as clients:
        port = int(process.stdout.readline())
        for _ in range(40):
            last = socket.create_connection(("127.0.0.1", port))
            clients.enter_context(last)
        assert last.recv(1) == b""
        process.stdin.write("\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == 8  # descriptors 361 to 368
    process.communicate()
    assert process.returncode == 0
