"""Every damage of a partition's files is found wherever it can be seen, and none ends the check.

The files are those of a real log, with all codecs, several epochs and an aborted transaction; each
test changes their bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.inspection.batch_walk import BatchRow, walk
from ottla.storage.inspection.dump import (
    dump_batches,
    dump_offset_index,
    dump_time_index,
    dump_transaction_index,
)
from ottla.storage.inspection.readable import BytesReadable
from ottla.storage.inspection.verify import Flaw, PartitionFacts, verify_partition
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import ControlType, build_batch, build_end_transaction_marker
from ottla.wire.compression import Codec
from tests.search_length import length
from tests.storage.log.workbench import NOW_MS, Workbench, append

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, segment_index_bytes=240)
PRODUCER = ProducerId(5)
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
BASE_OFFSET_BYTES = 8


class Files:
    """The files of a partition, in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.names = sorted(files)
        self._files = files

    @contextmanager
    def open(self, name: str) -> Iterator[BytesReadable]:
        yield BytesReadable(self._files[name])


async def _made() -> tuple[dict[str, bytes], int]:
    disk = SimulatedDisk(SeededRng(1))
    await disk.makedirs("/data/a-0")
    log = await Workbench(disk, "/data/a-0").open(CONFIG)
    for number in range(10):
        batch = build_batch([(NOW_MS + number, b"k", b"v" * 9)] * 2, codec=Codec(number % 5))
        append(log, batch, leader_epoch=1 + number // 4)
    for number in range(2):
        batch = build_batch(
            [(NOW_MS + 20, None, b"unsure")],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        append(log, batch, leader_epoch=3)
    marker = build_end_transaction_marker(
        ControlType.ABORT,
        timestamp_ms=NOW_MS + 21,
        producer_id=PRODUCER,
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
    )
    append(log, marker, leader_epoch=3, origin=AppendOrigin.COORDINATOR)
    append(log, build_batch([(NOW_MS + 22, None, b"w" * 20)] * 3), leader_epoch=3)
    await log.close()
    names = await disk.listdir("/data/a-0")
    return {name: await disk.read_file(f"/data/a-0/{name}") for name in names}, log.end_offset


@cache
def made() -> tuple[dict[str, bytes], int]:
    return trio.run(_made)


def flaws(files: dict[str, bytes], *, is_live: bool = False) -> list[Flaw]:
    end_offset = made()[1]
    expected = PartitionFacts(
        recovery_point=end_offset, log_start_offset=0, are_records_read=True, is_live=is_live
    )
    return list(verify_partition(Files(files), expected))


def damage(files: dict[str, bytes]) -> list[Flaw]:
    return [flaw for flaw in flaws(files) if flaw.is_damage]


def names_of(suffix: str) -> list[str]:
    return [name for name in made()[0] if name.endswith(suffix)]


def last_batch(name: str) -> int:
    rows = [row for row in walk(BytesReadable(made()[0][name])) if isinstance(row, BatchRow)]
    return rows[-1].position


def test_sound_files_have_no_flaw() -> None:
    assert flaws(made()[0]) == []
    assert len(names_of(".log")) > 2
    assert sum(bool(made()[0][name]) for name in names_of(".txnindex")) == 1


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_a_flipped_bit_of_a_log_is_damage_in_its_file_or_beside_it(mask: int) -> None:
    files = made()[0]
    newest = names_of(".log")[-1]
    step = length(2, 1)
    for name in names_of(".log"):
        for at in range(mask % step, len(files[name]), step):
            data = bytearray(files[name])
            data[at] ^= mask
            found = damage({**files, name: bytes(data)})
            # Nothing but the log's own end says where its last batch begins.
            is_untold = name == newest and 0 <= at - last_batch(name) < BASE_OFFSET_BYTES
            assert found or is_untold, (name, at)


@pytest.mark.parametrize("suffix", [".index", ".snapshot", "producer-batches"])
def test_a_flipped_bit_of_what_is_derived_is_damage(suffix: str) -> None:
    files = made()[0]
    for name in names_of(suffix):
        for at in range(len(files[name])):
            data = bytearray(files[name])
            data[at] ^= 1
            assert damage({**files, name: bytes(data)}), (name, at)


@pytest.mark.parametrize("suffix", [*SUFFIXES, "checkpoint", "metadata", "batches"])
def test_no_flip_no_cut_and_no_zeroed_tail_ends_a_check(suffix: str) -> None:
    files = made()[0]
    for name in names_of(suffix):
        data = files[name]
        for at in range(0, len(data), length(3, 1)):
            flipped = bytearray(data)
            flipped[at] ^= 0xFF
            for changed in (bytes(flipped), data[:at], data[:at] + bytes(len(data) - at)):
                flaws({**files, name: changed})


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_a_file_that_is_cut_within_an_entry_is_damage(suffix: str) -> None:
    files = made()[0]
    name = names_of(suffix)[0]
    found = damage({**files, name: files[name][:-1]})
    assert any(flaw.file == name and flaw.position is not None for flaw in found)


def test_zeros_are_damage_but_at_the_end_of_the_last_segment() -> None:
    files = made()[0]
    first, *_, newest = names_of(".log")
    (note,) = flaws({**files, newest: files[newest] + bytes(500)})
    assert (note.file, note.position, note.is_damage) == (newest, len(files[newest]), False)
    (flaw,) = damage({**files, first: files[first] + bytes(500)})
    assert (flaw.file, flaw.position) == (first, len(files[first]))
    (flaw,) = damage({**files, newest: files[newest] + bytes(500) + b"x"})
    assert flaw.problem == "500 zero bytes lie before other bytes"


def test_a_log_that_is_being_written_is_not_judged_at_its_end() -> None:
    files = made()[0]
    newest = names_of(".log")[-1]
    (flaw,) = flaws({**files, newest: files[newest][:-1]}, is_live=True)
    assert not flaw.is_damage


@given(st.sampled_from(SUFFIXES), st.binary(max_size=400), st.integers(0, 400))
def test_no_bytes_end_a_check(suffix: str, data: bytes, kept: int) -> None:
    files = made()[0]
    name = names_of(suffix)[-1]
    changed = files[name][:kept] + data
    flaws({**files, name: changed})
    list(dump_batches(changed, is_with_records=True))
    list(dump_offset_index(changed, Offset(0)))
    list(dump_time_index(changed, Offset(0)))
    list(dump_transaction_index(changed))


def test_batches_before_the_log_start_need_no_epoch() -> None:
    files = made()[0]
    epochs = b"0\n2\n2 12\n3 16\n"
    changed = {**files, "leader-epoch-checkpoint": epochs}
    (flaw,) = damage(changed)
    assert flaw.problem == "offset 0 is of epoch 1, not of -1"
    expected = PartitionFacts(recovery_point=made()[1], log_start_offset=12)
    assert list(verify_partition(Files(changed), expected)) == []


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in made()[0].items() if name not in names}


def test_a_log_without_an_entry_needs_no_index_file() -> None:
    name = "0" * 20
    assert flaws_of_indexes({f"{name}.log": b""}) == []
    assert [one.file for one in flaws_of_indexes({f"{name}.log": b"", f"{name}.index": b""})] == [
        f"{name}.timeindex"
    ]


def flaws_of_indexes(files: dict[str, bytes]) -> list[Flaw]:
    return [flaw for flaw in flaws(files) if flaw.file.endswith("index")]


def test_the_last_segment_may_miss_both_of_its_indexes_and_no_other_segment_may() -> None:
    *earlier, last = [name.removesuffix(".log") for name in names_of(".log")]
    both = (f"{last}.index", f"{last}.timeindex")
    found = flaws(without(*both))
    assert {flaw.file for flaw in found} >= set(both)
    assert not [flaw for flaw in found if flaw.is_damage]
    assert [flaw.file for flaw in damage(without(both[0]))] == [both[0]]
    early = (f"{earlier[0]}.index", f"{earlier[0]}.timeindex")
    assert {flaw.file for flaw in damage(without(*early))} >= set(early)
