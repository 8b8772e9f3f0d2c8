"""Copied segments in memory, for tests of requests."""

from dataclasses import dataclass, field

import trio

from ottla.broker.tier.remote_reads import NOTHING_COPIED, RemoteNotFoundError, RemoteRead
from ottla.model.ids import Offset, OffsetAndEpoch, TopicIdPartition
from ottla.storage.log.log import Log
from ottla.storage.segments.timestamp_lookup import TimestampedOffset


@dataclass
class FakeRemoteReads:
    """Copied batches of partitions. A call waits at `gate`, then raises `error` if it is set."""

    batches: dict[TopicIdPartition, list[tuple[Offset, bytes]]] = field(default_factory=dict)
    """End offset and bytes of each copied batch, in the order of offsets."""
    aborted: list[tuple[int, Offset]] = field(default_factory=list)
    times: list[TimestampedOffset] = field(default_factory=list)
    highest: dict[TopicIdPartition, OffsetAndEpoch | None] = field(default_factory=dict)
    error: Exception | None = None
    gate: trio.Event | None = None
    reads: list[tuple[TopicIdPartition, Offset, int]] = field(default_factory=list)
    """Partition, offset and maximum number of bytes of each read so far."""
    running_count: int = 0

    def highest_remote(self, partition: TopicIdPartition) -> OffsetAndEpoch | None:
        return self.highest.get(partition, NOTHING_COPIED)

    async def read(
        self,
        partition: TopicIdPartition,
        log: Log,
        offset: Offset,
        *,
        bytes_max: int,
        at_least_one: bool,
        read_committed: bool,
    ) -> RemoteRead:
        self.reads.append((partition, offset, bytes_max))
        await self._wait()
        found = b""
        for end_offset, batch in self.batches.get(partition, []):
            if end_offset <= offset:
                continue
            if len(found) + len(batch) > bytes_max and (found or not at_least_one):
                return RemoteRead(found, tuple(self.aborted) if read_committed else ())
            found += batch
        if not found:
            raise RemoteNotFoundError(f"offset {offset} is not copied")
        return RemoteRead(found, tuple(self.aborted) if read_committed else ())

    async def offset_for_timestamp(
        self, partition: TopicIdPartition, log: Log, timestamp_ms: int, *, end_offset: Offset
    ) -> TimestampedOffset | None:
        await self._wait()
        for found in self.times:
            if found.timestamp_ms >= timestamp_ms and found.offset < end_offset:
                return found
        return None

    async def _wait(self) -> None:
        self.running_count += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.running_count -= 1
