"""Finds the copied segments that contain the offset ranges of a query, in Spark's driver.

Blocking: it sends requests to the object store and to the cluster.
"""

import time
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition, uuid_text
from ottla.pipeline.loop_thread import start_loop_thread
from ottla.pipeline.read.cluster_queries import ClusterQueries
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.segment_splits import SharedEnd, segments_with_aborts, split_range
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.tier.bucket_driver import (
    read_index,
    read_manifests,
    read_owner,
    read_partition,
    within_deadline,
)
from ottla.storage.tier.bucket_scan import BucketScan, ListedSegment
from ottla.storage.tier.manifest import IndexKind, SegmentManifest
from ottla.storage.tier.object_names import partition_prefix
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.store_seam import ObjectNotFoundError
from ottla.storage.tier.store_settings import StoreSettings
from ottla.storage.tier.stored_partition import Piece, StoredPartition

LATER_SEGMENTS = 4
"""Maximum number of segments after a range that are also examined, because transactions of the
range may end in them."""
LIST_AGAIN_S = 60.0
"""Minimum time in seconds between two listings of a partition's objects, if the ranges begin after
its last copied record. Otherwise, a stream that reads at the ends of its logs would list the bucket
for each of its batches."""
MANIFESTS_KEPT = 20_000


class _ListedLog(NamedTuple):
    """Result of the last listing of a partition's objects: its time, and the end of the copied
    log."""

    listed_s: float
    log_end: Offset


class SegmentPlanner:
    """Finds the copied segments for one query. The caller must close it."""

    def __init__(self, settings: StoreSettings, asking: ClusterQueries, *, is_committed: bool):
        self._asking = asking
        self._is_committed = is_committed
        self._loop = start_loop_thread()
        try:
            self._store = self._loop.enter(open_object_store(settings))
            self._cluster_id = self._loop.call(read_owner, self._store)
        except BaseException:
            self._loop.close()
            raise
        self._listed: dict[tuple[str, int], _ListedLog] = {}
        self._manifests: dict[UUID, SegmentManifest] = {}

    def close(self) -> None:
        """Close the connections to the object store."""
        self._loop.close()

    def split(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Divide offset ranges into parts, and return these in order. A part with a `copy` is read
        from a copied segment, and any other part from brokers."""
        logs: dict[TopicPartition, StoredPartition] = {}
        for one in ranges:
            at = TopicPartition(one.topic, one.partition)
            if at not in logs and (log := self._log_of(one, ranges)) is not None:
                logs[at] = log
        ends = self._shared_ends(logs)
        aborts = {
            at: self._loop.call(self._aborts, log.pieces) if self._is_committed else None
            for at, log in logs.items()
        }
        parts: list[OffsetRange] = []
        for one in ranges:
            at = TopicPartition(one.topic, one.partition)
            if at in logs:
                parts += split_range(
                    one,
                    self._cluster_id,
                    logs[at],
                    shared_end=ends[at],
                    aborted_in=aborts[at],
                )
            else:
                parts.append(one)
        return parts

    def _log_of(self, one: OffsetRange, ranges: Sequence[OffsetRange]) -> StoredPartition | None:
        """Return the part of a partition's copied log that the ranges need. Returns None if the
        copied log has no record of the ranges."""
        key = (one.topic_id, one.partition)
        own = [row for row in ranges if (row.topic_id, row.partition) == key]
        start, end = min(row.start for row in own), max(row.end for row in own)
        known = self._listed.get(key)
        now_s = time.monotonic()
        if not one.topic_id or start >= end:
            return None
        if known is not None and start >= known.log_end and now_s - known.listed_s < LIST_AGAIN_S:
            return None
        log = self._loop.call(self._read_log, one, start, end)
        self._listed[key] = _ListedLog(now_s, log.end_offset if log else Offset(0))
        return log

    async def _read_log(self, one: OffsetRange, start: int, end: int) -> StoredPartition | None:
        scan = BucketScan(self._cluster_id)
        topic_id = topic_id_of(one.topic_id)
        prefix = partition_prefix(self._cluster_id, one.topic, topic_id, one.partition)
        listing = self._store.entries(prefix)
        while True:
            try:
                scan.add(await within_deadline(listing.__anext__()))
            except StopAsyncIteration:
                break
        segments = [row for row in scan.segments if row.has_manifest]
        wanted = _around(segments, start, end)
        missing = [row for row in wanted if row.names.segment_id not in self._manifests]
        if len(self._manifests) > MANIFESTS_KEPT:
            self._manifests.clear()
            missing = wanted
        found, _ = await read_manifests(self._store, missing)
        self._manifests |= {manifest.segment_id: manifest for manifest in found}
        manifests = [
            self._manifests[row.names.segment_id]
            for row in wanted
            if row.names.segment_id in self._manifests
        ]
        if not manifests:
            return None
        try:
            return await read_partition(self._store, manifests)
        except (CorruptDataError, ObjectNotFoundError):
            return None  # brokers may have the records

    def _shared_ends(
        self, logs: Mapping[TopicPartition, StoredPartition]
    ) -> dict[TopicPartition, Offset]:
        searches = {at: SharedEnd(log) for at, log in logs.items()}
        while asked := {
            at: search.epoch for at, search in searches.items() if search.epoch is not None
        }:
            found = self._asking.epoch_ends(asked)
            for at in asked:
                searches[at].on_answer(found[at])
        return {at: search.end_offset for at, search in searches.items()}

    async def _aborts(
        self, pieces: Sequence[Piece]
    ) -> dict[UUID, tuple[RemoteSegment, ...] | None]:
        """Return, for each segment, the segments that list its aborted transactions, as
        `segments_with_aborts` does."""
        open_since: dict[UUID, Offset | None] = {}
        for piece in pieces:
            manifest = piece.manifest
            try:
                data = await read_index(self._store, manifest, IndexKind.PRODUCERS)
                states = decode_snapshot(data, Offset(manifest.end_offset + 1))
            except (CorruptDataError, ObjectNotFoundError):
                continue
            open_since[manifest.segment_id] = min(
                (
                    one.txn_first_offset
                    for one in states.producers.values()
                    if one.txn_first_offset >= 0
                ),
                default=None,
            )
        return segments_with_aborts(pieces, open_since)


def topic_id_of(text: str) -> UUID:
    """Parse a topic id in Kafka's text form (base64), and return it."""
    topic_id = UUID(bytes=urlsafe_b64decode(f"{text}=="))
    assert uuid_text(topic_id) == text
    return topic_id


def _around(segments: Sequence[ListedSegment], start: int, end: int) -> list[ListedSegment]:
    """Return the segments that may have records of a range, up to LATER_SEGMENTS segments after
    them, and segments that may be the last of the log."""
    first = max(
        (row.names.start_offset for row in segments if row.names.start_offset <= start), default=0
    )
    last = max((row.names.start_offset for row in segments), default=0)
    later = [row.names.start_offset for row in segments if row.names.start_offset >= end]
    bound = later[: LATER_SEGMENTS + 1][-1] if later else end
    return [
        row
        for row in segments
        if first <= row.names.start_offset < max(end, bound) or row.names.start_offset == last
    ]
