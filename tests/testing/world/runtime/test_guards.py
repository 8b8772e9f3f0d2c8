"""Clocks and chance of programs in a world, and calls that a world refuses."""

import asyncio
import datetime
import multiprocessing
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime as imported_datetime
from time import monotonic as imported_monotonic
from time import sleep as imported_sleep
from types import ModuleType
from typing import Any

import pytest
import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.whole.clock import WALL_START_MS
from ottla.jepsen.world.whole.machine import SharedWorld
from ottla.testing.world.errors import NotInWorldError
from ottla.testing.world.runtime.guards import REFUSALS, RUNS_PER_COLLECTION, guarded
from tests.testing.world.small_world import in_network, instance, result_of

START_S = WALL_START_MS / 1_000
START = datetime.datetime(2026, 1, 1)


def _of_program(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a program, after 100 virtual seconds."""

    async def program() -> Any:
        await asyncio.sleep(100)
        return function()

    return result_of(program)


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (time.time, START_S + 100),
        (lambda: time.time(), START_S + 100),
        (lambda: time.time_ns(), (WALL_START_MS + 100_000) * 1_000_000),
        (lambda: time.monotonic(), 100),
        (lambda: time.monotonic_ns(), 100_000_000_000),
        (lambda: time.perf_counter(), 100),
        (lambda: time.perf_counter_ns(), 100_000_000_000),
        (lambda: time.process_time(), 100),
        (lambda: time.thread_time_ns(), 100_000_000_000),
        (lambda: imported_monotonic(), 100),
        (lambda: asyncio.get_running_loop().time(), 100),
        (lambda: datetime.datetime.now(), START + datetime.timedelta(seconds=100)),
        (lambda: datetime.datetime.utcnow(), START + datetime.timedelta(seconds=100)),
        (lambda: datetime.datetime.today(), START + datetime.timedelta(seconds=100)),
        (lambda: imported_datetime.now(), START + datetime.timedelta(seconds=100)),
        (
            lambda: imported_datetime.now(datetime.UTC),
            (START + datetime.timedelta(seconds=100)).replace(tzinfo=datetime.UTC),
        ),
        (lambda: datetime.date.today(), START.date()),
        (lambda: time.gmtime()[:5], (2026, 1, 1, 0, 1)),
        (lambda: time.localtime()[:5], (2026, 1, 1, 0, 1)),
        (lambda: time.ctime(), "Thu Jan  1 00:01:40 2026"),
        (lambda: time.asctime(), "Thu Jan  1 00:01:40 2026"),
        (lambda: time.strftime("%Y-%m-%d %H:%M:%S"), "2026-01-01 00:01:40"),
        (lambda: socket.gethostname(), "program"),
        (lambda: socket.getfqdn(), "program"),
        (lambda: os.getpid(), 1_001),
    ],
)
def test_a_program_reads_the_world(read: Callable[[], Any], expected: Any) -> None:
    if read is time.time:
        # A reference that a caller took before the run is the one that guards cannot replace.
        assert _of_program(read) > START_S + 86_400
        return
    if isinstance(expected, int | float):
        expected = pytest.approx(expected)
    assert _of_program(read) == expected


DRAWS: dict[str, Callable[[], Any]] = {
    "random.random": lambda: random.random(),
    "random.randint": lambda: random.randint(0, 1 << 40),
    "random.choice": lambda: random.choice(range(1 << 40)),
    "random.sample": lambda: random.sample(range(1_000), 10),
    "random.uniform": lambda: random.uniform(0, 1),
    "random.randbytes": lambda: random.randbytes(16),
    "random.getrandbits": lambda: random.getrandbits(64),
    "random.gauss": lambda: random.gauss(0, 1),
    "random.Random": lambda: random.Random().random(),
    "random.SystemRandom": lambda: random.SystemRandom().random(),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "os.urandom": lambda: os.urandom(16),
    "secrets.token_hex": lambda: secrets.token_hex(),
    "secrets.token_bytes": lambda: secrets.token_bytes(),
    "secrets.randbelow": lambda: secrets.randbelow(1 << 60),
    "secrets.choice": lambda: secrets.choice(range(1 << 40)),
}


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_chance_in_a_program_is_a_function_of_the_seed(name: str) -> None:
    def draw() -> list[Any]:
        return [DRAWS[name]() for _ in range(3)]

    first = _of_program(draw)
    assert first == _of_program(draw)
    assert first[0] != first[1] != first[2]
    assert first != draw()


def test_a_program_may_seed_its_random_numbers() -> None:
    def draw() -> tuple[float, float]:
        random.seed(7)
        return random.random(), random.Random(7).random()

    expected = random.Random(7).random()
    assert _of_program(draw) == (expected, expected)


def test_datetimes_of_a_program_are_ordinary() -> None:
    def read() -> None:
        now = datetime.datetime.now()
        assert type(now) is imported_datetime or isinstance(now, imported_datetime)
        assert isinstance(now, datetime.datetime)
        assert isinstance(now, datetime.date)
        assert not isinstance("", datetime.datetime)
        assert issubclass(datetime.datetime, datetime.date)
        made = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
        assert made.isoformat() == "2026-01-02T00:00:00+00:00"
        assert datetime.datetime.fromisoformat("2026-01-02T00:00:00+00:00") == made
        assert datetime.datetime.fromtimestamp(START_S, datetime.UTC) < made
        assert datetime.datetime.strptime("2026", "%Y") == START
        assert datetime.datetime.max.year == 9999
        assert datetime.datetime.combine(made.date(), made.time()).year == 2026

    _of_program(read)


def _refused_calls() -> dict[str, Callable[[], Any]]:
    return {
        "time.sleep": lambda: time.sleep(1),
        "threading.Thread.start": lambda: threading.Thread(target=print).start(),
        "subprocess.Popen": lambda: subprocess.run(["true"]),
        "multiprocessing.Process.start": lambda: multiprocessing.Process(target=print).start(),
        "os.fork": lambda: os.fork(),
        "os.system": lambda: os.system("true"),
        "os.kill": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "os._exit": lambda: os._exit(1),
        "socket.socket": lambda: socket.socket(),
        "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 1),
        "asyncio.run": lambda: asyncio.run(None),  # type: ignore[arg-type]  # not called
        "asyncio.new_event_loop": lambda: asyncio.new_event_loop(),
        "trio.run": lambda: trio.run(trio.sleep, 1),
        "trio.to_thread.run_sync": lambda: trio.to_thread.run_sync(print),
        "trio.run_process": lambda: trio.run_process(["true"]),
        "trio.open_tcp_stream": lambda: trio.open_tcp_stream("localhost", 1),
    }


def test_each_refusal_has_a_test() -> None:
    assert _refused_calls().keys() == REFUSALS.keys()


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_a_refused_call_says_how_to_replace_it(name: str) -> None:
    # The new references are read within the run, as those of a program are.
    with pytest.raises(NotInWorldError) as caught:
        _of_program(_refused_calls()[name])
    sentence = REFUSALS[name][2]
    assert str(caught.value) == sentence
    assert ": " in sentence or ", " in sentence


def test_names_that_a_module_imported_are_guarded() -> None:
    with pytest.raises(NotInWorldError, match=r"asyncio\.sleep"):
        _of_program(lambda: imported_sleep(1))


def test_a_pool_of_threads_is_refused() -> None:
    with pytest.raises(NotInWorldError, match="no threads"):
        _of_program(lambda: ThreadPoolExecutor().submit(print))


def test_a_loop_that_waits_for_the_clock_is_refused() -> None:
    def wait() -> None:
        while time.monotonic() < 200:
            pass

    with pytest.raises(NotInWorldError, match="await"):
        _of_program(wait)


def test_a_signal_handler_is_called_at_a_stop() -> None:
    seen: list[int] = []

    async def program() -> None:
        stop = asyncio.Event()

        def on_signal(number: int, frame: object) -> None:
            seen.append(number)
            stop.set()

        assert signal.signal(signal.SIGTERM, on_signal) == signal.SIG_DFL
        await stop.wait()

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        machine.start()
        await trio.sleep(1)
        await machine.stop()

    before = signal.getsignal(signal.SIGTERM)
    in_network(scenario)
    assert seen == [15]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_scenario_and_the_nodes_are_not_guarded() -> None:
    async def scenario(world: SharedWorld) -> None:
        assert time.time() > START_S + 86_400
        time.sleep(0)
        socket.socket().close()
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        assert isinstance(datetime.datetime.now(), datetime.datetime)

    in_network(scenario)


def test_everything_is_restored() -> None:
    before = (time.sleep, time.time, imported_sleep, datetime.datetime, random.Random.seed)
    late = ModuleType("late")
    try:
        with guarded(Chance(0)):
            assert time.sleep is not before[0]
            sys.modules["late"] = late
            late.sleep = time.sleep  # type: ignore[attr-defined]  # as `from time import sleep`
        assert late.sleep is before[0]
    finally:
        sys.modules.pop("late", None)
    assert before == (time.sleep, time.time, imported_sleep, datetime.datetime, random.Random.seed)


def test_two_instances_have_different_chance() -> None:
    seen: list[float] = []

    async def program() -> None:
        seen.append(random.random())

    async def scenario(world: SharedWorld) -> None:
        for name in ("a", "b"):
            machine = instance(world, name, program)
            for _ in range(2):
                machine.start()
                await machine.has_ended.wait()

    in_network(scenario)
    assert len(set(seen)) == 4


class Circle:
    """Object that refers to itself, which only the garbage collector releases."""

    def __init__(self) -> None:
        self.itself = self


def test_objects_of_earlier_runs_are_released() -> None:
    circles = []
    for _ in range(3 * RUNS_PER_COLLECTION):
        with guarded(Chance(1)):
            circles.append(weakref.ref(Circle()))
    assert sum(circle() is not None for circle in circles) <= RUNS_PER_COLLECTION
