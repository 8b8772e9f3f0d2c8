"""A real file system loses power, fills up, and is lied about."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.cluster_claim import claimed
from ottla.jepsen.processes.disks import ImageDisk, closed_segments, flip_bit, protected_bits
from ottla.wire.batch import batches, check_crc
from ottla.wire.batch_builder import build_batch

SIZE_BYTES = 64 << 20
pytestmark = pytest.mark.cluster


def flush(path: Path) -> None:
    """Flush a file or a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


async def test_a_power_cut_keeps_what_was_flushed_and_loses_what_was_not(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.IMAGES)
    with claimed(tmp_path):
        disk = ImageDisk(tmp_path, "b1", size_bytes=SIZE_BYTES)
        await disk.open()
        log, new = disk.data / "log", disk.data / "new"
        log.write_bytes(b"flushed")
        flush(log)
        flush(disk.data)
        with log.open("ab") as file:
            file.write(b", and a tail that was not")
        new.write_bytes(b"never flushed")
        await disk.cut_power()
        assert log.read_bytes() == b"flushed"
        assert not new.exists() or new.read_bytes() == b""
        # And it goes on as a disk.
        log.write_bytes(b"again")
        flush(log)
        await disk.cut_power()
        assert log.read_bytes() == b"again"


async def test_a_full_disk_takes_nothing_until_there_is_room(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.IMAGES)
    with claimed(tmp_path):
        disk = ImageDisk(tmp_path, "b1", size_bytes=SIZE_BYTES)
        await disk.open()
        assert await disk.fill() > SIZE_BYTES // 2
        with pytest.raises(OSError) as caught:
            (disk.data / "log").write_bytes(bytes(10_000))
        assert caught.value.errno == errno.ENOSPC
        await disk.make_room()
        (disk.data / "log").write_bytes(bytes(10_000))


def test_only_segments_that_are_not_written_any_more_are_closed(tmp_path: Path) -> None:
    for name in ("q-0", "q-1"):
        (tmp_path / name).mkdir()
    for name in ("q-0/00.log", "q-0/10.log", "q-0/20.log", "q-0/00.index", "q-1/00.log"):
        (tmp_path / name).touch()
    (tmp_path / "checkpoint").touch()
    assert [path.name for path in closed_segments(tmp_path)] == ["00.log", "10.log"]


def test_one_bit_is_flipped_and_flipped_back(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\x00\x00\x00")
    flip_bit(path, 11)
    assert path.read_bytes() == b"\x00\x08\x00"
    flip_bit(path, 11)
    assert path.read_bytes() == b"\x00\x00\x00"


def test_a_flipped_bit_that_is_protected_leaves_the_batches_and_breaks_one_crc(
    tmp_path: Path,
) -> None:
    path = tmp_path / "00.log"
    whole = b"".join(build_batch([(0, b"k", bytes([number]) * 50)]) for number in range(3))
    path.write_bytes(whole)
    bits = [bit for batch in protected_bits(path) for bit in batch]
    assert len(protected_bits(path)) == 3
    for bit in bits[::7]:
        flip_bit(path, bit)
        data = memoryview(path.read_bytes())
        sound = [check_crc(data, at, header) for at, header in batches(data)]
        assert sorted(sound) == [False, True, True]
        flip_bit(path, bit)
    assert path.read_bytes() == whole
