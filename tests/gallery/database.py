"""Interface of the database that programs of the gallery write to, and one table kept in it.

The world's store has this interface; so has any wrapper of a transactional database.
"""

from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Transaction(Protocol):
    """An open transaction. It sees its own writes, and is committed at the end of its block."""

    async def get(self, key: str) -> str | None: ...
    async def put(self, key: str, value: str) -> None: ...
    async def delete(self, key: str) -> None: ...
    async def scan(self, prefix: str) -> list[tuple[str, str]]: ...


class Database(Protocol):
    """A database with serialisable transactions."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...


async def insert(transaction: Transaction, table: str, row: str) -> None:
    """Append a row to a table that has no key of its own, as an automatic id would."""
    number = int(await transaction.get(f"next/{table}") or "0")
    await transaction.put(f"next/{table}", str(number + 1))
    await transaction.put(f"{table}/{number:06}", row)


async def is_first_write(transaction: Transaction, place: str, offset: int) -> bool:
    """Record in the transaction that the record at `offset` of the partition `place` is processed.
    Returns False if an earlier transaction has recorded it."""
    if int(await transaction.get(f"offset/{place}") or "0") > offset:
        return False
    await transaction.put(f"offset/{place}", str(offset + 1))
    return True


async def rows(database: Database, prefix: str) -> list[str]:
    """Return the values of all keys with a prefix, in the order of the keys."""
    async with database.transaction() as transaction:
        return [value for _, value in await transaction.scan(prefix)]
