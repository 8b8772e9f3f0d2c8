"""A new log's directory: created at once, durable a moment later, and its state after a death in
between."""

from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.model.errors import RefusedError
from ottla.model.ids import Offset
from ottla.storage.disk.disk_seam import DirectorySurvey
from ottla.storage.log.log import new_log, open_log
from ottla.storage.manager.log_names_driver import EMPTY_SEGMENT
from ottla.storage.segments.directory_view import DirectoryView
from ottla.storage.segments.files import OFFSET_INDEX, TIME_INDEX, file_name
from tests.storage.manager.test_log_manager import (
    A0,
    CONFIG,
    TOPIC_ID,
    append,
    formatted_disk,
    found,
    recovered,
)


class SlowNursery:
    """A nursery whose tasks never get their turn."""

    cancel_scope = trio.CancelScope()

    def start_soon(self, *arguments: object) -> None:
        """Ignore the task."""


def slow_nursery() -> trio.Nursery:
    """Return a nursery in which no log's directory becomes durable."""
    return cast(trio.Nursery, SlowNursery())


async def test_what_was_flushed_survives_a_power_loss_right_after_the_creation(
    autojump_clock: MockClock,
) -> None:
    """The directory is made durable behind its back; no flush of the log is over before that."""
    for seed in range(40):
        disk = await formatted_disk(seed=seed)
        async with recovered(disk) as logs:
            logs.nursery = slow_nursery()
            log = await logs.create(A0, TOPIC_ID, CONFIG)
            append(log, b"flushed")
            await log.flush()
            append(log, b"not flushed")
            disk.crash()
        async with recovered(disk) as logs:
            again = found(logs, A0)
            assert again.topic_id == TOPIC_ID
            assert again.end_offset >= 1


async def test_a_power_loss_right_after_the_creation_leaves_no_partition_offline(
    autojump_clock: MockClock,
) -> None:
    """Any part of the new directory may be there: it is the partition's, or it is set aside."""
    ends = set[bool]()
    for seed in range(60):
        disk = await formatted_disk("/one", seed=seed)
        async with recovered(disk, "/one") as logs:
            logs.nursery = slow_nursery()
            append(await logs.create(A0, TOPIC_ID, replace(CONFIG, segment_bytes=200)), b"x")
            for _ in range(5):
                append(found(logs, A0), b"x" * 40)
            disk.crash()
        async with recovered(disk, "/one") as logs:
            assert not logs.offline
            ends.add(logs.get(A0) is not None)
            log = await logs.create(A0, TOPIC_ID, CONFIG)
            assert log.log_start_offset == 0
            append(log, b"again")
    assert ends == {True, False}


async def test_a_kill_right_after_the_creation_loses_nothing(autojump_clock: MockClock) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        logs.nursery = slow_nursery()
        append(await logs.create(A0, TOPIC_ID, CONFIG), b"x")
        disk.kill()
    async with recovered(disk, "/one") as logs:
        assert (found(logs, A0).topic_id, found(logs, A0).end_offset) == (TOPIC_ID, 1)


async def test_a_log_rolls_only_when_its_directory_is_durable(autojump_clock: MockClock) -> None:
    """A power loss might keep the name of a later segment, and not that of the first."""
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        log = await logs.create(A0, TOPIC_ID, replace(CONFIG, segment_bytes=200))
        for _ in range(3):
            append(log, b"x" * 80)
        assert log.segment_count == 1
        await trio.sleep(1)
        append(log, b"x" * 80)
        assert log.segment_count == 2


async def test_a_clean_stop_makes_an_empty_new_log_durable(autojump_clock: MockClock) -> None:
    for seed in range(10):
        disk = await formatted_disk("/one", seed=seed)
        async with recovered(disk, "/one") as logs:
            logs.nursery = slow_nursery()
            await logs.create(A0, TOPIC_ID, CONFIG)
            await logs.shutdown_cleanly(1)
        disk.crash()
        async with recovered(disk, "/one") as logs:
            assert found(logs, A0).topic_id == TOPIC_ID


async def test_a_creation_that_was_cut_off_is_finished_by_the_next_try(
    autojump_clock: MockClock,
) -> None:
    disk = await formatted_disk("/one")
    async with recovered(disk, "/one") as logs:
        disk.capacity_bytes = disk.used_bytes + 10
        with pytest.raises(RefusedError):
            await logs.create(A0, TOPIC_ID, CONFIG)
        disk.capacity_bytes = None
        append(await logs.create(A0, TOPIC_ID, CONFIG), b"x")
        assert not [name for name in await disk.listdir("/one") if name.endswith("-stray")]
        await trio.sleep(1)
    disk.crash()
    async with recovered(disk, "/one") as logs:
        assert found(logs, A0).topic_id == TOPIC_ID


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_what_a_start_finds_after_a_kill_survives_a_power_loss(
    is_flushed: bool, autojump_clock: MockClock
) -> None:
    """The process finds a directory that only memory may have, and makes it durable."""
    for seed in range(40):
        disk = await formatted_disk("/one", seed=seed)
        async with recovered(disk, "/one") as logs:
            logs.nursery = slow_nursery()
            append(await logs.create(A0, TOPIC_ID, CONFIG), b"x")
            disk.kill()
        async with recovered(disk, "/one") as logs:
            if is_flushed:
                append(found(logs, A0), b"y")
                await found(logs, A0).flush()
            disk.crash()
        async with recovered(disk, "/one") as logs:
            assert found(logs, A0).end_offset == 1 + is_flushed


async def test_a_topic_id_that_only_memory_has_is_written_again_by_the_next_start(
    autojump_clock: MockClock,
) -> None:
    """A failed fsync leaves it there, and a later one succeeds without writing it."""
    disk = await formatted_disk("/one", "/two")
    async with recovered(disk, "/one", "/two") as logs:
        fault = disk.fail(DiskOperation.FSYNC, path_part="/one/a-0/partition.metadata")
        await logs.create(A0, TOPIC_ID, CONFIG)
        await trio.sleep(1)
        assert not fault.times_left
        disk.kill()
    async with recovered(disk, "/one", "/two") as logs:
        append(found(logs, A0), b"x")
        await found(logs, A0).flush()
        disk.crash()
    async with recovered(disk, "/one", "/two") as logs:
        assert found(logs, A0).end_offset == 1


async def test_a_new_log_gets_its_index_files_with_their_first_entries(
    autojump_clock: MockClock,
) -> None:
    """Without them an empty log is opened as it is, and nothing is made or built again."""
    disk = await formatted_disk("/one")
    indexes = [file_name(0, suffix) for suffix in (OFFSET_INDEX, TIME_INDEX)]

    async def index_files() -> list[str]:
        return [name for name in await disk.listdir("/one/a-0") if name in indexes]

    async with recovered(disk, "/one") as logs:
        await logs.create(A0, TOPIC_ID, CONFIG)
        await logs.shutdown_cleanly(1)
    async with recovered(disk, "/one") as logs:
        assert await index_files() == []
        log = found(logs, A0)
        log.config = replace(CONFIG, index_interval_bytes=0)
        for _ in range(2):
            append(log, b"x")
        assert await index_files() == indexes
        await logs.shutdown_cleanly(1)
    disk.crash()
    async with recovered(disk, "/one") as logs:
        assert await index_files() == indexes
        assert found(logs, A0).end_offset == 2


def described(thing: Any, depth: int = 4) -> Any:
    """Return the state of a log-engine object in comparable form."""
    if isinstance(thing, list):
        return [described(one, depth) for one in thing]
    if not type(thing).__module__.startswith("ottla.storage") or not depth:
        return thing if isinstance(thing, int | str | bytes | None | dict) else type(thing)
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += list(getattr(thing, "__dict__", ()))
    return {name: described(getattr(thing, name, None), depth - 1) for name in names}


@pytest.mark.interpreted_only("asks objects for all they hold")
async def test_a_new_log_is_what_opening_its_directory_would_come_to() -> None:
    disk = await formatted_disk("/one")
    await disk.make_directory("/one/a-0", EMPTY_SEGMENT)
    topic_id = UUID(int=7)
    opened = await open_log(
        disk,
        "/one/a-0",
        config=CONFIG,
        topic_id=topic_id,
        is_clean=True,
        recovery_point=Offset(0),
        log_start_offset=Offset(0),
        now_ms=5,
        view=DirectoryView(disk, "/one/a-0", DirectorySurvey(dict.fromkeys(EMPTY_SEGMENT, 0), {})),
    )
    made = new_log(disk, "/one/a-0", config=CONFIG, topic_id=topic_id, now_ms=5)
    assert described(made) == described(opened)
    assert described(made)["state"]["segments"][0]["offset_index"]["count"] == 0
