"""Log lines about the free space of a volume: one for each change, and none in between."""

import logging
import threading
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.model.limits import GIB, MIB
from ottla.model.log_events import event_of
from ottla.model.settings.storage.disks import DiskConfig
from ottla.storage.directories.free_space import (
    CLEARANCE,
    FREE_AGAIN_BYTES,
    OF_METADATA,
    QUIET_MS,
    SILENT_MS,
    ChangeKind,
    FreeSpace,
    FreeSpaceChange,
    FreeSpaceLevel,
)
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.storage.disk import real_disk_driver as disk
from ottla.storage.disk.disk_seam import Space
from ottla.storage.disk.real_disk_driver import RealDisk

TOTAL = 100 * GIB


def room(**bounds: float) -> FreeSpace:
    return FreeSpace("/data", DiskConfig(**bounds))  # type: ignore[arg-type]


def measure(found: FreeSpace, usable: float, now_ms: int = 0) -> list[ChangeKind]:
    return [change.kind for change in found.on_measured(Space(TOTAL, int(usable)), now_ms)]


def test_a_volume_with_enough_room_is_not_spoken_of() -> None:
    found = room()
    assert measure(found, 50 * GIB) == []
    assert found.report(0).problems == found.report(0).warnings == ()


def test_a_filling_volume_is_logged_once_with_its_numbers_and_the_cure() -> None:
    found = room()
    (change,) = found.on_measured(Space(TOTAL, 9 * GIB), 0)
    assert change.kind is ChangeKind.FILLING
    assert change.text.startswith(
        "log directory /data fills up (9 GiB of 100 GiB are free, 9 %): shorten retention"
    )
    assert measure(found, 8 * GIB) == measure(found, 7 * GIB) == []
    assert found.report(0).warnings[0].startswith("log directory /data fills up (7 GiB of 100 GiB")
    assert found.report(0).problems == ()


def test_around_its_bound_a_volume_has_one_line_and_not_one_at_each_measurement() -> None:
    found = room()
    said = [measure(found, usable) for usable in (9.9 * GIB, 10.1 * GIB, 9.9 * GIB, 12.4 * GIB)]
    assert said == [[ChangeKind.FILLING], [], [], []]
    assert measure(found, 10 * GIB * CLEARANCE) == [ChangeKind.HAS_SPACE]
    assert measure(found, 10.1 * GIB) == []


def test_the_bounds_are_in_percent_and_in_bytes_and_zero_switches_one_off() -> None:
    assert measure(room(warn_free_percent=0.0), 1) == []
    in_bytes = room(warn_free_percent=0.0, warn_free_bytes=GIB)
    assert measure(in_bytes, GIB) == []
    assert measure(in_bytes, GIB - 1) == [ChangeKind.FILLING]
    assert measure(room(warn_free_percent=10.0, warn_free_bytes=20 * GIB), 15 * GIB) == [
        ChangeKind.FILLING
    ]


def test_a_bound_above_the_whole_volume_still_ends_with_an_empty_one() -> None:
    found = room(warn_free_percent=90.0)
    assert measure(found, 80 * GIB) == [ChangeKind.FILLING]
    assert measure(found, TOTAL) == [ChangeKind.HAS_SPACE]


def test_a_refused_write_makes_the_directory_full_at_once_and_is_logged_once() -> None:
    found = room()
    measure(found, 50 * GIB)
    change = found.on_refused(1_000)
    assert change is not None
    assert change.kind is ChangeKind.FULL
    # The numbers were measured before it filled: they are not reported.
    assert change.text.startswith("log directory /data is full (a write found no room): what is")
    assert found.on_refused(1_001) is None
    assert found.report(1_001).refused_count == 2
    assert measure(found, 0, 2_000) == []
    assert (
        found.report(2_000)
        .problems[0]
        .startswith("log directory /data is full (0 bytes of 100 GiB are free, 0 %)")
    )
    assert found.report(2_000).warnings == ()


def test_a_volume_without_a_free_byte_is_full_before_a_write_finds_out() -> None:
    assert measure(room(), 0) == [ChangeKind.FULL]


def test_a_full_directory_has_room_again_when_writes_fit_and_none_was_refused_lately() -> None:
    found = room()
    found.on_refused(0)
    assert measure(found, 50 * GIB, QUIET_MS - 1) == []
    found.on_refused(QUIET_MS - 1)
    assert measure(found, 50 * GIB, QUIET_MS) == [], "a quota that no measurement shows"
    assert measure(found, FREE_AGAIN_BYTES - 1, 2 * QUIET_MS) == []
    assert measure(found, 50 * GIB, 2 * QUIET_MS) == [ChangeKind.HAS_SPACE]
    assert found.report(0).problems == ()


def test_after_full_a_directory_with_little_room_is_filling_and_has_one_line() -> None:
    found = room()
    found.on_refused(0)
    changes = found.on_measured(Space(TOTAL, GIB), QUIET_MS)
    assert [change.kind for change in changes] == [ChangeKind.HAS_SPACE]
    assert changes[0].text == "log directory /data has room again: 1 GiB of 100 GiB are free, 1 %"
    assert found.state is FreeSpaceLevel.FILLING
    assert measure(found, GIB, 2 * QUIET_MS) == []


def test_a_small_volume_has_room_again_with_a_part_of_itself() -> None:
    found = room()
    found.on_refused(0)
    changes = found.on_measured(Space(16 * MIB, MIB), QUIET_MS)
    assert [change.kind for change in changes] == [ChangeKind.HAS_SPACE]


def test_a_hanging_disk_is_logged_once_and_so_is_its_recovery() -> None:
    found = room()
    found.on_asked(0)
    assert found.on_silence(SILENT_MS - 1) is None
    change = found.on_silence(SILENT_MS)
    assert change is not None
    assert change.kind is ChangeKind.HANGS
    assert "log directory /data has not answered for 30 s" in change.text
    found.on_asked(SILENT_MS)
    assert found.on_silence(2 * SILENT_MS) is None
    assert (
        found.report(2 * SILENT_MS)
        .problems[0]
        .startswith(
            "log directory /data has not answered for 60 s: its disk or network mount hangs"
        )
    )
    assert measure(found, 50 * GIB, 2 * SILENT_MS) == [ChangeKind.ANSWERS]
    assert found.report(2 * SILENT_MS).problems == ()


def test_the_metadata_logs_directory_has_words_of_its_own() -> None:
    change = FreeSpace("/meta", DiskConfig(), OF_METADATA).on_refused(0)
    assert change is not None
    assert change.text.startswith("the metadata log's directory /meta is full")
    assert "reserved.space" in change.text
    assert "retention" not in change.text


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("measured"), st.integers(0, TOTAL)),
        st.tuples(st.just("refused"), st.just(0)),
        st.tuples(st.just("later"), st.integers(0, 2 * QUIET_MS)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_line_says_a_state_that_was_not_said_before_it(steps: list[tuple[str, int]]) -> None:
    found, now_ms = room(), 0
    said = ChangeKind.HAS_SPACE
    for kind, number in steps:
        before = found.state
        changes: list[FreeSpaceChange | None] = []
        if kind == "later":
            now_ms += number
        elif kind == "refused":
            changes.append(found.on_refused(now_ms))
            assert found.state is FreeSpaceLevel.FULL
        else:
            changes += found.on_measured(Space(TOTAL, number), now_ms)
        for change in changes:
            if change is not None:
                assert change.kind is not said
                said = change.kind
        if before is found.state:
            assert changes in ([], [None])
        # What status says follows the state, whatever the log said.
        report = found.report(now_ms)
        assert bool(report.problems) is (found.state is FreeSpaceLevel.FULL)
        assert bool(report.warnings) is (found.state is FreeSpaceLevel.FILLING)


# ---- the driver


async def test_a_measured_room_logs_what_changes_and_notices_room_soon(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO)
    world = SimulatedDisk(SeededRng(1))
    await world.makedirs("/data")
    measured = FreeSpaceMonitor(world, "/data", DiskConfig())
    file = world.open("/data/filler", create=True)
    file.pwrite(0, [bytes(95_000)])
    async with trio.open_nursery() as nursery:
        world.capacity_bytes = 1_000_000
        nursery.start_soon(measured.run)
        await trio.sleep(15)
        assert caplog.records == []
        world.capacity_bytes = 100_000
        await trio.sleep(15)
        measured.note_refused()
        measured.note_refused()
        await trio.sleep(15)
        world.capacity_bytes = 1_000_000
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert [(event_of(line), line.levelname) for line in caplog.records] == [
        ("disk.filling", "WARNING"),
        ("disk.full", "ERROR"),
        ("disk.room", "INFO"),
    ]


async def test_what_is_asked_of_a_hanging_disk_is_answered_by_the_last_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    path = str(tmp_path)
    real = RealDisk([path])
    measured = FreeSpaceMonitor(real, path, DiskConfig(check_interval_ms=100))
    let_go, calls = threading.Event(), list[str]()

    def hang(asked: str) -> Space:
        calls.append(asked)
        let_go.wait(60)
        return Space(10, 5)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(measured.run)
        with trio.fail_after(60):
            while measured.known.space is None:
                await trio.sleep(0.01)
            before = measured.known.space
            monkeypatch.setattr(disk, "_space", hang)
            while not calls:
                await trio.sleep(0.01)
            assert await measured.fresh() == before
            # One thread hangs, however often it is asked; and stopping waits for none.
            assert len(calls) == 1
            nursery.cancel_scope.cancel()
    let_go.set()


async def test_a_hanging_disk_is_reported_during_its_measurement(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level(logging.INFO)
    pause: list[Callable[[], object]] = []

    class HangingDisk(SimulatedDisk):
        async def space(self, path: str) -> Space:
            if pause:
                await trio.sleep_forever()
            return await super().space(path)

    world = HangingDisk(SeededRng(1))
    await world.makedirs("/data")
    measured = FreeSpaceMonitor(world, "/data", DiskConfig())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(measured.run)
        await trio.sleep(15)
        pause.append(lambda: None)
        await trio.sleep(200)
        (problem,) = measured.report().problems
        assert problem.startswith("log directory /data has not answered for 1")
        assert measured.report().age_ms > 150_000
        pause.clear()
        await trio.sleep(31)
        assert measured.report().problems == ()
        nursery.cancel_scope.cancel()
    assert [event_of(line) for line in caplog.records] == ["disk.hangs", "disk.answers"]
