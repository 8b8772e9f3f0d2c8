"""A node's log file keeps its latest lines within a size limit."""

import os
from pathlib import Path

import trio

from ottla.jepsen.processes.node_log import NodeLog


async def say(log: NodeLog, *words: bytes) -> None:
    """Have a node say something, write by write, and end."""
    reader, writer = os.pipe()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.copy, reader)
        for word in words:
            os.write(writer, word)
            await trio.testing.wait_all_tasks_blocked(0.01)
        os.close(writer)


async def test_what_is_said_in_several_lives_stands_in_one_file(tmp_path: Path) -> None:
    log = NodeLog(tmp_path / "b1.log")
    await say(log, b"first\n")
    await say(log, b"second\n")
    assert log.path.read_bytes() == b"first\nsecond\n"
    assert log.tail(4) == "ond\n"
    assert log.lost_bytes == 0


async def test_a_node_that_talks_on_fills_no_disk(tmp_path: Path) -> None:
    log = NodeLog(tmp_path / "b1.log", part_bytes_max=100)
    await say(log, *[b"%09d\n" % number for number in range(100)])
    kept = b"".join(part.read_bytes() for part in log.parts)
    assert len(kept) <= 220
    assert kept.endswith(b"000000099\n")
    assert log.lost_bytes == 1_000 - len(kept)
    assert log.tail(10) == "000000099\n"
