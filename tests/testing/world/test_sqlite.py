"""SQLite in simulated worlds: real files, kills between write and commit, locks and aiosqlite's
interface."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.testing.world.databases.sqlite import sqlite
from ottla.testing.world.life import LIFE, InstanceLife
from ottla.testing.world.timeline import TIMELINE, Timeline

CREATE = "create table bills (id text primary key, amount int)"
INSERT = "insert into bills values (?, ?)"


def run(main: Callable[[], Awaitable[object]]) -> None:
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def life(tmp_path: Path, *, dies_at: str = "", name: str = "a") -> InstanceLife:
    async def on_step(step: str) -> None:
        if step == dies_at:
            await trio.sleep_forever()

    return InstanceLife(name, 1, tmp_path, on_step)


def rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("select * from bills order by id").fetchall()


async def create(path: Path) -> None:
    async with sqlite(path) as database:
        await database.execute(CREATE)
        await database.commit()


async def killed(program: Callable[[], Awaitable[object]], one: InstanceLife) -> None:
    """Run a program until it waits at its last step, and kill it."""

    async def run_life() -> None:
        LIFE.set(one)
        await program()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_life)
        await trio.sleep(10)
        one.end()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        ("sqlite.write", []),
        ("sqlite.commit", []),
        ("sqlite.committed", [("1", 5)]),
        ("none", [("1", 5)]),
    ],
)
def test_a_kill_keeps_a_transaction_only_after_its_commit(
    step: str, kept: list[Any], tmp_path: Path
) -> None:
    path = tmp_path / "bills.db"

    async def program() -> None:
        async with sqlite("bills.db") as database:
            await database.execute(INSERT, ("1", 5))
            await database.commit()

    async def main() -> None:
        await create(path)
        await killed(program, life(tmp_path, dies_at=step))

    run(main)
    assert rows(path) == kept


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_the_files_of_a_killed_process_are_rolled_back_by_the_next_one(
    mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "bills.db"

    async def program() -> None:
        async with sqlite("bills.db") as database:
            # A tiny cache makes SQLite write pages of the open transaction to the file.
            await database.execute("pragma cache_size = 2")
            await database.execute("update bills set amount = 7")
            await database.executemany(INSERT, [(f"new {at}", at) for at in range(5_000)])
            await database.commit()

    async def main() -> None:
        await create(path)
        async with sqlite(path) as database:
            await database.execute(f"pragma journal_mode = {mode}")
            await database.executemany(INSERT, [(f"old {at:04}", at) for at in range(2_000)])
            await database.commit()
        before = path.read_bytes()
        await killed(program, life(tmp_path, dies_at="sqlite.commit"))
        left = Path(f"{path}-{'wal' if mode == 'wal' else 'journal'}")
        assert left.stat().st_size > 50_000
        assert mode == "wal" or path.read_bytes() != before

    run(main)
    assert rows(path) == [(f"old {at:04}", at) for at in range(2_000)]
    assert not Path(f"{path}-journal").exists()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_kill_releases_the_lock_and_leaves_another_instance_alone(
    mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "bills.db"

    async def victim() -> None:
        async with sqlite(path) as database:
            await database.execute(INSERT, ("victim", 1))
            await database.commit()

    async def main() -> None:
        await create(path)
        async with sqlite(path) as database:
            await database.execute(f"pragma journal_mode = {mode}")
            await killed(victim, life(tmp_path, dies_at="sqlite.commit"))
            await database.execute(INSERT, ("other", 2))
            await database.commit()

    run(main)
    assert rows(path) == [("other", 2)]


def test_a_write_waits_for_the_lock_of_another_connection_in_virtual_time(tmp_path: Path) -> None:
    path = tmp_path / "bills.db"

    async def main() -> None:
        await create(path)
        async with sqlite(path) as first, sqlite(path, timeout=60) as second:
            await first.execute(INSERT, ("first", 1))

            async def commit_later() -> None:
                await trio.sleep(30)
                await first.commit()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(commit_later)
                await second.execute(INSERT, ("second", 2))
                assert 30 <= trio.current_time() < 31
            await second.commit()
        async with sqlite(path) as first, sqlite(path, timeout=1) as second:
            await first.execute(INSERT, ("third", 1))
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await second.execute(INSERT, ("fourth", 2))

    run(main)
    assert rows(path) == [("first", 1), ("second", 2)]


async def use_like_aiosqlite(path: Path) -> None:
    """Use each part of the interface once."""
    database = await sqlite(path)
    database.row_factory = sqlite3.Row
    await database.executescript(f"{CREATE}; create table other (x int);")
    cursor = await database.execute(INSERT, ("1", 5))
    assert (cursor.rowcount, cursor.lastrowid) == (1, 1)
    assert database.in_transaction
    await database.rollback()
    assert not database.in_transaction
    await database.commit()
    await database.executemany(INSERT, [("1", 5), ("2", 6), ("3", 7)])
    await database.execute("commit")
    assert database.total_changes == 4
    async with database.execute("select * from bills order by id") as cursor:
        assert [column[0] for column in cursor.description] == ["id", "amount"]
        first = await cursor.fetchone()
        assert first["amount"] == 5
        assert [row["id"] for row in await cursor.fetchmany(1)] == ["2"]
        assert [row["id"] async for row in cursor] == ["3"]
        assert await cursor.fetchall() == []
    found = await database.execute_fetchall("select count(*) from bills")
    assert tuple(found[0]) == (3,)
    await database.close()
    await database.close()
    with pytest.raises(ValueError, match="the database is not open"):
        await database.execute("select 1")


def test_the_interface_is_that_of_aiosqlite_in_trio_and_asyncio(tmp_path: Path) -> None:
    run(lambda: use_like_aiosqlite(tmp_path / "trio.db"))
    asyncio.run(use_like_aiosqlite(tmp_path / "asyncio.db"))


def test_a_database_in_memory_ends_with_its_life(tmp_path: Path) -> None:
    async def main() -> None:
        one = life(tmp_path)
        LIFE.set(one)
        database = await sqlite(":memory:")
        await database.execute(CREATE)
        one.end()
        with pytest.raises(ValueError, match="the database is not open"):
            await database.execute("select 1")

    run(main)
    assert list(tmp_path.iterdir()) == []


def test_the_timeline_has_writes_and_commits_but_no_reads(tmp_path: Path) -> None:
    timeline = Timeline()

    async def main() -> None:
        TIMELINE.set(timeline)
        LIFE.set(life(tmp_path))
        async with sqlite("bills.db") as database:
            await database.execute(CREATE)
            await database.execute(INSERT, ("1", 5))
            await database.commit()
            await database.execute_fetchall("select * from bills")

    run(main)
    assert [event.text for event in timeline] == [
        f"bills.db: {CREATE}",
        f"bills.db: {INSERT} ('1', 5)",
        "bills.db: commit",
    ]
    insert = list(timeline)[1]
    assert insert.where == "a"
    assert insert.facts == {"store": "bills.db", "key0": "'1'", "key1": "5"}
