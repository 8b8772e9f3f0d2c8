"""Evidence that nodes leave behind: errors in their logs, and the integrity of their data."""

from pathlib import Path

import pytest

from ottla.jepsen.processes.runs.run_evidence import check_directories, errors_in
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.directories.checkpoint_file import HIGH_WATERMARK_FILE, format_checkpoint
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from tests.storage.log.workbench import NOW_MS, Workbench, append

TRACEBACK = """\
12:00:00 broker 1 serves
Traceback (most recent call last):
  File "broker.py", line 3, in serve
    answer()
  File "broker.py", line 9, in answer
    assert end >= start
           ^^^^^^^^^^^^
AssertionError: the end lies before the start
12:00:01 broker 1 goes on
"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "main.py", line 3, in <module>
  |     run()
  | ExceptionGroup: Exceptions from Trio nursery (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "main.py", line 3, in run
    |     raise ValueError(3)
    | ValueError: 3
    +------------------------------------
"""


def _log(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(text)


def test_each_traceback_is_reported_by_its_exception(tmp_path: Path) -> None:
    _log(tmp_path, "b1.log", TRACEBACK)
    _log(tmp_path, "b2.log", "12:00:00 broker 2 serves\n12:00:09 the leader has gone\n")
    _log(tmp_path, "c1.log.before", "never awaited: coroutine 'x' was never awaited\n")

    assert errors_in(tmp_path) == (
        ("b1", "AssertionError: the end lies before the start"),
        ("c1", "never awaited: coroutine 'x' was never awaited"),
    )


def test_an_exception_group_is_reported_with_its_members(tmp_path: Path) -> None:
    _log(tmp_path, "b1.log", GROUP)

    said = [line for _, line in errors_in(tmp_path)]

    assert said[-1] == "ValueError: 3"
    assert said[0].startswith("ExceptionGroup")


def test_where_no_logs_are_there_are_no_errors(tmp_path: Path) -> None:
    assert errors_in(tmp_path / "nodes") == ()


CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=1)
"""A segment takes three batches, and its index every batch but the first."""


async def _written(
    directory: Path,
    *values: bytes,
    high_watermark: int,
    new_epoch_at: int = 9,
    topic: str = "orders",
) -> Path:
    """Write a broker's directory with one partition in it, as a broker would."""
    partition = directory / f"{topic}-0"
    bench = Workbench(RealDisk(), str(partition))
    log = await bench.open(CONFIG)
    for number, value in enumerate(values):
        batch = build_batch([(NOW_MS + number, b"k", value * 100)])
        append(log, batch, leader_epoch=int(number >= new_epoch_at))
    await log.close()
    bench.let_go()
    marks = {TopicPartition(topic, 0): Offset(high_watermark)}
    (directory / HIGH_WATERMARK_FILE).write_bytes(format_checkpoint(marks))
    return partition


VALUES = (b"a", b"b", b"c", b"d", b"e")


@pytest.mark.parametrize(("last", "is_sound"), [(b"e", True), (b"x", False)])
async def test_replicas_of_a_compacted_log_agree_in_the_last_values(
    tmp_path: Path, last: bytes, is_sound: bool
) -> None:
    """Each broker compacts its own log in its own time."""
    topic = "__consumer_offsets"
    await _written(tmp_path / "b1", *VALUES, high_watermark=5, topic=topic)
    await _written(tmp_path / "b2", b"a", b"x", b"x", b"x", last, high_watermark=5, topic=topic)

    _, check = check_directories({name: tmp_path / name for name in ("b1", "b2")})

    assert check.is_sound is is_sound, check.detail


async def test_replicas_that_a_broker_wrote_are_sound(tmp_path: Path) -> None:
    for name in ("b1", "b2"):
        await _written(tmp_path / name, *VALUES, high_watermark=5)
    assert len(list((tmp_path / "b1" / "orders-0").glob("*.log"))) > 1

    checks = check_directories({name: tmp_path / name for name in ("b1", "b2")})

    assert [(check.node, check.is_sound, check.detail) for check in checks] == [
        ("b1", True, ""),
        ("b2", True, ""),
    ]


@pytest.mark.parametrize(
    ("marks", "new_epoch_at", "is_sound"),
    [
        pytest.param((4, 4), 3, False, id="what both know to be committed"),
        pytest.param((4, 3), 9, False, id="what one leader epoch wrote"),
        pytest.param((5, 3), 3, True, id="what a leader wrote alone, and the next one after it"),
        pytest.param((3, 3), 3, True, id="what two leaders wrote alone"),
    ],
)
async def test_where_replicas_may_differ(
    marks: tuple[int, int], new_epoch_at: int, is_sound: bool, tmp_path: Path
) -> None:
    first, second = marks
    await _written(tmp_path / "b1", *VALUES, high_watermark=first, new_epoch_at=new_epoch_at)
    await _written(tmp_path / "b2", b"a", b"b", b"c", b"x", high_watermark=second)

    _, check = check_directories({name: tmp_path / name for name in ("b1", "b2")})

    assert check.is_sound is is_sound
    if not is_sound:
        epoch = int(new_epoch_at == 3)
        assert check.detail == (
            f"orders-0: differs from b1 at offset 3 "
            f"(epochs {epoch} and 0, high watermarks {first} and {second})"
        )


async def test_a_flipped_bit_is_seen(tmp_path: Path) -> None:
    partition = await _written(tmp_path / "b1", *VALUES, high_watermark=5)
    segment = min(partition.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)

    (check,) = check_directories({"b1": tmp_path / "b1"})

    assert not check.is_sound
    assert "wrong CRC" in check.detail


async def test_an_index_that_lies_is_seen(tmp_path: Path) -> None:
    partition = await _written(tmp_path / "b1", *VALUES, high_watermark=5)
    index = min(partition.glob("*.index"))
    entries = bytearray(index.read_bytes())
    assert entries, "the first segment has entries"
    entries[7] += 1
    index.write_bytes(entries)

    (check,) = check_directories({"b1": tmp_path / "b1"})

    assert not check.is_sound
    assert f"{index.name}: offset" in check.detail


@pytest.mark.parametrize(("values", "is_sound"), [((), True), (VALUES, False)])
async def test_only_a_log_without_records_needs_no_index(
    values: tuple[bytes, ...], is_sound: bool, tmp_path: Path
) -> None:
    partition = await _written(tmp_path / "b1", *values, high_watermark=len(values))
    for index in partition.glob("*.index"):
        index.unlink()

    (check,) = check_directories({"b1": tmp_path / "b1"})

    assert check.is_sound is is_sound, check.detail
