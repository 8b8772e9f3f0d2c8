"""An object store whose calls are delayed in real time, as by a limited bandwidth and a latency."""

from collections.abc import AsyncIterable, AsyncIterator, Sequence

import trio

from ottla.storage.tier.store_seam import ObjectEntry, ObjectStore


class LimitedStore:
    """An object store that passes all calls to another object store, and delays them in real time.

    All calls share the bandwidth of one link, as the connections of a node share a network card.
    Implements the protocol `ObjectStore`."""

    def __init__(self, store: ObjectStore, *, bytes_per_s: float | None, latency_s: float) -> None:
        self._store = store
        self._bytes_per_s = bytes_per_s
        self._latency_s = latency_s
        self._free_at = 0.0

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        """Store an object, delayed by the bandwidth and latency of the link."""
        await self._transfer(len(content))
        await self._store.put(key, content, only_new=only_new)

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object that is uploaded in several parts."""

        async def slowed() -> AsyncIterator[bytes]:
            async for part in parts:
                await self._transfer(len(part))
                yield part

        await self._store.put_stream(key, slowed())

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of a range of an object."""
        await trio.sleep(self._latency_s)
        content = await self._store.get(key, start, end)
        await self._transfer(len(content))
        return content

    async def head(self, key: str) -> ObjectEntry:
        """Return the size and modification time of an object."""
        await trio.sleep(self._latency_s)
        return await self._store.head(key)

    def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix`."""
        return self._store.entries(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects with the given keys."""
        await trio.sleep(self._latency_s)
        await self._store.delete(keys)

    async def _transfer(self, size_bytes: int) -> None:
        """Wait until the link has transferred `size_bytes` bytes."""
        if self._bytes_per_s is None:
            return
        begins_at = max(trio.current_time(), self._free_at)
        self._free_at = begins_at + size_bytes / self._bytes_per_s
        await trio.sleep_until(self._free_at)
