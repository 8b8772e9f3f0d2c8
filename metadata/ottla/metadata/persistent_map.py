"""A map that never changes: `set` and `delete` return another one, sharing what is untouched.

The only module that imports `immutables` (a HAMT with O(log n) updates), so that it can be
replaced.  Iteration is in sorted order of keys, always: hash order differs from one process to
the next, and every controller must decide the same.  Sorting costs O(n log n) per iteration, so
hot paths look keys up.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, final, overload

import immutables


class Ordered(Protocol):
    """A key that can be sorted and hashed."""

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...


K = TypeVar("K", bound=Ordered)
V = TypeVar("V")
T = TypeVar("T")


@final
class PersistentMap(Mapping[K, V]):
    """An immutable mapping; equal to another one with equal items."""

    __slots__ = ("_map",)

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._map: immutables.Map[K, V] = immutables.Map(items)

    def set(self, key: K, value: V) -> "PersistentMap[K, V]":
        """Return this map with `key` bound to `value`."""
        return _wrap(self._map.set(key, value))

    def update(self, items: Mapping[K, V]) -> "PersistentMap[K, V]":
        """Return this map with all of the items bound: far less work than one after the other."""
        return _wrap(self._map.update(items))

    def delete(self, key: K) -> "PersistentMap[K, V]":
        """Return this map without `key`; it must be there."""
        return _wrap(self._map.delete(key))

    def discard(self, key: K) -> "PersistentMap[K, V]":
        """Return this map without `key`, whether it was there or not."""
        return self.delete(key) if key in self._map else self

    def __getitem__(self, key: K) -> V:
        return self._map[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: V | T | None = None) -> V | T | None:
        """Return what a key is bound to; else the default."""
        return self._map.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(self._map))

    def keys_by(self, order: Callable[[K], Any]) -> list[K]:
        """Return the keys sorted by what `order` makes of them: for keys slow to compare."""
        return sorted(self._map, key=order)

    def unordered_items(self) -> Iterator[tuple[K, V]]:
        """Yield the items in no order: for what comes to the same in any, and without the sort."""
        return iter(self._map.items())

    def __len__(self) -> int:
        return len(self._map)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PersistentMap):
            return bool(self._map == other._map)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # maps are values, never keys

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"


@final
class MapChanges(Generic[K, V]):
    """A map on its way to another one, which `finish` makes: many changes cost one copy."""

    __slots__ = ("_base", "_map", "_mutation")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self._map: Any = base._map
        """The base's until the first change."""
        self._mutation: Any = None

    def __getitem__(self, key: K) -> V:
        found: V = self._map[key]
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def get(self, key: K) -> V | None:
        """Return what `key` is bound to at present, None without it."""
        found: V | None = self._map.get(key)
        return found

    def set(self, key: K, value: V) -> None:
        """Bind `key` to `value`."""
        self._changing()[key] = value

    def discard(self, key: K) -> None:
        """Remove `key`, whether it is there or not."""
        if key in self._map:
            del self._changing()[key]

    def finish(self) -> PersistentMap[K, V]:
        """Return the map that this has come to; the base itself where nothing was changed."""
        if self._mutation is None:
            return self._base
        finished = self._base = _wrap(self._mutation.finish())
        self._map, self._mutation = finished._map, None
        return finished

    def _changing(self) -> Any:
        if self._mutation is None:
            self._map = self._mutation = self._map.mutate()
        return self._mutation


def _wrap(inner: "immutables.Map[K, V]") -> PersistentMap[K, V]:
    outer: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
    outer._map = inner
    return outer
