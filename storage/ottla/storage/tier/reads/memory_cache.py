"""A cache of bounded size in memory, which stores the most recently used values. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class MemoryCache(Generic[K, V]):
    """A cache in memory. When the cache is full, the values that have not been used for the longest
    time are removed."""

    def __init__(self, bytes_max: int, on_drop: Callable[[K], None] = lambda _: None) -> None:
        self.bytes_max = bytes_max
        """Maximum total size of the values, in bytes or in the unit that the caller of `put`
        uses."""
        self._on_drop = on_drop
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size_bytes = 0
        """Total size of the values, in the same unit as `bytes_max`."""

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if the key is not in the cache."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Add a value with its size in bytes, or in the unit of `bytes_max`. A value that is larger
        than the whole cache is not added."""
        if size_bytes > self.bytes_max:
            return
        self.drop(key)
        self._values[key] = value, size_bytes
        self.size_bytes += size_bytes
        while self.size_bytes > self.bytes_max:
            self.drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Remove the value of a key, if the key is in the cache."""
        found = self._values.pop(key, None)
        if found is not None:
            self.size_bytes -= found[1]
            self._on_drop(key)

    def drop_if(self, is_dropped: Callable[[K], bool]) -> None:
        """Remove the values for whose keys `is_dropped` returns True."""
        for key in [key for key in self._values if is_dropped(key)]:
            self.drop(key)
