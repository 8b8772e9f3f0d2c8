"""An immutable map: `set` and `delete` return another map that shares unchanged parts.

No other module imports the package `immutables` (a HAMT with O(log n) updates), so that the package
can be replaced. Iteration is always in sorted order of keys: hash order differs between processes,
and all controllers must make the same decisions. Sorting costs O(n log n) per iteration, so hot
paths look up keys instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar, final, overload

import immutables


class SortableKey(Protocol):
    """Type of a persistent map's keys, which can be sorted and hashed."""

    def __lt__(self, other: Any, /) -> bool: ...

    def __hash__(self) -> int: ...


K = TypeVar("K", bound=SortableKey)
V = TypeVar("V")
T = TypeVar("T")


@final
class PersistentMap(Mapping[K, V]):
    """An immutable mapping that is iterated in sorted order of its keys. Two maps are equal if they
    have equal items."""

    __slots__ = ("_map",)

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._map: immutables.Map[K, V] = immutables.Map(items)

    def set(self, key: K, value: V) -> "PersistentMap[K, V]":
        """Return a copy of this map in which `key` has the given value."""
        return _wrap(self._map.set(key, value))

    def update(self, items: Mapping[K, V]) -> "PersistentMap[K, V]":
        """Return a copy of this map in which all given items are set. This is faster than setting
        one item at a time."""
        return _wrap(self._map.update(items))

    def delete(self, key: K) -> "PersistentMap[K, V]":
        """Return a copy of this map without `key`, which must be present."""
        return _wrap(self._map.delete(key))

    def discard(self, key: K) -> "PersistentMap[K, V]":
        """Return a copy of this map without `key`, which may be absent."""
        return self.delete(key) if key in self._map else self

    def __getitem__(self, key: K) -> V:
        return self._map[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...
    def get(self, key: K, /, default: V | T | None = None) -> V | T | None:
        """Return the value of a key, or the default if the map does not have the key."""
        return self._map.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __iter__(self) -> Iterator[K]:
        return iter(sorted(self._map))

    def keys_by(self, order: Callable[[K], Any]) -> list[K]:
        """Return the keys of the map sorted by `order(key)`. This is faster than iteration if keys
        are slow to compare."""
        return sorted(self._map, key=order)

    def unordered_items(self) -> Iterator[tuple[K, V]]:
        """Yield the items of the map in any order, without the cost of sorting."""
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
    """A mutable copy of a persistent map, for many changes at once. The changes cost a single copy
    of the map, which `finish` returns."""

    __slots__ = ("_base", "_map", "_mutation")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self._map: Any = base._map
        """The underlying map of the original map until the first change, then a mutable copy of
        it."""
        self._mutation: Any = None

    def __getitem__(self, key: K) -> V:
        found: V = self._map[key]
        return found

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def get(self, key: K) -> V | None:
        """Return the value of `key` in the map after the changes so far, or None if the key is
        absent."""
        found: V | None = self._map.get(key)
        return found

    def set(self, key: K, value: V) -> None:
        """Set the value of `key` in the copy of the map."""
        self._changing()[key] = value

    def discard(self, key: K) -> None:
        """Remove `key` from the copy of the map, if it is present."""
        if key in self._map:
            del self._changing()[key]

    def finish(self) -> PersistentMap[K, V]:
        """Return an immutable map with all changes made so far, or the original map if there was no
        change."""
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
