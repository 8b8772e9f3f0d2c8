"""`ottla tier restore`: the logs of a new cluster are those of the bucket, and a cluster that may
still be in use is not restored."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.broker.coordinators.placement import partition_of
from ottla.broker.groups.group_records import read_record
from ottla.broker.groups.offsets.uploaded_offsets import StoredOffset
from ottla.cli.cluster.cluster_file import make_plan
from ottla.cli.cluster.cluster_format import format_plan
from ottla.cli.main import run
from ottla.cli.tier.restore_plan import first_records, plan_restore
from ottla.cli.tier.restored_files_driver import write_log
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.records import Record
from ottla.model.errors import ConfigError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.node.identity import read_first_records
from ottla.storage.directories.checkpoint_file import (
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    parse_checkpoint,
)
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.epoch_cache import EpochEntry, decode_epochs
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.bucket_driver import read_partition
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.object_names import heartbeat_key
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_records import decode_record
from ottla.storage.tier.remote_segment import RemoteSegmentState
from ottla.storage.tier.stored_partition import Piece, StoredPartition, stored_partition
from ottla.wire.batch import batches
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.records import scan
from tests.cli.tier.conftest import files, offsets_object, put_offsets
from tests.storage.log.workbench import NOW_MS, read_values
from tests.storage.tier.example_bucket import CLUSTER_ID, ExampleTopic, fill_bucket, values_of
from tests.storage.tier.segments import MANIFEST

RESTORE = ("tier", "restore", "--port", "0")


async def opened(disk: RealDisk, directory: Path, *, end: int) -> Log:
    """Open a restored log as a broker does: it was never closed, and is flushed up to its end."""
    return await open_log(
        disk,
        str(directory),
        config=LogConfig(),
        topic_id=None,
        is_clean=False,
        recovery_point=Offset(end),
        log_start_offset=Offset(0),
        now_ms=NOW_MS,
    )


def restore(bucket: Path, into: Path, *options: str) -> int:
    return run([*RESTORE, "--uri", f"file://{bucket}", "--into", str(into), *options])


def test_a_restored_cluster_has_the_uploaded_logs_and_topics(bucket: Path, tmp_path: Path) -> None:
    into = tmp_path / "new"
    words = ("--old-cluster-is-gone", "--yes", "--brokers", "2", "--topic", "orders")
    assert restore(bucket, into, *words) == 0
    assert run(["log", "verify", str(into / "broker-2")]) == 0
    assert (into / "broker-1" / "orders-1" / "partition.metadata").exists()

    async def check() -> None:
        async with RealDisk() as disk:
            check_records(await read_first_records(disk, str(into / "controller-101")))
            for partition in (0, 1):
                log = await opened(disk, into / "broker-1" / f"orders-{partition}", end=74)
                values = values_of(partition, 40)[:74]
                assert read_values(log) == list(enumerate(values))
                assert log.state.epochs.entries[:3] == (
                    EpochEntry(Epoch(3), Offset(0)),
                    EpochEntry(Epoch(4), Offset(24)),
                    EpochEntry(Epoch(5), Offset(48)),
                )
                log.abandon()

    trio.run(check)


def check_records(records: Sequence[Record]) -> None:
    kinds = [str(one.WhichOneof("record")) for one in records]
    assert kinds == ["topic", "partition", "partition", "config"]
    topic, first, second, setting = records
    assert UUID(bytes=topic.topic.topic_id) == ExampleTopic().topic_id
    assert list(first.partition.replicas) == list(first.partition.isr) == [1, 2]
    assert list(second.partition.replicas) == [2, 1]
    assert first.partition.leader_epoch == 6
    assert UUID(bytes=first.partition.directories[0]) == UNASSIGNED
    # The new cluster has no tiered storage.
    assert (setting.config.key, setting.config.value) == ("retention.ms", "-1")


async def test_a_part_of_a_segment_is_restored_without_its_other_batches(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    topic = ExampleTopic(partition_count=1)
    manifests = await fill_bucket(store, tmp_path / "logs", (topic,))
    whole = await read_partition(store, manifests)
    first, second, *rest = whole.pieces
    cut = Offset(first.start_offset + 6)
    log = StoredPartition(
        (
            Piece(first.manifest, first.start_offset, cut),
            Piece(first.manifest, cut, first.end_offset),
            second,
            *rest,
        ),
        whole.epochs,
        (),
    )
    directory = tmp_path / "orders-0"
    async with RealDisk() as disk:
        await write_log(disk, store, str(directory), topic.topic_id, log)
        found = await opened(disk, directory, end=log.end_offset)
        values = values_of(0, topic.batch_count)[: log.end_offset]
        assert [one.base_offset for one in found.segments][:3] == [0, 6, first.end_offset]
        pairs = await trio.to_thread.run_sync(read_values, found)
        assert pairs == list(enumerate(values))
        found.abandon()


def test_nothing_is_written_without_a_confirmation(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "new"
    assert restore(bucket, into, "--old-cluster-is-gone", "--dry-run", "--format", "json") == 0
    audit, orders = json.loads(capsys.readouterr().out)
    assert (audit["topic"], orders["partitions"], orders["records"]) == ("audit", 2, 148)
    assert restore(bucket, into, "--old-cluster-is-gone") == 2
    assert not into.exists()


def test_a_cluster_that_may_be_in_use_is_not_restored(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert restore(bucket, tmp_path / "new", "--yes") == 1
    assert "may still be in use" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_directory_with_content_is_refused(bucket: Path) -> None:
    assert restore(bucket, bucket, "--yes", "--old-cluster-is-gone") == 1


def test_an_interrupted_restore_cannot_be_started(bucket: Path, tmp_path: Path) -> None:
    log = [one for one in files(bucket, ".log") if "audit" in str(one)][-1]
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    words = ("--yes", "--old-cluster-is-gone", "--topic", "audit")
    assert restore(bucket, tmp_path / "new", *words) == 2
    assert not (tmp_path / "new" / "cluster.json").exists()


def test_a_log_with_a_gap_is_restored_only_on_request(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [one for one in files(bucket, ".manifest.json") if "orders" in str(one)]
    own[1].unlink()
    assert restore(bucket, tmp_path / "new", "--yes", "--old-cluster-is-gone") == 1
    assert "orders:0 lacks its offsets 18 to" in capsys.readouterr().err
    words = ("--dry-run", "--old-cluster-is-gone", "--allow-missing", "--format", "json")
    assert restore(bucket, tmp_path / "new", *words) == 0
    _, orders = json.loads(capsys.readouterr().out)
    assert orders["segments"] == 8


def test_invalid_names_and_settings_of_a_bucket_are_left_out() -> None:
    internal = replace(
        MANIFEST, topic="__consumer_offsets", topic_id=UUID(int=1), segment_id=UUID(int=1)
    )
    strange = replace(
        MANIFEST,
        topic_settings={"retention.ms": "soon", "flush.ms": "7", "shell": "rm"},
        partition=0,
    )
    logs = {
        (one.topic_id, one.partition): stored_partition([one], one.leader_epochs)
        for one in (internal, strange)
    }
    plan = plan_restore([internal, strange], logs)
    (topic,) = plan.topics
    assert (topic.name, topic.settings) == ("orders", {"flush.ms": "7"})
    assert len(plan.notes) == 4  # the name, two settings, and the partitions without records
    placements = plan.placements([NodeId(1)], 1)
    records = first_records(plan, placements)
    assert records[1].partition.leader_epoch == 6
    assert records[2].partition.leader_epoch == 0
    with pytest.raises(ConfigError, match="too many"):
        plan_restore([replace(strange, partition_count=1 << 30)], {})
    with pytest.raises(ConfigError, match="is not in the bucket"):
        plan_restore([strange], logs, names=["payments"])


def test_a_restore_in_place_leaves_the_records_in_the_bucket(bucket: Path, tmp_path: Path) -> None:
    into = tmp_path / "new"
    assert restore(bucket, into, "--in-place", "--yes") == 1  # --old-cluster-is-gone is needed
    words = ("--old-cluster-is-gone", "--yes", "--in-place", "--topic", "orders")
    assert restore(bucket, into, *words) == 0
    plan = json.loads((into / "cluster.json").read_text())
    assert (plan["cluster_id"], plan["tier"]) == (CLUSTER_ID, f"file://{bucket}")
    broker = into / "broker-1"
    assert run(["log", "verify", str(broker)]) == 0
    assert not any(one.stat().st_size for one in broker.glob("orders-*/*.log"))
    starts = parse_checkpoint((broker / LOG_START_FILE).read_bytes())
    ends = parse_checkpoint((broker / RECOVERY_POINT_FILE).read_bytes())
    at = TopicPartition("orders", 0)
    assert (starts[at], ends[at]) == (0, 74)
    epochs = decode_epochs((broker / "orders-0" / "leader-epoch-checkpoint").read_bytes())
    assert epochs.entries[:2] == (EpochEntry(Epoch(3), Offset(0)), EpochEntry(Epoch(4), Offset(24)))

    async def check() -> None:
        async with RealDisk() as disk:
            records = await read_first_records(disk, str(into / "controller-101"))
        names = [one.topic.name for one in records if one.HasField("topic")]
        assert names == ["orders", "__remote_log_metadata"]
        tiered = [one.config for one in records if one.HasField("config")]
        assert ("remote.storage.enable", "true") in {(one.key, one.value) for one in tiered}

    trio.run(check)
    assert offsets_in_metadata(broker) == {(0, 0, 73), (1, 0, 73)}


def offsets_in_metadata(broker: Path) -> set[tuple[int, int, int]]:
    """Return partition, first and last offset of what the metadata topic lists as copied."""
    metadata: dict[int, RemoteMetadata] = {}
    for log in sorted(broker.glob("__remote_log_metadata-*/*.log")):
        data = log.read_bytes()
        for at, header in batches(data):
            for row in scan(data, at, header):
                record = decode_record(row.key, row.value)
                assert record is not None
                own = metadata.setdefault(record.id.partition, RemoteMetadata())
                assert own.apply(record) is None
    found = set()
    for partition, one in metadata.items():
        segments = list(one.all_segments())
        assert {row.state for row in segments} == {RemoteSegmentState.COPY_FINISHED}
        first = min(row.start_offset for row in segments)
        found.add((partition, int(first), int(max(row.end_offset for row in segments))))
    return found


def test_formatted_nodes_are_restored_with_the_records_of_every_controller(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_plan(tmp_path / "data", host="localhost", port=0, controllers=1, brokers=2)
    plan.cluster_id = CLUSTER_ID
    plan.write_properties()
    nodes = [f"{tmp_path}/data/{name}.properties" for name in ("broker-1", "broker-2")]
    controller = f"{tmp_path}/data/controller-101.properties"
    words = ["tier", "restore", "--uri", f"file://{bucket}", "--old-cluster-is-gone", "--yes"]
    for node in (*nodes, controller):
        words += ["--node", node]
    words += ["--broker-ids", "1,2", "--in-place"]
    assert run(words) == 1
    assert "is not formatted" in capsys.readouterr().err
    for node in nodes:
        assert run(["storage", "format", "--config", node, "--cluster-id", CLUSTER_ID]) == 0
    format_plan(plan)
    assert run(words[:-3]) == 1
    assert "belong together" in capsys.readouterr().err
    assert run(words) == 0
    for name in ("broker-1", "broker-2"):
        assert run(["log", "verify", str(tmp_path / "data" / name)]) == 0
        assert (tmp_path / "data" / name / "orders-0" / "partition.metadata").exists()

    async def check() -> None:
        async with RealDisk() as disk:
            records = await read_first_records(disk, str(tmp_path / "data" / "controller-101"))
        names = [one.topic.name for one in records if one.HasField("topic")]
        assert names == ["audit", "orders", "__remote_log_metadata"]

    trio.run(check)
    assert run(words) == 1
    assert "has logs already" in capsys.readouterr().err


COMMITTED = StoredOffset("billing", "orders", 0, ExampleTopic().topic_id, 30, 4, "note", 5)
LATE = COMMITTED._replace(group="audit", partition=1, offset=1_000)
FOREIGN = COMMITTED._replace(topic_id=UUID(int=99))


@pytest.mark.parametrize("options", [(), ("--in-place",)], ids=["copied", "in place"])
def test_groups_continue_at_their_offsets(
    options: tuple[str, ...],
    bucket: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    put_offsets(bucket, *offsets_object(COMMITTED._replace(offset=20), epoch=3))
    put_offsets(bucket, *offsets_object(COMMITTED, LATE, FOREIGN, epoch=4))
    words = ("--old-cluster-is-gone", "--topic", "orders", *options)
    assert restore(bucket, tmp_path / "new", *words, "--dry-run") == 0
    shown = capsys.readouterr()
    assert "billing" in shown.out
    assert "offsets of 2 groups, of " in shown.err
    assert "1 offset of groups beyond the uploaded records" in shown.err
    assert "1 offset of groups in other topics" in shown.err
    assert restore(bucket, tmp_path / "new", *words, "--yes") == 0
    broker = tmp_path / "new" / "broker-1"
    assert run(["log", "verify", str(broker)]) == 0
    found = {}
    for log in sorted(broker.glob("__consumer_offsets-*/*.log")):
        data = log.read_bytes()
        for at, header in batches(data):
            assert header.partition_leader_epoch == (4 if "offsets-3/" in str(log) else 0)
            for row in scan(data, at, header):
                key, value = read_record(row.key, row.value) or (None, None)
                assert isinstance(key, OffsetCommitKey)
                assert isinstance(value, OffsetCommitValue)
                index = int(log.parent.name.rpartition("-")[2])
                assert index == partition_of(key.group, 50)
                found[key.group] = (key.partition, value.offset, value.metadata, value.topic_id)
                assert value.commit_timestamp > 5
    topic_id = ExampleTopic().topic_id
    assert found == {"billing": (0, 30, "note", topic_id), "audit": (1, 74, "note", topic_id)}


def test_damaged_offsets_are_refused(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, data = offsets_object(COMMITTED)
    put_offsets(bucket, key, data[:-1])
    words = ("--old-cluster-is-gone", "--yes")
    assert restore(bucket, tmp_path / "new", *words) == 1
    assert "add --without-group-offsets to restore" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert restore(bucket, tmp_path / "new", *words, "--without-group-offsets") == 0
    assert not list((tmp_path / "new" / "broker-1").glob("__consumer_offsets*"))


def test_a_fresh_heartbeat_forbids_a_restore_and_an_old_one_permits_it(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_offsets(bucket, heartbeat_key(CLUSTER_ID), b"{}", age_s=300)
    assert restore(bucket, tmp_path / "new", "--yes") == 1
    error = capsys.readouterr().err
    assert "was alive at" in error
    assert "add --old-cluster-is-gone" in error
    words = ("--old-cluster-is-gone", "--dry-run")
    assert restore(bucket, tmp_path / "new", *words) == 0
    capsys.readouterr()
    assert restore(bucket, tmp_path / "new", *words, "--in-place") == 1
    assert "repeat the command 10 min later" in capsys.readouterr().err
    # The segments were uploaded a moment ago, but the cluster has stopped since.
    put_offsets(bucket, heartbeat_key(CLUSTER_ID), b"{}", age_s=700)
    assert restore(bucket, tmp_path / "new", "--dry-run") == 0
    assert restore(bucket, tmp_path / "new", *words, "--in-place") == 0
