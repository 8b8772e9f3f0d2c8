"""A log that is compacted by hand has gaps, and the last record of each key where it was."""

from pathlib import Path

from ottla.bench.hand_compaction import CLEAN_MARKER, compact
from ottla.model.ids import Offset
from ottla.wire.batch import BatchHeader, batches, check_crc
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec
from ottla.wire.records import Record, scan


def batch(base_offset: int, keys: bytes, codec: Codec = Codec.NONE) -> bytes:
    """Return a batch with a record for each of these one-byte keys."""
    records = [(5, keys[index : index + 1], b"value") for index in range(len(keys))]
    return build_batch(records, base_offset=Offset(base_offset), codec=codec)


def read(path: Path) -> tuple[list[BatchHeader], list[Record]]:
    """Return what a segment holds."""
    data = path.read_bytes()
    found = list(batches(data))
    assert all(check_crc(data, at, header) for at, header in found)
    records = [record for at, header in found for record in scan(data, at, header)]
    return [header for _, header in found], records


def test_of_each_key_the_last_record_stays_where_it_was(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    first, second = (partition / f"{number:020}.log" for number in (0, 8))
    first.write_bytes(batch(0, b"abca", Codec.ZSTD) + batch(4, b"bb") + batch(6, b"ab"))
    second.write_bytes(batch(8, b"ab"))
    first.with_suffix(".index").write_bytes(b"")
    (tmp_path / CLEAN_MARKER).write_bytes(b"")

    assert compact(tmp_path, "t") == 7

    headers, records = read(first)
    assert [(one.offset, one.key) for one in records] == [(2, b"c")]
    assert [(one.base_offset, one.last_offset, one.record_count) for one in headers] == [
        (0, 3, 1),
        (6, 7, 0),
    ]
    assert [one.offset for one in read(second)[1]] == [8, 9]
    assert not first.with_suffix(".index").exists()
    assert not (tmp_path / CLEAN_MARKER).exists()
