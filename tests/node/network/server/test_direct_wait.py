"""The wait of the socket server's task in which trio's scheduler takes no part."""

import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.node.network.server.direct_wait_driver import DirectWait
from ottla.node.network.server.server_driver import SocketServer
from tests.node.network.server.socket_clients import connect, heartbeat, read_answer, serving

EXCHANGES = 50


class Steps(trio.abc.Instrument):
    """Count of the steps of tasks and of the waits that instruments see."""

    def __init__(self) -> None:
        self.tasks = self.waits = self.ended_waits = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.tasks += 1

    def before_io_wait(self, timeout: float) -> None:
        self.waits += 1

    def after_io_wait(self, timeout: float) -> None:
        self.ended_waits += 1


@contextmanager
def counted() -> Iterator[Steps]:
    trio.lowlevel.add_instrument(steps := Steps())
    yield steps
    trio.lowlevel.remove_instrument(steps)


def exchange(server: SocketServer, count: int) -> None:
    """Send heartbeats one after the other, each after the response to the previous one."""
    with socket.create_connection(server.addresses["PLAINTEXT"]) as client:
        stream = client.makefile("rb")
        for number in range(count):
            client.sendall(heartbeat(number))
            answer = stream.read(struct.unpack(">i", stream.read(4))[0])
            assert struct.unpack(">i", answer[:4])[0] == number


async def test_a_client_is_served_without_steps_of_tasks() -> None:
    async with serving() as server:
        with counted() as steps:
            await trio.to_thread.run_sync(exchange, server, EXCHANGES)
    assert steps.tasks < EXCHANGES / 2
    assert steps.waits >= EXCHANGES, "instruments see each wait"
    assert steps.ended_waits == steps.waits


async def test_a_deadline_and_a_thread_end_the_wait() -> None:
    async with serving() as server:
        await trio.to_thread.run_sync(exchange, server, 1)
        with trio.move_on_after(0.02) as scope:
            await trio.sleep_forever()
        assert scope.cancelled_caught
        await trio.to_thread.run_sync(lambda: trio.from_thread.run(trio.sleep, 0.001))


async def test_tasks_run_while_a_client_never_pauses() -> None:
    async with serving() as server, trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, exchange, server, EXCHANGES)
        for _ in range(EXCHANGES):
            await trio.lowlevel.checkpoint()
        await trio.sleep(0.001)


async def test_an_idle_loop_is_recognized_as_idle() -> None:
    async with serving() as server, await connect(server) as client:
        await client.send_all(heartbeat(1))
        await read_answer(client)
        await wait_all_tasks_blocked()


class NoDeadline:
    def next_deadline(self) -> float:
        return inf


class Clock:
    def __init__(self, sleep_s: float = 5.0) -> None:
        self.sleep_s = sleep_s

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return self.sleep_s


@pytest.mark.parametrize(
    "busy",
    [
        {"runq": deque(["task"])},
        {"waiting_for_idle": {(0.0, 1): "task"}},
        {"clock_autojump_threshold": 0.0},
        {"is_guest": True},
        {"clock": Clock(0.0)},
    ],
    ids=lambda busy: next(iter(busy)),
)
def test_the_server_waits_by_trio_if_trio_has_something_to_do(busy: dict[str, Any]) -> None:
    idle: dict[str, Any] = {
        "runq": deque(),
        "waiting_for_idle": {},
        "clock_autojump_threshold": inf,
        "is_guest": False,
        "clock": Clock(),
        "deadlines": NoDeadline(),
        "instruments": {},
    }
    with select.epoll() as clients, select.epoll() as trios:
        idle["io_manager"] = SimpleNamespace(_epoll=trios)
        mine, theirs = socket.socketpair()
        clients.register(mine, select.EPOLLIN)
        theirs.send(b"x")
        assert waits_alone(clients, idle)
        assert not waits_alone(clients, {**idle, **busy})
        trios.register(mine, select.EPOLLIN)
        assert not waits_alone(clients, idle), "both have an event, so trio must run"
        mine.close()
        theirs.close()


def waits_alone(clients: select.epoll, runner: dict[str, Any]) -> bool:
    wait = DirectWait(clients)
    wait.belong_to(SimpleNamespace(**runner))
    try:
        return wait.wait()
    finally:
        wait.close()
