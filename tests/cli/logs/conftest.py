"""A log directory as a broker leaves it: every kind of file, made by the log itself."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
import trio

from ottla.model.ids import Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    format_checkpoint,
)
from ottla.storage.directories.checkpoint_topics import CHECKPOINT_TOPICS_FILE, format_topic_ids
from ottla.storage.directories.clean_shutdown import CLEAN_SHUTDOWN_FILE, format_clean_shutdown
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import open_log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.compression import Codec
from tests.storage.log.workbench import NOW_MS, append

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=77)
PRODUCER = ProducerId(5)
CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200, segment_index_bytes=240)


async def _fill(directory: Path, *, is_closed: bool) -> tuple[Offset, Offset]:
    """Write a partition's log; return its recovery point and its end."""
    async with RealDisk() as disk:
        log = await open_log(
            disk,
            str(directory),
            config=CONFIG,
            topic_id=TOPIC_ID,
            is_clean=False,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=NOW_MS,
        )
        for number in range(30):
            records = [(NOW_MS + number, b"key", b"%d" % number * 20), (NOW_MS, None, b"x" * 30)]
            batch = build_batch(records, codec=Codec(number % 5))
            append(log, batch, leader_epoch=1 + number // 12)
        for sequence in range(2):
            batch = build_batch(
                [(NOW_MS + 40, None, b"of a transaction")],
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            append(log, batch, leader_epoch=4)
        marker = build_end_transaction_marker(
            ControlType.ABORT,
            timestamp_ms=NOW_MS + 41,
            producer_id=PRODUCER,
            producer_epoch=0,
            coordinator_epoch=Epoch(0),
        )
        append(log, marker, leader_epoch=4, origin=AppendOrigin.COORDINATOR)
        append(log, build_batch([(NOW_MS + 42, None, b"last" * 60)]), leader_epoch=4)
        assert log.segment_count > 2
        end_offset = log.end_offset
        if is_closed:
            await log.close()
            return end_offset, end_offset
        await log.flush(Offset(8))
        recovery_point = log.recovery_checkpoint
        log.abandon()
        return recovery_point, end_offset


@pytest.fixture
def log_directory(tmp_path: Path) -> Callable[..., Path]:
    """Return a maker of log directories, stopped cleanly or killed."""

    def make(name: str = "data", *, is_closed: bool = True) -> Path:
        directory = tmp_path / name
        partition = directory / str(PARTITION)
        partition.mkdir(parents=True)
        recovery_point, end_offset = trio.run(lambda: _fill(partition, is_closed=is_closed))
        identity = MetaProperties(cluster_id="cluster", node_id=NodeId(1), directory_id=UUID(int=9))
        (directory / "meta.properties").write_bytes(format_meta_properties(identity))
        for file, offset in (
            (RECOVERY_POINT_FILE, recovery_point),
            (LOG_START_FILE, Offset(0)),
            (HIGH_WATERMARK_FILE, end_offset),
        ):
            (directory / file).write_bytes(format_checkpoint({PARTITION: offset}))
        (directory / CHECKPOINT_TOPICS_FILE).write_bytes(format_topic_ids({PARTITION: TOPIC_ID}))
        if is_closed:
            (directory / CLEAN_SHUTDOWN_FILE).write_bytes(format_clean_shutdown(3))
        return directory

    return make
