"""Walks of readers over two lineages of one partition, with a store and a cache that fail and
change bytes. Planted bugs are found."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.object_store import SimulatedObjectStore, StoreFaults
from ottla.model.errors import CorruptDataError
from ottla.storage.tier.manifest import CHUNK_BYTES
from ottla.storage.tier.reads import (
    chunk_source_driver,
)
from ottla.storage.tier.reads.cached_files_driver import CachedFiles
from ottla.storage.tier.reads.chunk_source_driver import ChunkedObject, ChunkSource
from ottla.storage.tier.reads.remote_indexes_driver import RemoteIndexes
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader
from ottla.storage.tier.reads.requests_driver import StoreRequests
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.store_seam import StoreError
from tests.storage.tier.reads.reader_bench import (
    DIRECTORY,
    model_read,
    opened_reader,
    read,
    simulated_disk,
    uploaded,
)
from tests.storage.tier.segment_in_memory import segment_in_memory

BATCHES = [(1, 20)] * 100 + [(1, 300_000)] * 9 + [(2, 50)] * 200
SOURCES = [
    segment_in_memory(100, {1: 100}, BATCHES, fill=lambda offset: b"a%019d" % offset),
    # The same offsets in the lineage of another leader.
    segment_in_memory(100, {1: 100, 3: 150}, BATCHES, fill=lambda offset: b"b%019d" % offset),
    segment_in_memory(609, {3: 609}, BATCHES, fill=lambda offset: b"c%019d" % offset),
]
FILE_BOUND = 4 * CHUNK_BYTES
MEMORY_BOUND = 3 * CHUNK_BYTES


class DamagingStore(SimulatedObjectStore):
    """A store whose responses have wrong bytes, or too few, now and then."""

    damage = 0.0

    async def get(self, key: str, start: int, end: int) -> bytes:
        content = await super().get(key, start, end)
        if self._chance.chance(self.damage):
            at = self._chance.below(len(content))
            if self._chance.below(2):
                return content[:at]
            return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        return content


async def _damage_files(disk: SimulatedDisk, chance: Chance) -> None:
    for folder in ("indexes", "chunks"):
        for name in await disk.listdir(f"{DIRECTORY}/{folder}"):
            if chance.below(2):
                file = disk.open(f"{DIRECTORY}/{folder}/{name}")
                file.pwrite(chance.below(file.size_bytes), [b"\0\1\2"])


async def _walk(seed: int) -> None:
    chance = Chance(seed)
    disk = simulated_disk(seed)
    store = DamagingStore(chance, StoreFaults(latency_s=(0.01, 0.2)))
    segments = [await uploaded(store, source, at) for at, source in enumerate(SOURCES, 1)]
    store.faults.failed = store.faults.lost_response = 0.05
    store.damage = 0.05
    for _ in range(3):
        async with opened_reader(
            store,
            disk,
            chunk_memory_bytes=MEMORY_BOUND,
            chunk_file_bytes=FILE_BOUND,
            request_timeout_s=5,
        ) as reader:
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    at = chance.below(3)
                    nursery.start_soon(_consume, reader, segments, at, chance)
            await trio.sleep(30)
        sizes = [
            disk.open(f"{DIRECTORY}/chunks/{name}").size_bytes
            for name in await disk.listdir(f"{DIRECTORY}/chunks")
        ]
        assert sum(sizes) <= FILE_BOUND
        await _damage_files(disk, chance)


async def _consume(
    reader: RemoteReader, segments: Sequence[RemoteSegment], at: int, chance: Chance
) -> None:
    """Read on from a random offset, with short deadlines. Every attempt that succeeds is right, and
    not many fail."""
    segment, source = segments[at], SOURCES[at]
    offset = segment.start_offset + chance.below(source.end_offset - source.base_offset)
    failure_count = 0
    for _ in range(12):
        bytes_max = [1000, 100_000, 700_000, 3 * CHUNK_BYTES][chance.below(4)]
        end_offset = [source.end_offset, offset + 1 + chance.below(20)][chance.below(2)]
        found = None
        with trio.move_on_after([0.5, 1000][chance.below(2)]):
            with suppress(StoreError):
                found = await read(
                    reader,
                    segment,
                    offset,
                    bytes_max=bytes_max,
                    end_offset=end_offset,
                    following=segments[2] if at < 2 else None,
                )
        assert reader.memory_bytes <= MEMORY_BOUND
        if found is None:
            failure_count += 1
            continue
        assert found.records == model_read(source, offset, end_offset, bytes_max, True)
        offset = found.end_offset
        if offset > segment.end_offset:
            break
    assert failure_count < 12


@pytest.mark.parametrize("seed", range(10))
async def test_every_read_is_right(seed: int, autojump_clock: MockClock) -> None:
    await _walk(seed)


def _key_without_upload(self: ChunkedObject, chunk: int) -> tuple[UUID, int]:
    """A cache of the partition's offsets finds the chunks of another leader's segment."""
    return UUID(int=self.manifest.start_offset), chunk


def _checksum_of_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_source_driver, "crc32c", lambda _: 0)
    monkeypatch.setattr(chunk_source_driver, "checksum_at", lambda *_: 0)


async def _get_without_check(
    self: StoreRequests, key: str, start: int, end: int, problem_of: Any
) -> bytes:
    async def no_problem(content: bytes) -> None:
        return None

    return await _GET(self, key, start, end, no_problem)


_GET = StoreRequests.get


async def _index_of_first_segment(self: RemoteIndexes, manifest: Any) -> Any:
    """The indexes of the segment that was read first serve all others."""
    self.__dict__.setdefault("first", manifest)
    return await _POSITIONS(self, self.__dict__["first"])


_POSITIONS = RemoteIndexes.positions


async def _batches_beyond_the_end(self: RemoteReader, *arguments: Any) -> Any:
    """A read ignores its end offset."""
    return await _LAST(self, *arguments[:-1], 1 << 60)


_LAST: Any = RemoteReader._last_batch


async def _evict_nothing(self: CachedFiles) -> None:
    """The files of the cache have no bound."""


def _read_ahead_without_room(
    self: ChunkSource, source: ChunkedObject, first: int, end: int
) -> None:
    """Chunks that are read ahead displace those that a reader waits for."""
    self._memory.bytes_max = 1 << 40
    _READ_AHEAD(self, source, first, end)


_READ_AHEAD = ChunkSource.read_ahead

FINDINGS = (AssertionError, CorruptDataError)
"""Exceptions of a walk that find a bug. No walk without one raises them."""

BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "chunks of another upload": lambda patch: patch.setattr(
        ChunkedObject, "key", _key_without_upload
    ),
    "indexes of another segment": lambda patch: patch.setattr(
        RemoteIndexes, "positions", _index_of_first_segment
    ),
    "responses without a check": lambda patch: patch.setattr(
        StoreRequests, "get", _get_without_check
    ),
    "chunks without a checksum": _checksum_of_anything,
    "batches beyond the end offset": lambda patch: patch.setattr(
        RemoteReader, "_last_batch", _batches_beyond_the_end
    ),
    "files without a bound": lambda patch: patch.setattr(CachedFiles, "_evict", _evict_nothing),
    "memory without a bound": lambda patch: patch.setattr(
        ChunkSource, "read_ahead", _read_ahead_without_room
    ),
}


@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_of_reads_is_found(
    bug: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    BUGS[bug](monkeypatch)
    for seed in range(20):
        try:
            await _walk(seed)
        except FINDINGS:
            return
        except BaseExceptionGroup as group:
            if group.split(FINDINGS)[1] is None:
                return
            raise
    pytest.fail("not found")
