"""Counters of the requests to an object store, by the kinds that providers bill, and of the
transferred bytes. Pure."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from enum import StrEnum

from ottla.storage.tier.store_seam import ObjectEntry, ObjectStore
from ottla.telemetry.metrics.instruments import Family, MetricKind


class RequestKind(StrEnum):
    """Kind of a request to an object store. Providers have a price for each kind."""

    PUT = "put"
    """Request that uploads an object or a part of an object, or that begins or completes an upload
    in parts."""
    GET = "get"
    HEAD = "head"
    LIST = "list"
    DELETE = "delete"


class StoreTraffic:
    """Numbers of requests to an object store, and of bytes of contents, since the start of the
    process.

    Failed requests are included. Requests that the store's library repeats by itself are counted
    once."""

    def __init__(self) -> None:
        self.requests: Counter[RequestKind] = Counter()
        """Number of requests, by kind."""
        self.failed: Counter[RequestKind] = Counter()
        """Number of calls that ended with an error or were cancelled, by kind."""
        self.sent_bytes = 0
        self.received_bytes = 0

    def families(self) -> Iterator[Family]:
        """Yield the metric families of requests to the object store."""
        for name, text, counts in (
            ("ottla_tier_store_requests_total", "Requests to the object store.", self.requests),
            (
                "ottla_tier_store_failures_total",
                "Calls to the object store that failed or were cancelled.",
                self.failed,
            ),
        ):
            yield Family(
                name,
                MetricKind.COUNTER,
                text,
                ("kind",),
                [((kind.value,), counts[kind]) for kind in RequestKind],
            )
        yield Family(
            "ottla_tier_store_bytes_total",
            MetricKind.COUNTER,
            "Bytes of contents that were sent to and received from the object store.",
            ("direction",),
            [(("sent",), self.sent_bytes), (("received",), self.received_bytes)],
        )


class CountedStore:
    """An object store whose requests are counted. It implements the protocol `ObjectStore`."""

    def __init__(
        self,
        store: ObjectStore,
        traffic: StoreTraffic,
        *,
        part_bytes: int,
        list_page: int = 1000,
        delete_batch: int = 1000,
    ) -> None:
        """Create a store that passes each call to `store` and counts its requests in `traffic`.

        `part_bytes` is the size of a part of an upload. `list_page` and `delete_batch` are the
        maximum numbers of objects that one request lists or deletes."""
        self._store = store
        self._traffic = traffic
        self._part_bytes = part_bytes
        self._list_page = list_page
        self._delete_batch = delete_batch

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        """Store an object, with one request."""
        self._traffic.sent_bytes += len(content)
        with _RequestCount(self._traffic, RequestKind.PUT):
            await self._store.put(key, content, only_new=only_new)

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object. An object with one part counts as one request. With more parts, each
        part counts as one request, and the start and the end of the upload as two more."""
        size = 0

        async def counted() -> AsyncGenerator[bytes, None]:
            nonlocal size
            async for part in parts:
                size += len(part)
                self._traffic.sent_bytes += len(part)
                yield part

        with _RequestCount(self._traffic, RequestKind.PUT, 0):
            try:
                # A store that fails does not read all parts.
                async with aclosing(counted()) as sent:
                    await self._store.put_stream(key, sent)
            finally:
                part_count = -(-size // self._part_bytes)
                requests = 1 if part_count <= 1 else part_count + 2
                self._traffic.requests[RequestKind.PUT] += requests

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of a range of an object."""
        with _RequestCount(self._traffic, RequestKind.GET):
            content = await self._store.get(key, start, end)
        self._traffic.received_bytes += len(content)
        return content

    async def head(self, key: str) -> ObjectEntry:
        """Return the size and modification time of an object."""
        with _RequestCount(self._traffic, RequestKind.HEAD):
            return await self._store.head(key)

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix`. Each page of the listing counts as one
        request."""
        with _RequestCount(self._traffic, RequestKind.LIST):
            count = 0
            async for entry in self._store.entries(prefix, after=after):
                if count and count % self._list_page == 0:
                    self._traffic.requests[RequestKind.LIST] += 1
                count += 1
                yield entry

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects with the keys in `keys`."""
        with _RequestCount(self._traffic, RequestKind.DELETE, -(-len(keys) // self._delete_batch)):
            await self._store.delete(keys)


class _RequestCount:
    """Context manager that counts the requests of a call, and a failure if the block ends with an
    exception.

    GeneratorExit is not a failure: it means that the caller has stopped reading a listing."""

    def __init__(self, traffic: StoreTraffic, kind: RequestKind, count: int = 1) -> None:
        self._traffic = traffic
        self._kind = kind
        traffic.requests[kind] += count

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and kind is not GeneratorExit:
            self._traffic.failed[self._kind] += 1
