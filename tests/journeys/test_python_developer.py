"""A Python developer's first hour: the README as pasted, then the programs of the delivery page."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1_200)]

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
    open_terminal: Callable[..., Terminal],
    can_separate: bool,
    is_free: Callable[[int], bool],
) -> Terminal:
    """A terminal in a checkout, where the port of the documents is free."""
    if can_separate:
        return open_terminal(
            checkout, prefix=("unshare", "--net", "--uts"), set_up="ip link set lo up"
        )
    if not is_free(9092):
        pytest.skip("port 9092 is taken, and a network of its own needs root")
    return open_terminal(checkout)


def test_the_front_page_and_the_page_of_deliveries_work_as_pasted(
    terminal: Terminal, checkout: Path, page: Any
) -> None:
    readme, delivery = page("README.md"), page("docs/delivery.md")
    (checkout / "hello.py").write_text(readme.program("trio.run(main)"))
    # The tests' set-up is typed by test_set_up.py.
    commands = [one for one in readme.commands() if "pytest" not in one]
    end = commands.pop()
    assert end == "ottla down"
    try:
        printed = {one: terminal.step(readme, "", one) for one in commands}
        assert printed["ottla consume greetings -e"].splitlines()[0] == "hello"
        assert "b'hello from Python'" in printed["python hello.py"]
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
