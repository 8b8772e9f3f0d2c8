"""`ottla backup`: records and offsets come back, without aborted records and gaps."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from ottla.cli.backup import backup as command
from ottla.cli.backup.backup_files import positions_of, read_manifest, records_path, verify
from ottla.cli.main import run
from ottla.client import open_consumer, open_producer
from ottla.client.admin import Admin, open_admin
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.wire.records import Record
from tests.cli_verbs import run_verb

TIMEOUT_S = 60
ORDERS = TopicPartition("orders", 0)


@asynccontextmanager
async def cluster_with_orders() -> AsyncIterator[tuple[Admin, str]]:
    """A cluster with a topic of three committed records among aborted ones and markers."""
    async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
        configs = {"retention.ms": "864000000"}
        await admin.create_topic("orders", partition_count=2, configs=configs)
        settings = ProducerConfig(transactional_id="writer")
        async with open_producer(cluster.bootstrap, settings) as producer:
            for value in (b"one", b"lost", b"two", b"three"):
                try:
                    async with producer.transaction():
                        delivery = await producer.send(
                            "orders",
                            value,
                            key=b"k",
                            partition=0,
                            headers=[("h", b"1")],
                            timestamp_ms=1_700_000_000_000,
                        )
                        await delivery  # the aborted record, too, gets an offset
                        if value == b"lost":
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
        # The offset of "two": three records with their markers are before it.
        await admin.alter_group_offsets("readers", {ORDERS: 4})
        yield admin, cluster.bootstrap


async def test_a_backup_is_restored_with_translated_offsets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "backup"
    with trio.fail_after(TIMEOUT_S):
        async with cluster_with_orders() as (admin, _):
            assert await run_verb(command, admin, "create", str(directory)) == 0
        manifest = read_manifest(directory)
        assert [one.name for one in manifest.topics] == ["orders"]
        assert manifest.topics[0].counts == [3, 0]
        assert manifest.groups == {"readers": {"orders": {"0": 4}}}
        assert await trio.to_thread.run_sync(run, ["backup", "verify", str(directory)]) == 0
        assert "sound: backup of" in capsys.readouterr().err

        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            where = ("--bootstrap", cluster.bootstrap)
            assert await run_verb(command, admin, "restore", str(directory), *where) == 0
            offsets = await admin.group_offsets("readers")
            assert {at: one.offset for at, one in offsets.items()} == {ORDERS: 1}
            assert (await admin.topic_configs("orders"))["retention.ms"].value == "864000000"
            settings = ConsumerConfig(auto_offset_reset="earliest")
            async with open_consumer(cluster.bootstrap, settings) as consumer:
                consumer.assign([ORDERS])
                found: list[ConsumerRecord] = []
                while len(found) < 3:
                    found += await consumer.poll()
            assert [one.value for one in found] == [b"one", b"two", b"three"]
            assert [one.offset for one in found] == [0, 1, 2]
            assert {(one.key, one.timestamp_ms) for one in found} == {(b"k", 1_700_000_000_000)}
            assert all(list(one.headers) == [("h", b"1")] for one in found)

            with pytest.raises(RefusedError, match="'orders' exists") as refused:
                await run_verb(command, admin, "restore", str(directory), *where)
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_transaction_that_stays_open_ends_the_backup(tmp_path: Path) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with cluster_with_orders() as (admin, bootstrap):
            settings = ProducerConfig(transactional_id="slow")
            async with open_producer(bootstrap, settings) as producer, producer.transaction():
                await (await producer.send("orders", b"open", partition=1))
                words = ("create", str(tmp_path / "b"), "--timeout", "0.2")
                with pytest.raises(RefusedError, match="transactions are open in 1 partition"):
                    await run_verb(command, admin, *words)
            with pytest.raises(ConfigError, match="no backup"):
                read_manifest(tmp_path / "b")


@pytest.mark.parametrize("damage", ["bit", "short", "missing", "manifest", "format"])
async def test_a_damaged_backup_is_not_restored(damage: str, tmp_path: Path) -> None:
    directory = tmp_path / "backup"
    with trio.fail_after(TIMEOUT_S):
        async with cluster_with_orders() as (admin, _):
            await run_verb(command, admin, "create", str(directory))
            with pytest.raises(ConfigError, match="is not empty"):
                await run_verb(command, admin, "create", str(directory))
    path, manifest = records_path(directory, "orders", 0), directory / "manifest.json"
    data = bytearray(path.read_bytes())
    match damage:
        case "bit":
            data[-1] ^= 1
            path.write_bytes(data)
        case "short":
            path.write_bytes(b"")
        case "missing":
            path.unlink()
        case "manifest":
            manifest.write_text(manifest.read_text().replace('"counts"', '"count"'))
        case "format":
            content = json.loads(manifest.read_text())
            manifest.write_text(json.dumps({**content, "format": 2}))
    with pytest.raises((ConfigError, CorruptDataError)):
        verify(directory, read_manifest(directory))


@pytest.mark.parametrize(
    ("offsets", "positions"),
    [
        ([0, 5, 6, 7, 9, 10, 99], {0: 0, 5: 0, 6: 1, 7: 1, 9: 2, 10: 3, 99: 3}),
        ([], {}),
    ],
)
def test_an_offset_becomes_the_number_of_records_before_it(
    offsets: list[int], positions: dict[int, int]
) -> None:
    records = [Record(Offset(one), 0, None, None, ()) for one in (5, 7, 9)]
    assert positions_of(offsets, [records[:2], records[2:]]) == positions
