"""An object store in memory, for tests and for `memory:` URIs. Its calls never wait."""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from ottla.storage.tier.store_seam import (
    ObjectEntry,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectRangeError,
    ObjectStore,
    is_folder_prefix,
    is_plain_key,
)
from ottla.storage.tier.store_settings import StoreSettings


class MemoryObjectStore:
    """Implementation of `ObjectStore` that stores all objects in memory."""

    def __init__(self, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self._wall_ms = wall_ms
        self._objects: dict[str, tuple[bytes, int]] = {}
        """Content of each object, and the time in ms since 1970 at which the object was stored, by
        key."""

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        """Store an object in memory."""
        assert is_plain_key(key)
        if only_new and key in self._objects:
            raise ObjectExistsError(f"an object {key} already exists")
        self._objects[key] = bytes(content), self._wall_ms()

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object in memory, whose content arrives in parts."""
        await self.put(key, b"".join([part async for part in parts]))

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes `[start, end)` of an object."""
        assert 0 <= start < end
        content, _ = self._found(key)
        if start >= len(content):
            raise ObjectRangeError(f"object {key} has only {len(content)} bytes")
        return content[start:end]

    async def head(self, key: str) -> ObjectEntry:
        """Return the key, size and modification time of an object."""
        content, modified_ms = self._found(key)
        return ObjectEntry(key, len(content), modified_ms)

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix`, in the order in which they were first
        stored."""
        assert is_folder_prefix(prefix)
        for key, (content, modified_ms) in list(self._objects.items()):
            if key.startswith(prefix) and key > after:
                yield ObjectEntry(key, len(content), modified_ms)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects with the keys in `keys` from memory."""
        for key in keys:
            assert is_plain_key(key)
            self._objects.pop(key, None)

    def _found(self, key: str) -> tuple[bytes, int]:
        assert is_plain_key(key)
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectNotFoundError(f"there is no object {key}") from None


@asynccontextmanager
async def open_memory_store(settings: StoreSettings) -> AsyncIterator[ObjectStore]:
    """Yield a new object store in memory. The settings are ignored."""
    yield MemoryObjectStore()
