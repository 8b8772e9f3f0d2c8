"""A database of the simulated world: a transactional store of keys and values.

Transactions are serialisable. Each one reads a snapshot, writes into a buffer, and is applied at
once by its commit. The commit raises `StoreConflictError` if another transaction has changed data
that this one has read; the program then has to repeat the whole transaction, as with PostgreSQL's
error 40001. A transaction of a killed instance has no effect, because its writes are applied only
by the commit.

Steps at which a schedule may kill or pause the instance, as `Mark("store.write", number)`:

store.write      before each put and delete
store.commit     before the commit; the transaction is lost
store.committed  after the commit, before the program learns of it; the transaction is kept
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import trio

from ottla.testing.world.life import current_owner, step
from ottla.testing.world.timeline import TIMELINE, Timeline
from ottla.testing.world.timeline_event import TimelineEvent, printable

KEYS_SHOWN_MAX = 5
"""Maximum number of keys of a transaction that a timeline names."""
_DELETED = object()


class StoreConflictError(Exception):
    """Error of the commit of a transaction if another transaction has changed data that this one
    has read. No write of the transaction is applied; the program must repeat the transaction from
    its start."""


class WorldStore:
    """A serialisable store that no crash of an instance damages. Public name: `world.Store`.

    Keys are text. Values may be any object that can be copied; the store keeps copies.
    """

    def __init__(
        self,
        name: str = "store",
        *,
        latency_s: float = 0.001,
        timeline: Timeline | None = None,
    ) -> None:
        self.name = name
        self.latency_s = latency_s
        """Virtual seconds that each read, write and commit takes."""
        self._timeline = timeline
        self._version = 0
        self._versions: dict[str, list[tuple[int, object]]] = {}
        """Versions of each key's value, oldest first: pairs of the store's version and the
        value."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["StoreTransaction"]:
        """Return a context with a transaction, which is committed at the end of the block.

        An exception of the block rolls the transaction back. The end of the block raises
        StoreConflictError if another transaction has changed data that this one has read.
        """
        transaction = StoreTransaction(self)
        try:
            yield transaction
            await self._commit(transaction)
        finally:
            transaction.is_over = True

    async def get(self, key: str) -> Any:
        """Return the committed value of a key, or None if the key does not exist."""
        await self._pause()
        return deepcopy(self._value_at(key, self._version, None))

    async def put(self, key: str, value: object) -> None:
        """Write one key in a separate transaction."""
        async with self.transaction() as transaction:
            await transaction.put(key, value)

    def rows(self, prefix: str = "") -> dict[str, Any]:
        """Return the committed keys with this prefix and their values, sorted by key. Takes no
        virtual time, for checks after a run."""
        return {
            key: deepcopy(value)
            for key in sorted(self._versions)
            if key.startswith(prefix)
            and (value := self._value_at(key, self._version, _DELETED)) is not _DELETED
        }

    def _value_at(self, key: str, version: int, default: object) -> object:
        """Return the value of a key at a version of the store, or `default` if the key did not
        exist."""
        history = self._versions.get(key, ())
        at = bisect_right(history, version, key=lambda entry: entry[0])
        value = history[at - 1][1] if at else _DELETED
        return default if value is _DELETED else value

    def _changed_since(self, version: int, keys: set[str], prefixes: set[str]) -> str | None:
        """Return a key that a transaction has read and that was changed since, or None if no key
        was changed."""
        found = keys.intersection(self._versions)
        if prefixes:
            found |= {key for key in self._versions if key.startswith(tuple(prefixes))}
        newer = (key for key in sorted(found) if self._versions[key][-1][0] > version)
        return next(newer, None)

    async def _commit(self, transaction: "StoreTransaction") -> None:
        if not transaction.writes:
            return
        await self._pause()
        await step("store.commit")
        changed = self._changed_since(transaction.version, transaction.keys, transaction.prefixes)
        if changed is not None:
            self._note(f"conflict: {changed!r} has changed", changed)
            raise StoreConflictError(
                f"another transaction has changed {changed!r}, which this one has read; "
                "repeat the transaction"
            )
        self._version += 1
        transaction.commit_version = self._version
        for key, value in transaction.writes.items():
            self._versions.setdefault(key, []).append((self._version, value))
        for number, (key, value) in enumerate(transaction.writes.items()):
            if number == KEYS_SHOWN_MAX:
                self._note(f"and {len(transaction.writes) - KEYS_SHOWN_MAX} other keys")
                break
            text = f"deletes {key!r}" if value is _DELETED else f"puts {key!r} = {value!r}"
            self._note(f"commit {self._version} {text}", key)
        await step("store.committed")

    def _note(self, text: str, key: str | None = None) -> None:
        timeline = TIMELINE.get() if self._timeline is None else self._timeline
        if timeline is None:
            return
        facts = {"store": self.name} | ({} if key is None else {"key": repr(key)})
        text = printable(f"{self.name}: {text}", 200)
        timeline.add(TimelineEvent(timeline.now_s(), current_owner(), "store", text, facts))

    async def _pause(self) -> None:
        await pause(self.latency_s)


class StoreTransaction:
    """One transaction of a store. `WorldStore.transaction` creates it."""

    def __init__(self, store: WorldStore) -> None:
        self._store = store
        self.version = store._version
        """Version of the store whose snapshot the transaction reads."""
        self.commit_version: int | None = None
        """Version of the store that the commit has written. None before the commit, or if the
        transaction wrote nothing."""
        self.keys: set[str] = set()
        """Keys that the transaction has read."""
        self.prefixes: set[str] = set()
        """Prefixes that the transaction has scanned."""
        self.writes: dict[str, object] = {}
        """Written values by key, in the order of their first write."""
        self.is_over = False
        """True once the transaction is committed or rolled back."""

    async def get(self, key: str) -> Any:
        """Return the value that this transaction has written for a key, or else the value in the
        snapshot. None if the key does not exist."""
        self._check(key)
        await pause(self._store.latency_s)
        self._check(key)
        if key in self.writes:
            value = self.writes[key]
            return None if value is _DELETED else deepcopy(value)
        self.keys.add(key)
        return deepcopy(self._store._value_at(key, self.version, None))

    async def put(self, key: str, value: object) -> None:
        """Write the value of a key. Other transactions see the value after the commit."""
        await self._write(key, deepcopy(value))

    async def delete(self, key: str) -> None:
        """Delete a key. Does nothing if the key does not exist."""
        await self._write(key, _DELETED)

    async def scan(self, prefix: str = "") -> list[tuple[str, Any]]:
        """Return the keys that have a prefix, with their values, sorted by key."""
        self._check(prefix)
        await pause(self._store.latency_s)
        self._check(prefix)
        self.prefixes.add(prefix)
        found = {
            key: self._store._value_at(key, self.version, _DELETED)
            for key in self._store._versions
            if key.startswith(prefix)
        }
        found |= {key: value for key, value in self.writes.items() if key.startswith(prefix)}
        return [(key, deepcopy(found[key])) for key in sorted(found) if found[key] is not _DELETED]

    async def _write(self, key: str, value: object) -> None:
        self._check(key)
        await pause(self._store.latency_s)
        await step("store.write")
        self._check(key)
        self.writes[key] = value

    def _check(self, key: str) -> None:
        if self.is_over:
            raise RuntimeError("the transaction is over; begin another one with transaction()")
        if not isinstance(key, str):
            raise TypeError(f"keys of a store are text, not {type(key).__name__}")


async def pause(seconds: float) -> None:
    """Wait for some seconds in the running event loop, of asyncio or trio. Other tasks can run
    meanwhile, even if the time is 0."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)
