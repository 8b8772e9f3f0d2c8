"""The wait of the socket server's task in which trio's scheduler takes no part."""

import select
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.node.network.server.direct_wait_driver import PASSES_UNSEEN, DirectWait
from ottla.node.network.server.server_driver import SocketServer
from tests.node.network.server.socket_clients import connect, heartbeat, read_answer, serving

EXCHANGES = 50
WAKE_UPS = 10
TASKS = 8


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


class LateTasks(trio.abc.Instrument):
    """Waits for events in which a task of `woken` had not run yet, although it was runnable."""

    def __init__(self) -> None:
        self.woken: set[int] = set()
        self.waits = 0

    def before_io_wait(self, timeout: float) -> None:
        self.waits += bool(timeout > 0 and self.woken)


async def test_a_runnable_task_never_waits_for_an_event_of_a_client() -> None:
    async with serving() as server:
        client = socket.create_connection(server.addresses["PLAINTEXT"])
        trio.lowlevel.add_instrument(late := LateTasks())
        for number in range(WAKE_UPS):
            wake = trio.Event()

            async def run(index: int, wake: trio.Event = wake) -> None:
                await wake.wait()
                late.woken.discard(index)

            async with trio.open_nursery() as nursery:
                for index in range(TASKS):
                    nursery.start_soon(run, index)
                await wait_all_tasks_blocked()
                # The tasks and the server's task are runnable in the same pass of the scheduler,
                # which runs them in a random order.
                client.sendall(heartbeat(number))
                late.woken.update(range(TASKS))
                wake.set()
        trio.lowlevel.remove_instrument(late)
        client.close()
    assert late.waits == 0


async def test_another_server_of_the_same_loop_is_not_delayed() -> None:
    async with serving() as one, serving() as other:
        for _ in range(3):
            await trio.to_thread.run_sync(exchange, one, 3)
            await trio.to_thread.run_sync(exchange, other, 3)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, exchange, one, EXCHANGES)
                nursery.start_soon(trio.to_thread.run_sync, exchange, other, EXCHANGES)


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
        {"waiting_for_idle": {(0.0, 1): "task"}},
        {"clock_autojump_threshold": 0.0},
        {"clock": Clock(0.0)},
    ],
    ids=lambda busy: next(iter(busy)),
)
async def test_the_server_waits_by_trio_if_trio_has_something_to_do(busy: dict[str, Any]) -> None:
    with select.epoll() as clients, select.epoll() as trios:
        mine, theirs = socket.socketpair()
        with mine, theirs:
            clients.register(mine, select.EPOLLIN)
            theirs.send(b"x")
            assert waits_alone(clients, idle_runner(trios))
            assert not waits_alone(clients, {**idle_runner(trios), **busy})
            assert not waits_alone(clients, {**idle_runner(trios), "is_guest": True})
            trios.register(mine, select.EPOLLIN)
            assert not waits_alone(clients, idle_runner(trios)), "trio has an event, too"


def idle_runner(trios: select.epoll) -> dict[str, Any]:
    return {
        "io_manager": SimpleNamespace(_epoll=trios),
        "waiting_for_idle": {},
        "clock_autojump_threshold": inf,
        "is_guest": False,
        "clock": Clock(),
        "deadlines": NoDeadline(),
        "instruments": SimpleNamespace(data={}),
    }


def waits_alone(clients: select.epoll, runner: dict[str, Any]) -> bool:
    """Return whether the first direct wait that is allowed reports an event of a client."""
    wait = DirectWait(clients)
    wait.begin(SimpleNamespace(**runner))
    try:
        early = [wait.wait() for _ in range(PASSES_UNSEEN)]
        assert not any(early), "tasks may be runnable that were not recorded"
        return wait.wait()
    finally:
        wait.end()
        wait.close()


async def test_the_server_waits_by_trio_while_a_task_is_runnable() -> None:
    with select.epoll() as clients, select.epoll() as trios:
        mine, theirs = socket.socketpair()
        with mine, theirs:
            clients.register(mine, select.EPOLLIN)
            theirs.send(b"x")
            wait = DirectWait(clients)
            wait.begin(SimpleNamespace(**idle_runner(trios)))
            for _ in range(PASSES_UNSEEN):
                wait.wait()
            async with trio.open_nursery() as nursery:
                assert wait.wait()
                nursery.start_soon(trio.lowlevel.checkpoint)
                assert not wait.wait()
            assert wait.wait()
            wait.end()
            wait.close()
