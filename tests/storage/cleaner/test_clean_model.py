"""A cleaning against the obvious model of one: every record that was ever written, and a clock."""

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.ids import Epoch, ProducerId
from ottla.storage.cleaner.offset_map import SLOT_BYTES
from ottla.storage.cleaner.record_forms import RecordForm, array_record_work, plain_record_work
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.inspection.verify import PartitionFacts, verify_partition
from ottla.storage.log.log import Log
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import BatchHeader, batches
from ottla.wire.batch_builder import BatchBuilder, ControlType, build_end_transaction_marker
from ottla.wire.compression import Codec
from ottla.wire.records import Record, scan
from tests.storage.cleaner.cleaning_bench import aborts_of, clean_log, task_of
from tests.storage.log.workbench import NOW_MS, Workbench, append

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, segment_index_bytes=240)
DELETE_RETENTION_MS = 1_000
KEYS = (b"a", b"b", b"c", b"long-key-of-some-bytes", b"")
FORMS: dict[str, RecordForm] = {"plain": plain_record_work, "arrays": array_record_work}


@dataclass
class WrittenRecord:
    """One data record as it was written."""

    record: Record
    producer_id: int
    marker_offset: int = -1
    """Of the transaction's end, -1 for none."""
    is_aborted: bool = False


@dataclass
class Life:
    """A log, and all that was ever written to it."""

    log: Log
    disk: RealDisk
    form: RecordForm
    map_keys: int
    now_ms: int = NOW_MS
    written: dict[int, WrittenRecord] = field(default_factory=dict)
    clean_to: int = 0
    clean_since_ms: dict[int, int] = field(default_factory=dict)
    """By last offset of each batch: when a cleaning first made all of it clean."""
    sequences: dict[int, int] = field(default_factory=dict)
    open_transactions: dict[int, list[int]] = field(default_factory=dict)
    clock: Iterator[int] = field(default_factory=itertools.count)

    def produce(
        self,
        records: list[tuple[bytes | None, bytes | None, int]],
        codec: Codec,
        producer_id: int,
        epoch: int,
        is_append_time: bool,
    ) -> None:
        """Append a batch; producers from 10 on are transactional, -1 is not even idempotent."""
        builder = BatchBuilder()
        for key, value, jitter_ms in records:
            headers = [("h", value)] if jitter_ms % 3 == 0 else []
            builder.append(self.now_ms + jitter_ms, key, value, headers)
        is_transactional = producer_id >= 10
        sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = builder.build(
            codec=codec,
            producer_id=ProducerId(producer_id),
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=is_transactional,
            log_append_time_ms=self.now_ms if is_append_time else None,
        )
        origin = AppendOrigin.COORDINATOR if is_append_time else AppendOrigin.CLIENT
        info = append(self.log, batch, leader_epoch=epoch, now_ms=self.now_ms, origin=origin)
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(records)
        for record in records_in(self.log, info.base_offset):
            self.written[record.offset] = WrittenRecord(record, producer_id)
            if is_transactional:
                self.open_transactions.setdefault(producer_id, []).append(record.offset)

    def end_transaction(self, producer_id: int, *, is_abort: bool, epoch: int) -> None:
        offsets = self.open_transactions.pop(producer_id, [])
        if not offsets:
            return
        marker = build_end_transaction_marker(
            ControlType.ABORT if is_abort else ControlType.COMMIT,
            timestamp_ms=self.now_ms,
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=Epoch(0),
        )
        info = append(self.log, marker, leader_epoch=epoch, origin=AppendOrigin.COORDINATOR)
        for offset in offsets:
            self.written[offset].is_aborted = is_abort
            self.written[offset].marker_offset = info.base_offset

    async def clean(self) -> None:
        """Clean the log once, and check the remaining records against the written ones."""
        await self.log.flush()
        self.log.update_high_watermark(self.log.end_offset)
        task = task_of(
            self.log,
            first_dirty_offset=self.clean_to,
            now_ms=self.now_ms,
            delete_retention_ms=DELETE_RETENTION_MS,
            map_bytes=(self.map_keys + 2) * SLOT_BYTES * 10 // 9,
            io_buffer_bytes=600,
        )
        if not task.segments or task.end_offset <= self.clean_to:
            return
        before: set[int] = {record.offset for _, record in data_records(self.log)}
        headers_before: dict[int, BatchHeader] = {
            header.last_offset: header for header in all_batches(self.log)
        }
        done, groups = await clean_log(self.disk, self.log, task, form=self.form)
        assert self.clean_to < done.clean_to <= task.end_offset
        self.clean_to = done.clean_to
        assert all(group.size_bytes > 0 for group in groups)
        self.check_records(before, headers_before)
        self.check_tombstones(headers_before)
        self.check_transactions(headers_before)
        self.check_producers()
        self.check_files()

    def is_decided(self, offset: int) -> bool:
        one = self.written[offset]
        return one.producer_id < 10 or one.marker_offset >= 0

    def check_records(self, before: set[int], headers: dict[int, BatchHeader]) -> None:
        """Every remaining record was written, and each key's last record remains."""
        batch_of = {
            offset: last
            for last, header in headers.items()
            for offset in range(header.base_offset, last + 1)
        }
        present: dict[int, Record] = {record.offset: record for _, record in data_records(self.log)}
        assert list(present) == sorted(present)
        assert present.keys() <= before
        for offset, record in present.items():
            assert record == self.written[offset].record
        last: dict[bytes, int] = {}
        for offset, one in self.written.items():
            key = one.record.key
            if key is not None and self.is_decided(offset) and not one.is_aborted:
                last[key] = max(offset, last.get(key, -1))
        for offset in before - present.keys():
            one = self.written[offset]
            assert offset < self.clean_to, "the dirty section stays as it is"
            if one.is_aborted or one.record.key is None:
                continue
            if offset == last[one.record.key]:
                assert one.record.value is None
                age_ms = self.now_ms - self.clean_since_ms[batch_of[offset]]
                assert age_ms >= DELETE_RETENTION_MS, "a tombstone went early"
        for offset, record in present.items():
            since_ms = self.clean_since_ms.get(batch_of[offset], self.now_ms)
            if record.value is None and self.now_ms - since_ms >= DELETE_RETENTION_MS:
                raise AssertionError("a tombstone stays though its time has passed")
        self.check_compactness(present)
        # Read from the start: every key ends with its final value.
        state = fold(present[offset] for offset in sorted(present) if self.is_visible(offset))
        ever = fold(one.record for at, one in self.written.items() if self.is_visible(at))
        assert state == ever

    def is_visible(self, offset: int) -> bool:
        return self.is_decided(offset) and not self.written[offset].is_aborted

    def check_compactness(self, present: dict[int, Record]) -> None:
        """The clean section has only records that it must have."""
        latest: dict[bytes, int] = {}
        for offset, record in present.items():
            if offset >= self.clean_to:
                break
            assert record.key is not None, "a record without key stays"
            assert not self.written[offset].is_aborted, "an aborted record stays"
            assert record.key not in latest, "two records of a key stay"
            latest[record.key] = offset

    def check_tombstones(self, headers: dict[int, BatchHeader]) -> None:
        for last_offset in headers:
            if last_offset < self.clean_to:
                self.clean_since_ms.setdefault(last_offset, self.now_ms)

    def check_transactions(self, headers_before: dict[int, BatchHeader]) -> None:
        """A marker stays as long as a batch of its transaction; readers see the same
        transactions."""
        headers = list(all_batches(self.log))
        markers = {header.last_offset for header in headers if header.is_control}
        for header in headers:
            if header.is_transactional and not header.is_control:
                one = self.written[header.last_offset]
                assert one.marker_offset < 0 or one.marker_offset in markers
        aborted = sorted(
            (entry for segment in self.log.segments for entry in aborts_of(segment)),
            key=lambda entry: entry.first_offset,
        )
        seen = committed_records(self.log, [(a.producer_id, a.first_offset) for a in aborted])
        expected = [
            record.offset
            for _, record in data_records(self.log)
            if not self.written[record.offset].is_aborted
        ]
        assert seen == expected
        for header in headers:
            before = headers_before[header.last_offset]
            assert header.producer_id == before.producer_id
            assert header.last_sequence == before.last_sequence
            assert header.base_offset == before.base_offset
            assert header.partition_leader_epoch == before.partition_leader_epoch

    def check_producers(self) -> None:
        """The last batch of every producer remains, with its sequences."""
        last = {
            header.producer_id: header.last_sequence
            for header in all_batches(self.log)
            if header.producer_id >= 0 and not header.is_control
        }
        for producer_id, sequence in self.sequences.items():
            if producer_id >= 0:
                assert last[producer_id] == sequence - 1

    def check_files(self) -> None:
        """Every index fits its log, by the checks of `ottla log verify`."""
        flaws = list(
            verify_partition(
                DirectoryFiles(self.log.directory),
                PartitionFacts(is_live=True, is_user_partition=False, are_records_read=True),
            )
        )
        assert flaws == []


class DirectoryFiles:
    """The files of a partition."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self.names = sorted(
            path.name for path in self._directory.iterdir() if not path.name.endswith(".deleted")
        )

    @contextmanager
    def open(self, name: str) -> Iterator["FileBytes"]:
        yield FileBytes((self._directory / name).read_bytes())


class FileBytes:
    """A file's bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def pread(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]

    def skip_hole(self, position: int) -> int:
        return position


def all_batches(log: Log) -> Iterator[BatchHeader]:
    for _, header in stored_batches(log):
        yield header


def stored_batches(log: Log) -> Iterator[tuple[bytes, BatchHeader]]:
    for segment in log.segments:
        data = segment.file.pread(0, segment.size_bytes)
        for at, header in batches(data):
            yield data[at : at + header.size_bytes], header


def data_records(log: Log) -> Iterator[tuple[BatchHeader, Record]]:
    for data, header in stored_batches(log):
        if not header.is_control:
            for record in scan(data, 0, header):
                yield header, record


def records_in(log: Log, offset: int) -> list[Record]:
    """Return the records of the batch at an offset as a reader gets them."""
    return [record for header, record in data_records(log) if header.base_offset == offset]


def fold(records: Iterator[Record]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value
    return state


def committed_records(log: Log, aborted: list[tuple[int, int]]) -> list[int]:
    """Return the records that a READ_COMMITTED consumer returns, by its own rules."""
    shown: list[int] = []
    waiting = list(aborted)
    dropped: set[int] = set()
    for data, header in stored_batches(log):
        while waiting and waiting[0][1] <= header.last_offset:
            dropped.add(waiting.pop(0)[0])
        if header.is_control:
            for record in scan(data, 0, header):
                if record.key is not None and record.key[2:4] == b"\0\0":
                    dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            shown += [record.offset for record in scan(data, 0, header)]
    return shown


VALUES = st.one_of(st.none(), st.binary(max_size=60))
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(KEYS), st.sampled_from(KEYS), st.none()),
        VALUES,
        st.integers(-2_000, 2_000),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["produce", "produce", "turn"]),
            RECORDS,
            st.sampled_from(list(Codec)),
            st.sampled_from([-1, -1, -1, 1, 2, 10, 11]),
            st.booleans(),
        ),
        st.tuples(st.sampled_from(["commit", "abort"]), st.sampled_from([10, 11])),
        st.tuples(st.sampled_from(["roll", "clean", "epoch", "restart"])),
        st.tuples(st.just("wait"), st.sampled_from([1, 400, 999, 1_000, 5_000])),
    ),
    max_size=40,
)


LAST_TURN = ("turn", [(b"z", b"z", 0)], Codec.NONE, -1, False)
ENDING = (LAST_TURN, ("wait", 500), LAST_TURN, ("wait", 1_000), LAST_TURN)
"""Each deleted tombstone had been clean for longer than its retention."""


async def live(
    directory: str, form: RecordForm, map_keys: int, steps: list[tuple[object, ...]]
) -> None:
    disk = RealDisk()
    bench = Workbench(disk, directory)
    life = Life(await bench.open(CONFIG), disk, form, map_keys)
    epoch = 0
    try:
        for step, *rest in [*steps, *ENDING]:
            if step in ("produce", "turn"):
                records, codec, producer_id, is_append_time = rest
                life.produce(records, codec, producer_id, epoch, is_append_time)  # type: ignore[arg-type]
            elif step in ("commit", "abort"):
                life.end_transaction(int(str(rest[0])), is_abort=step == "abort", epoch=epoch)
            elif step == "epoch":
                epoch += 1
            elif step == "wait":
                life.now_ms += int(str(rest[0]))
            elif step == "restart":
                life.log.update_high_watermark(life.log.end_offset)
                life.log = await bench.close_and_open(life.log)
                life.log.update_high_watermark(life.log.end_offset)
            if step in ("roll", "turn"):
                await life.log.roll(now_ms=life.now_ms)
            if step in ("clean", "turn"):
                await life.clean()
    finally:
        bench.let_go()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=100 if os.environ.get("OTTLA_FAULTS") == "full" else 20)
@given(steps=STEPS, map_keys=st.sampled_from([2, 3, 100]))
def test_a_cleaning_keeps_all_that_readers_and_producers_need(
    form: str, steps: list[tuple[object, ...]], map_keys: int
) -> None:
    with TemporaryDirectory() as directory:
        trio.run(live, f"{directory}/t-0", FORMS[form], map_keys, steps)
