"""Contract of every object store, as checks that each implementation passes.

Each check gets a store in which it is alone: nothing is in it, and no other task uses it. A store
that loses responses or fails is tested elsewhere.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from ottla.storage.tier.store_seam import (
    ObjectEntry,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectRangeError,
    ObjectStore,
    StoreError,
)

Check = Callable[[ObjectStore], Awaitable[None]]


async def _parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        await trio.lowlevel.checkpoint()
        yield part


async def _listed(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    return sorted([entry.key async for entry in store.entries(prefix, after=after)])


async def an_object_is_read_as_it_was_put(store: ObjectStore) -> None:
    """Ranges are half-open, and end at the end of the object."""
    await store.put("a/b", b"0123456789")
    assert await store.get("a/b", 0, 10) == b"0123456789"
    assert await store.get("a/b", 3, 5) == b"34"
    assert await store.get("a/b", 8, 100) == b"89"
    assert isinstance(await store.get("a/b", 0, 1), bytes)


async def a_put_replaces_the_whole_object(store: ObjectStore) -> None:
    """Nothing of a longer old object remains."""
    await store.put("a/b", b"0123456789")
    await store.put("a/b", b"new")
    assert await store.get("a/b", 0, 10) == b"new"
    assert (await store.head("a/b")).size_bytes == 3


async def a_conditional_put_never_replaces(store: ObjectStore) -> None:
    """The first content stays."""
    await store.put("a/b", b"first", only_new=True)
    with pytest.raises(ObjectExistsError):
        await store.put("a/b", b"second", only_new=True)
    assert await store.get("a/b", 0, 10) == b"first"


async def only_one_of_concurrent_conditional_puts_succeeds(store: ObjectStore) -> None:
    """A prefix can be claimed by it."""
    successful: list[bytes] = []

    async def attempt(content: bytes) -> None:
        with suppress(ObjectExistsError):
            await store.put("claim", content, only_new=True)
            successful.append(content)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(attempt, b"%d" % number)
    assert successful == [await store.get("claim", 0, 10)]


async def a_missing_object_is_reported(store: ObjectStore) -> None:
    """By head and get; it is no retriable error."""
    for call in (lambda: store.head("a/b"), lambda: store.get("a/b", 0, 1)):
        with pytest.raises(ObjectNotFoundError) as caught:
            await call()
        assert not caught.value.is_retriable


async def a_range_beyond_the_end_is_reported(store: ObjectStore) -> None:
    """It means that the object is not the expected one."""
    await store.put("a/b", b"0123456789")
    await store.put("a/empty", b"")
    for key, start in (("a/b", 10), ("a/b", 11), ("a/empty", 0)):
        with pytest.raises(ObjectRangeError):
            await store.get(key, start, start + 5)


async def an_object_may_be_empty(store: ObjectStore) -> None:
    """Of one part or of none."""
    await store.put("one", b"")
    await store.put_stream("other", _parts())
    assert (await store.head("one")).size_bytes == 0
    assert (await store.head("other")).size_bytes == 0


async def parts_of_any_size_are_joined(store: ObjectStore) -> None:
    """Larger and smaller than the parts of an upload."""
    sizes = (1, 0, 11 << 20, 700, 6 << 20)
    parts = [bytes([number + 65]) * size for number, size in enumerate(sizes)]
    await store.put_stream("a/large", _parts(*parts))
    size = sum(sizes)
    assert (await store.head("a/large")).size_bytes == size
    assert await store.get("a/large", 0, size) == b"".join(parts)
    assert await store.get("a/large", (11 << 20) - 1, (11 << 20) + 3) == b"CCDD"


async def a_stream_replaces_the_whole_object(store: ObjectStore) -> None:
    """As a put does."""
    await store.put("a/b", b"0123456789")
    await store.put_stream("a/b", _parts(b"n", b"ew"))
    assert await store.get("a/b", 0, 10) == b"new"


async def a_stream_that_fails_stores_nothing(store: ObjectStore) -> None:
    """The exception of the parts is raised."""

    async def failing() -> AsyncIterator[bytes]:
        yield b"x" * 100
        raise ZeroDivisionError

    await store.put("old", b"old")
    for key in ("new", "old"):
        with pytest.raises(ZeroDivisionError):
            await store.put_stream(key, failing())
    with pytest.raises(ObjectNotFoundError):
        await store.head("new")
    assert await store.get("old", 0, 10) == b"old"


async def a_cancelled_stream_stores_nothing(store: ObjectStore) -> None:
    """As long as its parts have not ended."""

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * 100
        scope.cancel()
        await trio.lowlevel.checkpoint()

    with trio.CancelScope() as scope:
        await store.put_stream("new", endless())
    assert scope.cancelled_caught
    with pytest.raises(ObjectNotFoundError):
        await store.head("new")


async def objects_are_listed_by_prefix(store: ObjectStore) -> None:
    """A prefix ends at a slash, and lists at every depth."""
    keys = ["a/1", "a/2", "a/b/3", "ab/4", "5"]
    for key in keys:
        await store.put(key, key.encode())
    assert await _listed(store, "") == sorted(keys)
    assert await _listed(store, "a/") == ["a/1", "a/2", "a/b/3"]
    assert await _listed(store, "a/b/") == ["a/b/3"]
    assert await _listed(store, "a/b/3/") == []
    assert await _listed(store, "none/") == []


async def a_listing_begins_after_a_key(store: ObjectStore) -> None:
    """The key need not exist."""
    for key in ("a/1", "a/2", "a/3", "b/1"):
        await store.put(key, b"x")
    assert await _listed(store, "a/", after="a/2") == ["a/3"]
    assert await _listed(store, "a/", after="a/10") == ["a/2", "a/3"]
    assert await _listed(store, "", after="a/3") == ["b/1"]
    assert await _listed(store, "a/", after="b") == []


async def a_listing_has_sizes_and_times(store: ObjectStore) -> None:
    """The same as head."""
    await store.put("a/1", b"12345")
    (entry,) = [one async for one in store.entries("a/")]
    assert entry == await store.head("a/1")
    assert isinstance(entry, ObjectEntry)
    assert entry.key == "a/1"
    assert entry.size_bytes == 5


async def many_objects_are_listed_and_deleted(store: ObjectStore) -> None:
    """More than a page, or a request that deletes."""
    keys = [f"many/{number:05d}" for number in range(1_100)]

    async def put_some(part: list[str]) -> None:
        for key in part:
            await store.put(key, b"x")

    async with trio.open_nursery() as nursery:
        for at in range(10):
            nursery.start_soon(put_some, keys[at::10])
    assert await _listed(store, "many/") == keys
    await store.delete(keys[1:])
    assert await _listed(store, "many/") == keys[:1]


async def deleted_objects_are_gone(store: ObjectStore) -> None:
    """A key without an object, and no key at all, are no errors."""
    for key in ("a/1", "a/2", "a/3"):
        await store.put(key, b"x")
    await store.delete([])
    await store.delete(["a/0"])
    await store.delete(["a/0", "a/1", "a/1", "a/3", "b"])
    assert await _listed(store, "") == ["a/2"]
    with pytest.raises(ObjectNotFoundError):
        await store.get("a/1", 0, 1)
    await store.put("a/1", b"again", only_new=True)


async def keys_may_have_all_plain_characters(store: ObjectStore) -> None:
    """Kafka's cluster ids, topic names and our suffixes."""
    key = "Ab-_9.x/my.topic_Name-AAAAAAAAAAAAAAAAAAAAAQ/0/00000000000000000000-_-.manifest.json"
    await store.put(key, b"x")
    assert await _listed(store, "Ab-_9.x/") == [key]
    assert (await store.head(key)).key == key


async def calls_may_run_at_the_same_time(store: ObjectStore) -> None:
    """Of one key and of several."""

    async def work(number: int) -> None:
        content = b"%d" % number * 1000
        await store.put(f"a/{number}", content)
        await store.put("shared", content)
        assert await store.get(f"a/{number}", 0, 100_000) == content

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(work, number)
    shared = await store.get("shared", 0, 100_000)
    assert shared in [b"%d" % number * 1000 for number in range(20)]
    assert len(await _listed(store, "a/")) == 20


async def a_cancelled_call_ends(store: ObjectStore) -> None:
    """The object is there or not; the store works on."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.put("a/b", b"x")
    with suppress(ObjectNotFoundError):
        assert await store.get("a/b", 0, 10) == b"x"
    await store.put("a/b", b"y")
    assert await store.get("a/b", 0, 10) in (b"x", b"y")


async def messages_of_errors_are_sentences(store: ObjectStore) -> None:
    """Short, without the debugging text of a library."""
    with pytest.raises(StoreError) as caught:
        await store.get("a/missing", 0, 1)
    assert "a/missing" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


CHECKS: tuple[Check, ...] = (
    an_object_is_read_as_it_was_put,
    a_put_replaces_the_whole_object,
    a_conditional_put_never_replaces,
    only_one_of_concurrent_conditional_puts_succeeds,
    a_missing_object_is_reported,
    a_range_beyond_the_end_is_reported,
    an_object_may_be_empty,
    parts_of_any_size_are_joined,
    a_stream_replaces_the_whole_object,
    a_stream_that_fails_stores_nothing,
    a_cancelled_stream_stores_nothing,
    objects_are_listed_by_prefix,
    a_listing_begins_after_a_key,
    a_listing_has_sizes_and_times,
    many_objects_are_listed_and_deleted,
    deleted_objects_are_gone,
    keys_may_have_all_plain_characters,
    calls_may_run_at_the_same_time,
    a_cancelled_call_ends,
    messages_of_errors_are_sentences,
)
