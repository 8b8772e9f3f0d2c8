"""A Python developer's first hour: the README as pasted, then the programs of the delivery page.

The machine is bare: it has an empty home, and no variable of the environment but PATH and HOME, and
two of pip's, which save some minute of CPU: it compiles no module, and finds the wheels that it has
built from sources before.  `.ci/run` types the README's second set-up command on such a machine: it
installs what all other tests need, and runs their short form.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_200)]

FIRST_SCREEN_LINES = 25
ROOT = Path(__file__).parents[2]
SET_UP = "python3 -m venv .venv && "
START = SET_UP + ".venv/bin/pip install -e . && .venv/bin/ottla up --detach"
TEST = SET_UP + ".venv/bin/pip install -e '.[test]' && .venv/bin/pytest"

Terminal = Any

PROGRAMS = """
from collections.abc import Awaitable, Callable

import trio

from ottla.client import ConsumerRecord, open_admin

Process = Callable[[ConsumerRecord], Awaitable[None]]
Transform = Callable[[ConsumerRecord], bytes]
BOOTSTRAP = "localhost:9092"
COUNT = 6


class DoneError(Exception):
    pass


class Database:
    def __init__(self) -> None:
        self.results, self.next_offset = [], 0

    def save(self, value: bytes, *, next_offset: int) -> None:
        self.results.append(int(value))
        self.next_offset = next_offset
        if len(self.results) == COUNT:
            raise DoneError


def is_done(error: BaseException) -> bool:
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return isinstance(error, DoneError)
"""
"""Names that the delivery page's programs leave to their reader."""

SENDER = """
async def main() -> None:
    async with open_admin(BOOTSTRAP) as admin:
        for topic in ("numbers", "squares"):
            if topic not in await admin.list_topics():
                await admin.create_topic(topic, partition_count=1)
    values = [b"%d" % number for number in range(COUNT)]
    assert not await {name}(BOOTSTRAP, values)


trio.run(main)
"""

READER = """
async def main() -> None:
    found = []

    async def process(record: ConsumerRecord) -> None:
        found.append(int(record.value))
        if len(found) == COUNT:
            raise DoneError

    def transform(record: ConsumerRecord) -> bytes:
        found.append(int(record.value))
        return b"%d" % int(record.value) ** 2

    given = {{"process": process, "database": Database(), "transform": transform}}
    with trio.move_on_after(60) as limit:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon({name}, BOOTSTRAP, given["{given}"])
                while len(found) < COUNT:
                    await trio.sleep(0.05)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as error:
            assert is_done(error), error
    assert not limit.cancelled_caught
    values = found or given["database"].results
    assert values == list(range(COUNT)), values


trio.run(main)
"""

READERS = {
    "read_at_most_once": "process",
    "read_at_least_once": "process",
    "read_and_commit_behind": "process",
    "read_once": "database",
    "transform_once": "transform",
}
GROUP_OF = {"transform_once": "squarers"}


@pytest.fixture
def terminal(
    checkout: Path,
    tmp_path: Path,
    open_terminal: Callable[..., Terminal],
    can_separate: bool,
    is_free: Callable[[int], bool],
) -> Terminal:
    """A terminal in a checkout on a bare machine, where the port of the documents is free."""
    home = tmp_path / "home"
    home.mkdir()
    alone = ("env", "-i", f"PATH={os.environ['PATH']}", f"HOME={home}", *variables_of_pip())
    if can_separate:
        network = ("unshare", "--net", "--uts")
        return open_terminal(checkout, prefix=(*network, *alone), set_up="ip link set lo up")
    if not is_free(9092):
        pytest.skip("port 9092 is taken, and a network of its own needs root")
    return open_terminal(checkout, prefix=alone)


def variables_of_pip() -> list[str]:
    """Return the variables of pip that the bare machine has."""
    command = [sys.executable, "-m", "pip", "cache", "dir"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    places = [f"PIP_CACHE_DIR={found.stdout.strip()}"] if found.returncode == 0 else []
    # pip reads the value of an option that begins with `no-` as that of the option without it.
    return ["PIP_NO_COMPILE=0", *places]


def test_the_first_screen_has_two_set_up_commands(page: Any) -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if SET_UP in line] == [START, TEST]
    assert {START, TEST} <= set(lines[:FIRST_SCREEN_LINES])
    assert page("README.md").commands()[:2] == [START, TEST]


def test_the_front_page_and_the_page_of_deliveries_work_as_pasted(
    terminal: Terminal, checkout: Path, page: Any
) -> None:
    readme, delivery = page("README.md"), page("docs/delivery.md")
    (checkout / "hello.py").write_text(readme.program("trio.run(main)"))
    commands = [one for one in readme.commands() if one != TEST]
    end = commands.pop()
    assert end == "ottla down"
    try:
        printed = {one: terminal.step(readme, "", one) for one in commands}
        assert "Any Kafka client works" in printed[START]
        assert "Compiled, a small request takes half the CPU or less" in printed[START]
        terminal.type("! ls .venv/lib/python*/site-packages/trio/_tests/__pycache__ 2> /dev/null")
        assert printed["ottla consume greetings -e"].splitlines()[0] == "hello"
        assert "b'hello from Python'" in printed["python hello.py"]
        compact_without_numpy(terminal)
        # Git has nothing new to say but what the reader wrote.
        assert "ottla-data/" in (checkout / ".gitignore").read_text().split()
        for name in ("send_once", "send_at_most_once", *READERS):
            program = PROGRAMS + delivery.program(f"async def {name}(")
            driver = SENDER if name.startswith("send") else READER
            program += driver.format(name=name, given=READERS.get(name))
            (checkout / f"{name}.py").write_text(program)
            if name in READERS and name != "read_once":
                forget(terminal, GROUP_OF.get(name, "readers"))
            if name == "send_at_most_once":
                terminal.type("ottla topic delete numbers --yes")
            terminal.step(delivery, "", f"python {name}.py")
    finally:
        terminal.step(readme, "", end)
    assert os.path.isdir(checkout / "ottla-data")


def forget(terminal: Terminal, group: str) -> None:
    """Delete a group where there is one, so that its next member begins at the beginning."""
    terminal.type(f"ottla group delete {group} --yes || ottla group list")


def compact_without_numpy(terminal: Terminal) -> None:
    """Compact a topic on a machine without numpy, which all other tests have."""
    terminal.type("! python -c 'import numpy' 2> /dev/null")
    terminal.type("ottla topic create states --partitions 1 --config cleanup.policy=compact")
    terminal.type("for number in $(seq 100); do echo key:$number; done | ottla produce states -K :")
    terminal.type("ottla cleaner run states")
    assert terminal.type("ottla consume states -e 2> /dev/null").splitlines() == ["100"]
