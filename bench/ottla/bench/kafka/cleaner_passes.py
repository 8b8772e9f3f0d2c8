"""Records per second of the two passes of the log cleaner, on one core.

`python -m ottla.bench.kafka.cleaner_passes` cleans segments that it has written itself. Their
values have about 100 B or 1 KiB, and are uncompressed or in zstd. For three of ten keys, the record
is still the latest. Times are CPU seconds, which depend less on other load of the machine.
"""

import argparse
import os
import random
import time
from contextlib import aclosing
from tempfile import TemporaryDirectory
from typing import NamedTuple

import trio

from ottla.model.ids import Offset
from ottla.model.limits import GIB, KIB, MIB
from ottla.storage.cleaner.clean_driver import clean
from ottla.storage.cleaner.cleaning_task import (
    CleanableSegment,
    CleaningDone,
    CleaningStats,
    CleaningTask,
)
from ottla.storage.cleaner.record_forms import RecordForm, array_record_work, plain_record_work
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.segments.files import LOG, file_name
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.compression import Codec

BATCH_BYTES = 16 * KIB
"""Default maximum size in bytes of a producer's record batch."""
RECORDS_PER_KEY = 3.3
NOW_MS = 1_700_000_000_000
HASH_SEED = 0x0123456789ABCDEF_FEDCBA9876543210
FORMS: dict[str, RecordForm] = {"arrays": array_record_work, "plain": plain_record_work}


class PassCase(NamedTuple):
    """Kind of log that a pass of the log cleaner processes: the size of its values, and their
    compression."""

    record_bytes: int
    codec: Codec


CASES = (
    PassCase(100, Codec.NONE),
    PassCase(1_024, Codec.NONE),
    PassCase(100, Codec.ZSTD),
    PassCase(1_024, Codec.ZSTD),
)


def write_segment(directory: str, case: PassCase, size_bytes: int) -> CleanableSegment:
    """Write records of nearly equal size into a new log segment, until the segment has `size_bytes`
    uncompressed. Returns the segment."""
    rng = random.Random(1)
    count = size_bytes // case.record_bytes
    key_count = int(count / RECORDS_PER_KEY)
    values = [rng.randbytes(case.record_bytes // 2) * 2 for _ in range(64)]
    per_batch = max(1, BATCH_BYTES // case.record_bytes)
    offset = 0
    path = f"{directory}/{file_name(0, LOG)}"
    with open(path, "wb") as file:
        while offset < count:
            builder = BatchBuilder()
            for number in range(per_batch):
                value = values[number % 64][: case.record_bytes - 45 + rng.randrange(30)]
                key = b"key-%012d" % rng.randrange(key_count)
                builder.append(NOW_MS + offset + number, key, value)
            file.write(builder.build(codec=case.codec, base_offset=Offset(offset)))
            offset += per_batch
    return CleanableSegment(0, offset, os.path.getsize(path), NOW_MS)


def task_for(directory: str, segment: CleanableSegment) -> CleaningTask:
    """Return a task of the log cleaner that cleans a segment with Kafka's default settings."""
    return CleaningTask(
        directory=directory,
        segments=(segment,),
        log_start_offset=0,
        first_dirty_offset=0,
        end_offset=segment.end_offset,
        high_watermark=segment.end_offset,
        now_ms=NOW_MS,
        delete_retention_ms=0,
        segment_bytes=GIB,
        segment_index_bytes=10 * MIB,
        index_interval_bytes=4 * KIB,
        max_message_bytes=MIB,
        map_bytes=128 * MIB,
        map_load_factor=0.9,
        io_buffer_bytes=512 * KIB,
        producers={},
        hash_seed=HASH_SEED,
    )


async def unthrottled(byte_count: int) -> None:
    """Return at once, for any number of bytes. Used as the cleaner's throttle, so that cleaning
    runs at full speed."""


async def measure(task: CleaningTask, form: RecordForm) -> CleaningStats:
    """Clean the task's log segments once, and return the cleaner's statistics."""
    passes = clean(RealDisk(), task, unthrottled, form=form, now_s=time.process_time)
    async with aclosing(passes) as reports:
        async for report in reports:
            if isinstance(report, CleaningDone):
                return report.stats
    raise AssertionError("a cleaning ends with its figures")


def main() -> None:
    """Print a line for each kind of log, with the cleaner's records per second in the best of the
    rounds."""
    parser = argparse.ArgumentParser(description="records per second of the cleaner's passes")
    parser.add_argument("--form", choices=list(FORMS), default="arrays")
    parser.add_argument("--mib", type=int, default=100, help="uncompressed MiB of each case")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts")
    options = parser.parse_args()
    for case in CASES:
        with TemporaryDirectory() as directory:
            task = task_for(directory, write_segment(directory, case, options.mib * MIB))
            rounds = [trio.run(measure, task, FORMS[options.form]) for _ in range(options.rounds)]
        index_s = min(stats.index_seconds for stats in rounds)
        filter_s = min(stats.filter_seconds for stats in rounds)
        indexed, read = rounds[0].indexed_record_count, rounds[0].read_record_count
        print(
            f"{case.record_bytes:5d} B {case.codec.name.lower():6s}"
            f"  pass 1 {indexed / index_s / 1e6:6.2f} M records/s"
            f"  pass 2 {read / filter_s / 1e6:6.2f} M records/s"
            f"  {rounds[0].written_record_count / read:4.0%} kept"
        )


if __name__ == "__main__":
    main()
