"""The walk shows all formats as they are stored, and allocates no memory by a claimed length."""

import tracemalloc
from struct import pack
from zlib import crc32

import pytest

from ottla.model.limits import MIB
from ottla.storage.inspection.batch_walk import BatchRow, Problem, records_of, walk
from ottla.storage.inspection.dump import dump_batches
from ottla.storage.inspection.readable import BLOCK_BYTES, BytesReadable
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec, compress

TIMESTAMP_MS = 123


def message(offset: int, magic: int, value: bytes, *, codec: Codec = Codec.NONE) -> bytes:
    """Return a message of v0 or v1 without a key."""
    times = pack(">q", TIMESTAMP_MS) if magic else b""
    body = pack(">bb", magic, codec) + times + pack(">ii", -1, len(value)) + value
    return pack(">qiI", offset, len(body) + 4, crc32(body)) + body


class SparseFile:
    """A file of any size with little data, as a sparse file looks to its reader."""

    def __init__(self, start: bytes, size_bytes: int) -> None:
        self._start = start
        self.size_bytes = size_bytes
        self.largest_read_bytes = 0

    def pread(self, position: int, size: int) -> bytes:
        self.largest_read_bytes = max(self.largest_read_bytes, size)
        size = max(0, min(size, self.size_bytes - position))
        return self._start[position : position + size].ljust(size, b"\0")

    def skip_hole(self, position: int) -> int:
        return position if position < len(self._start) else self.size_bytes


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_message_has_the_offsets_of_what_it_wraps(magic: int) -> None:
    offsets = (7, 8, 9) if magic == 0 else (0, 1, 2)
    inner = b"".join(message(offset, magic, b"v%d" % offset) for offset in offsets)
    data = message(9, magic, compress(Codec.GZIP, inner), codec=Codec.GZIP)
    (row,) = walk(BytesReadable(data))
    assert isinstance(row, BatchRow)
    assert (row.base_offset, row.last_offset, row.record_count) == (7, 9, 3)
    assert (row.magic, row.codec, row.is_crc_valid) == (magic, "gzip", True)
    assert [record.offset for record in records_of(BytesReadable(data), row)] == [7, 8, 9]


def test_formats_follow_each_other_in_one_file() -> None:
    data = message(0, 0, b"a") + message(1, 1, b"b") + build_batch([(5, None, b"c")])
    rows = list(walk(BytesReadable(data)))
    assert [row.magic for row in rows if isinstance(row, BatchRow)] == [0, 1, 2]


def test_a_legacy_message_with_a_wrong_crc_is_shown_as_such() -> None:
    data = bytearray(message(0, 1, b"value") + message(1, 1, b"next"))
    data[-20] ^= 1
    first, second = walk(BytesReadable(data))
    assert isinstance(first, BatchRow)
    assert isinstance(second, BatchRow)
    assert (first.is_crc_valid, second.is_crc_valid) == (True, False)


def test_a_batch_larger_than_a_block_is_checked_block_by_block() -> None:
    big = build_batch([(5, None, bytes(range(256)) * (3 * BLOCK_BYTES // 256))])
    data = build_batch([(5, None, b"small")]) + big + build_batch([(5, None, b"after")])
    rows = list(walk(BytesReadable(data)))
    assert all(isinstance(row, BatchRow) and row.is_crc_valid for row in rows)
    assert len(rows) == 3


def test_a_claimed_length_takes_no_memory() -> None:
    start = bytearray(build_batch([(5, None, b"v")]))
    start[8:12] = (512 * MIB - 12).to_bytes(4, "big")
    file = SparseFile(bytes(start), 512 * MIB)
    tracemalloc.start()
    try:
        batch, problem = dump_batches(file, is_with_records=True)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(batch, BatchRow)
    assert not batch.is_crc_valid
    assert isinstance(problem, Problem)
    assert "too many to be unpacked" in problem.problem
    assert file.largest_read_bytes == BLOCK_BYTES
    assert peak_bytes < 8 * MIB


def test_a_hole_of_any_size_is_passed_over() -> None:
    start = build_batch([(5, None, b"v")])
    _, hole = walk(SparseFile(start, 1 << 45))
    assert isinstance(hole, Problem)
    assert not hole.is_damage
