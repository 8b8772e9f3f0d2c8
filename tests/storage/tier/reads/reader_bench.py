"""A reader of copied segments over a store, with segments that were uploaded to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.object_store import SimulatedObjectStore, StoreFaults
from ottla.model.ids import Offset
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.tier.reads.reader_limits import ReaderLimits
from ottla.storage.tier.reads.remote_reader_driver import (
    RemoteReader,
    SegmentRead,
    open_remote_reader,
)
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.segment_upload_driver import upload_segment
from ottla.storage.tier.store_seam import ObjectStore
from tests.storage.tier.segment_in_memory import SegmentInMemory, upload_of
from tests.storage.tier.segments import NAMES

TOPIC = NAMES.topic
DIRECTORY = "/data/tier-cache"
END = Offset(1 << 62)


def simulated_store(seed: int = 0, faults: StoreFaults | None = None) -> SimulatedObjectStore:
    return SimulatedObjectStore(Chance(seed), faults or StoreFaults())


def simulated_disk(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk(Chance(seed), pause=trio.lowlevel.checkpoint)


@asynccontextmanager
async def opened_reader(
    store: ObjectStore, disk: SimulatedDisk | None = None, **limits: int | float
) -> AsyncIterator[RemoteReader]:
    errors = UnexpectedErrors()
    async with open_remote_reader(
        store,
        disk or simulated_disk(),
        DIRECTORY,
        cluster_id=NAMES.cluster_id,
        limits=ReaderLimits(**limits),  # type: ignore[arg-type]
        errors=errors,
    ) as reader:
        yield reader
    assert not errors.counts


async def uploaded(
    store: ObjectStore, source: SegmentInMemory, number: int = 0, *, partition: int = 7
) -> RemoteSegment:
    upload = upload_of(number, partition=partition)
    return (await upload_segment(store, source, upload)).remote_segment


def model_read(
    source: SegmentInMemory, offset: int, end_offset: int, bytes_max: int, at_least_one: bool
) -> bytes:
    """Return the result of a read, computed from the list of batches."""
    records = b""
    for base, last, position, end in source.batches:
        if last < offset or base >= end_offset:
            continue
        batch = source.log[position:end]
        if len(records) + len(batch) > bytes_max and (records or not at_least_one):
            break
        records += batch
        if len(records) >= bytes_max:
            break
    return records


async def read(
    reader: RemoteReader,
    segment: RemoteSegment,
    offset: int,
    *,
    end_offset: int = END,
    bytes_max: int = 1 << 20,
    at_least_one: bool = True,
    following: RemoteSegment | None = None,
) -> SegmentRead:
    return await reader.read(
        TOPIC,
        segment,
        Offset(offset),
        end_offset=Offset(end_offset),
        bytes_max=bytes_max,
        at_least_one=at_least_one,
        following=following,
    )


async def read_all(
    reader: RemoteReader,
    segment: RemoteSegment,
    *,
    bytes_max: int = 1 << 20,
    following: RemoteSegment | None = None,
) -> bytes:
    """Read a segment from its start to its end."""
    records, offset = b"", segment.start_offset
    while offset <= segment.end_offset:
        found = await read(reader, segment, offset, bytes_max=bytes_max, following=following)
        assert found.end_offset > offset
        records += found.records
        offset = found.end_offset
    return records
