"""`ottla share redrive` on a real broker: dead letters are moved back once, also if the command is
killed."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio

from ottla.cli.groups import share as command
from ottla.client import (
    ConfigKind,
    ConfigResource,
    ConsumerConfig,
    ConsumerRecord,
    Producer,
    ShareConsumerConfig,
    open_consumer,
    open_producer,
    open_share_consumer,
)
from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import LATEST
from tests.cli_verbs import run_verb

TIMEOUT_S = 120
LETTERS = "dlq.orders"
REJECTED = b"Offset rejected by client."
USED_UP = b"Offset delivery count exceeded the threshold."


class Desk:
    """A person who looks after the share group "g" and its dead letters."""

    def __init__(self, bootstrap: str, admin: Admin, producer: Producer, capsys: Any) -> None:
        self.bootstrap = bootstrap
        self.admin = admin
        self.producer = producer
        self._capsys = capsys

    async def redrive(self, *words: str) -> Any:
        """Run the command, and return its JSON."""
        self._capsys.readouterr()
        words = (*words, "--bootstrap-server", self.bootstrap, "--format", "json")
        assert await run_verb(command, self.admin, "redrive", "g", *words) == 0
        return json.loads(self._capsys.readouterr().out)

    async def write_letter(
        self, value: bytes | None, offset: int, *others: tuple[str, bytes], **changes: bytes
    ) -> None:
        """Write a dead letter as a broker does."""
        fields = {
            "topic": b"orders",
            "partition": b"0",
            "offset": b"%d" % offset,
            "group": b"g",
            "message": REJECTED,
            **changes,
        }
        headers = [*others, *((f"__dlq.errors.{name}", text) for name, text in fields.items())]
        await self.producer.send(LETTERS, value, headers=headers, partition=0)

    async def records(self, partition: int = 0, topic: str = "orders") -> list[ConsumerRecord]:
        """Return all committed records of a partition."""
        at = TopicPartition(topic, partition)
        config = ConsumerConfig(isolation_level="read_committed", auto_offset_reset="earliest")
        found: list[ConsumerRecord] = []
        async with open_consumer(self.bootstrap, config) as consumer:
            consumer.assign([at])
            end = (await consumer.end_offsets([at]))[at]
            while await consumer.position(at) < end:
                found += await consumer.poll(timeout_s=0.2)
        return found


def values(records: Sequence[ConsumerRecord]) -> list[bytes | None]:
    return [one.value for one in records]


@pytest.fixture
async def desk(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Desk]:
    settings = {
        "group.share.assignment.interval.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
            open_producer(cluster.bootstrap) as producer,
        ):
            await admin.create_topic("orders", partition_count=2)
            await admin.create_topic(
                LETTERS, configs={"errors.deadletterqueue.group.enable": "true"}
            )
            changes = {
                "share.auto.offset.reset": "earliest",
                "errors.deadletterqueue.topic.name": LETTERS,
            }
            await admin.alter_configs(ConfigResource(ConfigKind.GROUP, "g"), changes)
            yield Desk(cluster.bootstrap, admin, producer, capsys)


@pytest.mark.parametrize("is_copied", [True, False])
async def test_a_rejected_record_is_delivered_again_with_key_and_headers(
    desk: Desk, *, is_copied: bool
) -> None:
    copy = {"errors.deadletterqueue.copy.record.enable": str(is_copied).lower()}
    await desk.admin.alter_configs(ConfigResource(ConfigKind.GROUP, "g"), copy)
    for value in (b"good", b"bad", b"good"):
        headers = [("trace", value)]
        await (await desk.producer.send("orders", value, key=b"k", headers=headers, partition=1))
    config = ShareConsumerConfig(group_id="g", fetch_wait_ms_max=100)
    async with open_share_consumer(desk.bootstrap, config) as worker:
        worker.subscribe(["orders"])
        settled = 0
        while settled < 3:
            for record in await worker.poll():
                await (record.reject() if record.value == b"bad" else record.accept())
                settled += 1
        while not await desk.records(topic=LETTERS):
            await trio.sleep(0.05)
        shown = await desk.redrive("--dry-run")
        (row,) = shown["moved"]
        assert (row["topic"], row["partition"], row["records"], row["rejected"]) == (
            "orders",
            1,
            1,
            1,
        )
        assert len(await desk.records(1)) == 3, "a dry run writes nothing"
        assert await desk.redrive("--yes") == shown
        (again,) = await worker.poll()
        assert (again.value, again.key, again.partition) == (b"bad", b"k", 1)
        assert again.delivery_count == 1
        assert list(again.headers) == [
            ("trace", b"bad"),
            ("ottla.redrive.group", b"g"),
            ("ottla.redrive.count", b"1"),
        ]
        await again.accept()
    assert (await desk.redrive("--yes"))["moved"] == []


async def test_letters_left_by_a_filter_are_moved_by_a_later_run(desk: Desk) -> None:
    for offset in range(8):
        cause = USED_UP if offset % 2 else REJECTED
        await desk.write_letter(b"%d" % offset, offset, message=cause)
    await desk.producer.flush()
    first = await desk.redrive("--cause", "exhausted", "--limit", "3", "--yes")
    assert [row["records"] for row in first["moved"]] == [3]
    assert values(await desk.records()) == [b"1", b"3", b"5"]
    await desk.redrive("--cause", "exhausted", "--yes")
    assert values(await desk.records()) == [b"1", b"3", b"5", b"7"]
    await desk.redrive("--yes")
    assert sorted(values(await desk.records())) == [b"%d" % one for one in range(8)]  # type: ignore[type-var]  # no value is None
    assert (await desk.redrive("--yes"))["moved"] == []


async def test_letters_that_cannot_be_moved_are_left_with_the_reason(desk: Desk) -> None:
    await desk.write_letter(b"good", 0)
    await desk.write_letter(b"good", 0)
    await desk.write_letter(b"other", 1, group=b"h")
    await desk.write_letter(b"no topic", 2, topic=b"deleted")
    await desk.write_letter(b"no partition", 3, partition=b"9")
    await desk.write_letter(None, 4)
    await desk.write_letter(b"loop", 5, topic=LETTERS.encode())
    await desk.write_letter(b"often", 6, ("ottla.redrive.count", b"3"))
    await desk.write_letter(b"internal", 7, topic=b"__consumer_offsets")
    await desk.producer.flush()
    shown = await desk.redrive("--yes")
    assert [row["records"] for row in shown["moved"]] == [1]
    assert shown["left"] == {
        "repeated": 1,
        "other_group": 1,
        "no_topic": 2,
        "no_record": 1,
        "loop": 1,
        "redriven": 1,
        "no_letter": 1,
    }
    assert values(await desk.records()) == [b"good"]
    often = await desk.redrive("--redrives-max", "4", "--yes")
    assert [row["records"] for row in often["moved"]] == [1]


async def test_a_record_that_the_broker_refuses_stops_no_others(desk: Desk) -> None:
    orders = ConfigResource(ConfigKind.TOPIC, "orders")
    await desk.admin.alter_configs(orders, {"max.message.bytes": "2000"})
    for offset, value in enumerate((b"a", b"x" * 3_000, b"b")):
        await desk.write_letter(value, offset)
    await desk.producer.flush()
    words = ("redrive", "g", "--yes", "--bootstrap-server", desk.bootstrap)
    assert await run_verb(command, desk.admin, *words) == 1
    assert values(await desk.records()) == [b"a", b"b"]
    await desk.admin.alter_configs(orders, {"max.message.bytes": None})
    await desk.redrive("--yes")
    assert values(await desk.records())[:2] == [b"a", b"b"]
    assert len(await desk.records()) == 3


async def test_a_killed_command_neither_loses_nor_repeats_records(desk: Desk) -> None:
    count = 6_000
    for offset in range(count):
        await desk.write_letter(b"%d" % offset, offset)
    await desk.producer.flush()
    words = ("share", "redrive", "g", "--yes", "--bootstrap-server", desk.bootstrap)
    code = "import sys; from ottla.cli.main import main; sys.exit(main())"
    process = await trio.lowlevel.open_process([sys.executable, "-c", code, *words])
    at, level = TopicPartition("orders", 0), "read_committed"
    # Looks at the offset alone: reading the records would take longer than moving all of them.
    while not (await desk.admin.list_offsets({at: LATEST}, isolation_level=level))[at].offset:
        await trio.sleep(0.005)
    process.kill()
    await process.wait()
    moved = len(await desk.records())
    assert moved < count, "it was killed too late"
    await desk.redrive("--yes")
    found = values(await desk.records())
    assert len(found) == count
    assert set(found) == {b"%d" % offset for offset in range(count)}


async def test_a_group_without_a_dead_letter_topic_needs_its_name(desk: Desk) -> None:
    with pytest.raises(ConfigError, match="--dead-letter-topic"):
        await run_verb(command, desk.admin, "redrive", "other", "--dry-run")
    with pytest.raises(ConfigError, match="--limit"):
        await desk.redrive("--limit", "0")
