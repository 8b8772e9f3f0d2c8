"""A local cluster with an object store: topics are copied, their local segments deleted, and
consumers read all records."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.main import run
from ottla.client import ConsumerConfig, open_consumer, open_producer
from ottla.client.admin import Admin, open_admin
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import EARLIEST_LOCAL

pytestmark = pytest.mark.cluster
ORDERS = TopicPartition("orders", 0)
TIMEOUT_S = 120.0
QUICK = ("remote.log.manager.task.interval.ms=200", "log.retention.check.interval.ms=500")
SMALL = ("segment.bytes=1048576", "local.retention.bytes=1048576", "retention.ms=-1")
PAGE = Path(__file__).parents[3] / "docs" / "tiered-storage.md"


def command_of_page(start: str) -> list[str]:
    """Return the words of the page's first command that begins with `start`."""
    found = re.search(rf"^ *ottla ({start}.*)$", PAGE.read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1], comments=True)


def test_the_commands_of_the_page_make_a_topic_that_is_copied_and_read_back(
    tmp_path: Path, up: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("obstore")
    uri = f"file://{tmp_path / 'tier'}"
    settings = [word for text in QUICK for word in ("--set", text)]
    words = [word.replace("file:///srv/tier", uri) for word in command_of_page("up")]
    cluster = up("--no-console", "--port", "0", *words[1:], *settings)
    found = json.loads((cluster.directory / "cluster.json").read_text())
    host, _, port = found["bootstrap"].rpartition(":")
    where = ("--bootstrap", found["bootstrap"])
    configs = [word for text in SMALL for word in ("--config", text)]
    assert run([*command_of_page("topic create"), *configs, *where]) == 0

    async def limited() -> int:
        with trio.fail_after(TIMEOUT_S):
            return await check(((host, int(port)),))

    count = trio.run(limited)
    capsys.readouterr()
    assert run([*command_of_page("tier status"), "--format", "json", *where]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["partition"] == "orders:0"
    assert 0 < row["only_copied"] < row["copied_offset"] < row["end_offset"] == count
    assert run(["status", *where]) == 0
    assert re.search(r"^tier +\d.* copied", capsys.readouterr().out, re.MULTILINE)
    assert run(["tier", "verify", "--full", "--uri", uri]) == 0


async def check(bootstrap: tuple[tuple[str, int], ...]) -> int:
    """Produce until local segments were deleted, and read everything. Returns the number of
    records."""
    values: list[bytes] = []
    async with open_admin(bootstrap) as admin, open_producer(bootstrap) as producer:
        while not await local_start(admin):
            values.append(b"%06d" % len(values) + bytes(50_000))
            await (await producer.send("orders", values[-1], partition=0))
    settings = ConsumerConfig(auto_offset_reset="earliest")
    async with open_consumer(bootstrap, settings) as consumer:
        consumer.assign([ORDERS])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [one.value for one in await consumer.poll()]
    assert found == values
    return len(values)


async def local_start(admin: Admin) -> int:
    """Return the first offset on the broker's disk."""
    return int((await admin.list_offsets({ORDERS: EARLIEST_LOCAL}))[ORDERS].offset)
