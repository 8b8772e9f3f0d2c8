"""The life of a process, seen from its parent."""

import gc
import resource
import signal
import subprocess
import sys
from threading import Event

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.node.process_driver import (
    DESCRIPTORS_AT_START,
    GROWTH_LOOK_S,
    GROWTH_MIN,
    freeze_as_it_grows,
    freeze_long_lived_objects,
    open_stop_signal,
    prepare_process,
)

STUBBORN = """
import trio
from ottla.node.process_driver import open_stop_signal

async def main():
    async with open_stop_signal() as is_stopping:
        print("ready", flush=True)
        await is_stopping.wait()
        print("stopping", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""

PARENT = """
import subprocess, sys
child = "from ottla.node.process_driver import prepare_process; import time; "
child += "prepare_process(dies_with_parent=True); print('ready', flush=True); time.sleep(600)"
print(subprocess.Popen([sys.executable, "-c", child]).pid, flush=True)
import time; time.sleep(600)
"""


async def test_the_first_signal_asks_and_leaves_the_process_running() -> None:
    async with open_stop_signal() as is_stopping:
        signal.raise_signal(signal.SIGTERM)
        with trio.fail_after(60):
            await is_stopping.wait()


def test_a_second_signal_ends_the_process_at_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.readline() == "stopping\n"
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM


def test_a_child_dies_with_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child_id = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        # The pipe is held open by the child too: it ends when the child has.
        assert parent.stdout.read() == ""
        assert child_id > 0


def test_the_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        prepare_process()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_process_is_named_and_has_room_for_many_descriptors_from_the_start() -> None:
    program = "from ottla.node.process_driver import prepare_process; "
    program += "prepare_process(name='broker-1'); print(open('/proc/self/status').read())"
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert output.startswith("Name:\tbroker-1\n")
    (size,) = [line.split()[1] for line in output.splitlines() if line.startswith("FDSize:")]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert int(size) >= min(hard, DESCRIPTORS_AT_START)


def test_frozen_objects_are_out_of_the_collectors_sight() -> None:
    try:
        freeze_long_lived_objects()
        assert gc.get_freeze_count() > 0
    finally:
        gc.freeze()  # as tests/conftest.py has frozen the modules and tests


async def test_what_comes_later_is_frozen_too_once_it_is_much(autojump_clock: MockClock) -> None:
    there = 10
    trimmed = Event()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(freeze_as_it_grows, lambda: there, trimmed.set)
            await wait_all_tasks_blocked()
            await trio.sleep(GROWTH_LOOK_S / 2)
            for grown, is_frozen in ((GROWTH_MIN - 1, False), (1, True), (1, False)):
                there += grown
                gc.unfreeze()
                await trio.sleep(GROWTH_LOOK_S)
                assert (gc.get_freeze_count() > 0) == is_frozen
                await trio.sleep(GROWTH_LOOK_S)
                # Another thread sets the event, in real time.
                assert trimmed.wait(10.0 if is_frozen else 0.0) == is_frozen
                trimmed.clear()
            nursery.cancel_scope.cancel()
    finally:
        gc.freeze()  # as tests/conftest.py has frozen the modules and tests
