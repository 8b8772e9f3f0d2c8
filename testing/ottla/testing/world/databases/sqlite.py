"""SQLite databases for programs in the simulated world, with the interface of aiosqlite.

aiosqlite calls SQLite in a thread of its own, whose order a deterministic world cannot control.
This adapter calls SQLite in the event loop. A program that accepts its `connect` function as an
argument runs with either. Outside of simulated worlds, the adapter works in asyncio and trio.

The file is a real one. If an instance is killed, its files stay as a killed process leaves them: an
open transaction has a journal, which SQLite rolls back when the file is opened next.

Steps at which a schedule may kill or pause the instance, as `Mark("sqlite.commit", number)`:

sqlite.write      before each statement that may write
sqlite.commit     before the commit; the transaction is lost
sqlite.committed  after the commit, before the program learns of it; the transaction is kept
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ottla.testing.world.databases.store import pause
from ottla.testing.world.life import LIFE, current_owner, step
from ottla.testing.world.timeline import TIMELINE
from ottla.testing.world.timeline_event import TimelineEvent, printable

T = TypeVar("T")

LATENCY_S = 0.001
"""Virtual seconds that each call of a SQLite database takes."""
LOCK_RETRY_S = 0.01
"""Virtual seconds between two attempts to write to a database that another connection has locked.
SQLite's own wait would stop the event loop."""
COMPANIONS = ("", "-journal", "-wal")
"""File name suffixes of a SQLite database, its rollback journal and its write-ahead log. These
files outlive a killed process."""
PARAMETERS_SHOWN_MAX = 4
"""Maximum number of parameters of a statement that a timeline shows."""
_READS = frozenset({"BEGIN", "EXPLAIN", "PRAGMA", "SELECT", "VALUES"})


class SqliteCursor:
    """Result of a statement, with the interface of aiosqlite's cursor."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    @property
    def lastrowid(self) -> int | None:
        """Row id of the last inserted row."""
        return self._cursor.lastrowid

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed; -1 for a query."""
        return self._cursor.rowcount

    @property
    def description(self) -> Any:
        """Columns of a query, as in `sqlite3.Cursor.description`."""
        return self._cursor.description

    async def fetchone(self) -> Any:
        """Return the next row, or None after the last row."""
        await pause(0)
        return self._cursor.fetchone()

    async def fetchmany(self, size: int = 1) -> list[Any]:
        """Return up to `size` next rows."""
        await pause(0)
        return self._cursor.fetchmany(size)

    async def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        await pause(0)
        return self._cursor.fetchall()

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (row := await self.fetchone()) is not None:
            yield row

    async def close(self) -> None:
        """Close the cursor."""
        self._cursor.close()

    async def __aenter__(self) -> "SqliteCursor":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class SqliteStatement:
    """A prepared SQL statement. `await` runs it and returns its cursor; `async with` yields the
    cursor."""

    def __init__(self, run: Callable[[], Awaitable[SqliteCursor]]) -> None:
        self._run = run
        self._cursor: SqliteCursor | None = None

    def __await__(self) -> Generator[Any, Any, SqliteCursor]:
        return self._run().__await__()

    async def __aenter__(self) -> SqliteCursor:
        self._cursor = await self._run()
        return self._cursor

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._cursor is not None
        await self._cursor.close()


class SqliteDatabase:
    """A connection to a SQLite database, with the interface of aiosqlite's connection.

    `await` the object or use it with `async with` to open it. The end of the block closes it
    without a commit.
    """

    def __init__(self, path: str | Path, timeout_s: float, options: dict[str, Any]) -> None:
        life = LIFE.get()
        is_file = str(path) != ":memory:"
        # A relative path is below the folder of the instance, which is its working directory.
        self._path = Path(path) if life is None or not is_file else life.directory / path
        self._is_file = is_file
        self._timeout_s = timeout_s
        self._options = options
        self._life = life
        self._open: sqlite3.Connection | None = None

    def __await__(self) -> Generator[Any, Any, "SqliteDatabase"]:
        return self._connect().__await__()

    async def __aenter__(self) -> "SqliteDatabase":
        return await self._connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def in_transaction(self) -> bool:
        """True if there are changes that are not committed."""
        return self._connection.in_transaction

    @property
    def total_changes(self) -> int:
        """Number of rows changed through this connection."""
        return self._connection.total_changes

    @property
    def row_factory(self) -> Any:
        """Function that makes rows, such as `sqlite3.Row`; None for tuples."""
        return self._connection.row_factory

    @row_factory.setter
    def row_factory(self, factory: Any) -> None:
        self._connection.row_factory = factory

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> SqliteStatement:
        """Return a SQL statement with its parameters, which `await` or `async with` runs."""
        return SqliteStatement(
            lambda: self._execute(sql, lambda one: one.execute(sql, parameters), parameters)
        )

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]]) -> SqliteStatement:
        """Return a statement that runs once for each set of parameters."""
        sets = list(parameters)
        shown = [one for each in sets for one in each]
        return SqliteStatement(
            lambda: self._execute(sql, lambda one: one.executemany(sql, sets), shown)
        )

    def executescript(self, sql: str) -> SqliteStatement:
        """Return a script of SQL statements. Running it first commits an open transaction, as in
        sqlite3."""
        return SqliteStatement(lambda: self._execute(sql, lambda one: one.executescript(sql), ()))

    async def execute_fetchall(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a query and return all its rows."""
        async with self.execute(sql, parameters) as cursor:
            return await cursor.fetchall()

    async def commit(self) -> None:
        """Commit the open transaction. Does nothing without an open transaction."""
        if self._connection.in_transaction:
            await self._commit(lambda one: one.commit())

    async def rollback(self) -> None:
        """Roll the open transaction back."""
        await pause(LATENCY_S)
        self._connection.rollback()

    async def close(self) -> None:
        """Close the connection. An open transaction is rolled back. Later calls do nothing."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._open is None:
            raise ValueError("the database is not open; use `async with sqlite(path) as database`")
        return self._open

    async def _connect(self) -> "SqliteDatabase":
        if self._open is None:
            await pause(LATENCY_S)
            target = self._path if self._is_file else ":memory:"
            self._open = sqlite3.connect(target, timeout=0, **self._options)
            if self._life is not None:
                self._life.at_end(self._abandon)
        return self

    async def _execute(
        self,
        sql: str,
        run: Callable[[sqlite3.Connection], sqlite3.Cursor],
        parameters: Sequence[Any],
    ) -> SqliteCursor:
        word = (sql.split(maxsplit=1) or [""])[0].rstrip(";").upper()
        if word in ("COMMIT", "END"):
            return SqliteCursor(await self._commit(run))
        if word not in _READS:
            await step("sqlite.write")
        cursor = await self._retry(run)
        if word not in _READS:
            self._note(" ".join(sql.split()), parameters)
        return SqliteCursor(cursor)

    async def _commit(self, run: Callable[[sqlite3.Connection], T]) -> T:
        await pause(0)
        await step("sqlite.commit")
        found = await self._retry(run)
        self._note("commit", ())
        await step("sqlite.committed")
        return found

    async def _retry(self, run: Callable[[sqlite3.Connection], T]) -> T:
        """Call a SQLite function. The call is repeated while another connection has locked the
        database."""
        await pause(LATENCY_S)
        waited_s = 0.0
        while True:
            try:
                return run(self._connection)
            except sqlite3.OperationalError as error:
                is_locked = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_locked or waited_s >= self._timeout_s:
                    raise
            await pause(LOCK_RETRY_S)
            waited_s += LOCK_RETRY_S

    def _abandon(self) -> None:
        """Close the connection, but leave the files of the database as a killed process would leave
        them. The locks are released."""
        connection, self._open = self._open, None
        if connection is None:
            return
        paths = [Path(f"{self._path}{ending}") for ending in COMPANIONS] if self._is_file else []
        before = {path: path.read_bytes() for path in paths if path.exists()}
        connection.close()  # rolls back and deletes the journal, which a killed process cannot do
        for path, content in before.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def _note(self, text: str, parameters: Sequence[Any]) -> None:
        timeline = TIMELINE.get()
        if timeline is None:
            return
        values = list(parameters)[:PARAMETERS_SHOWN_MAX]
        facts: dict[str, str | int] = {"store": self._path.name}
        facts |= {f"key{number}": repr(value) for number, value in enumerate(values)}
        rest = f" {tuple(values)!r}" if values else ""
        line = printable(f"{self._path.name}: {text}{rest}", 200)
        timeline.add(TimelineEvent(timeline.now_s(), current_owner(), "store", line, facts))


def sqlite(path: str | Path, *, timeout: float = 5.0, **options: Any) -> SqliteDatabase:
    """Return a connection to a SQLite database, which `async with` or `await` opens.

    A relative path is below the instance's folder. `timeout` is the time in seconds for which a
    call waits for the lock of another connection. After that, it raises sqlite3.OperationalError.
    The other options are those of `sqlite3.connect`.
    """
    return SqliteDatabase(path, timeout, options)
