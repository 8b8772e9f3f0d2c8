"""Loads of values from the object store that several tasks can share: each task awaits the same
load. A load continues if the tasks that await it are cancelled, so a reader with a short deadline
finds the result when it tries again."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import trio

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.tier.store_seam import StoreError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Load(Generic[V]):
    """Load of one value, in progress or finished, with its result."""

    __slots__ = ("error", "finished", "value")

    def __init__(self) -> None:
        self.finished = trio.Event()
        self.value: V | None = None
        self.error: StoreError | None = None


class SharedLoads(Generic[K, V]):
    """Loads in progress, by the key of their value. Each load runs as a task of one nursery."""

    def __init__(self, nursery: trio.Nursery, errors: UnexpectedErrors) -> None:
        self._nursery = nursery
        self._errors = errors
        self._loads: dict[K, _Load[V]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._loads

    def __len__(self) -> int:
        return len(self._loads)

    def begin(self, keys: Sequence[K], load: Callable[[], Awaitable[Sequence[V]]]) -> None:
        """Start one load that returns the values of all `keys`. No load of any of these keys may be
        in progress."""
        assert keys
        assert not any(key in self._loads for key in keys)
        loads = [_Load[V]() for _ in keys]
        self._loads.update(zip(keys, loads, strict=True))
        self._nursery.start_soon(self._run, keys, loads, load)

    async def value(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Return the value of a key from the load in progress, or start a load and return its
        result. Raises StoreError if the load fails."""

        async def load_one() -> Sequence[V]:
            return [await load()]

        if key not in self._loads:
            self.begin([key], load_one)
        return await self.wait(key)

    async def wait(self, key: K) -> V:
        """Await the load in progress for a key, and return its value. Raises StoreError if the load
        fails."""
        load = self._loads[key]
        await load.finished.wait()
        if load.error is not None:
            raise load.error
        assert load.value is not None
        return load.value

    async def _run(
        self,
        keys: Sequence[K],
        loads: Sequence[_Load[V]],
        run: Callable[[], Awaitable[Sequence[V]]],
    ) -> None:
        error = StoreError("the reader of the object store was closed")
        try:
            for load, value in zip(loads, await run(), strict=True):
                load.value = value
        except StoreError as raised:
            error = raised
        except Exception as raised:
            self._errors.note("read of an object store", keys[0], raised)
            error = StoreError("an unexpected error ended a read of the object store")
        finally:
            for key, load in zip(keys, loads, strict=True):
                del self._loads[key]
                if load.value is None:
                    load.error = error
                load.finished.set()
