"""Checks of the contents of a simulated object store at the end of a run.

Invariants:

- RestoredOnce: the log that a restore puts together has each record once, without a gap;
- RestoredInOneLineage: the restored records belong to one lineage. If the newest copied segment
  belongs to the lineage of the leader's log, the restored records do, too;
- NoOrphans: each object belongs to a copied segment that some broker knows.
"""

from collections.abc import Iterator
from itertools import pairwise
from uuid import UUID

from ottla.jepsen.world.object_store import SimulatedObjectStore
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.model.ids import Offset, TopicIdPartition
from ottla.storage.segments.epoch_cache import EpochEntry, decode_epochs
from ottla.storage.tier.bucket_scan import BucketScan, ListedSegment
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.manifest import IndexKind, SegmentManifest, decode_manifest
from ottla.storage.tier.object_names import SegmentObject, parse_object_key
from ottla.storage.tier.store_seam import ObjectEntry
from ottla.storage.tier.stored_partition import (
    StoredPartition,
    newest_segment,
    stored_partition,
)
from ottla.wire.batch import batches
from ottla.wire.records import scan


def orphans_in(cluster: SimulatedCluster, store: SimulatedObjectStore) -> list[str]:
    """Return the keys of orphaned objects. Their segments are not in the metadata of any partition
    on a running broker."""
    known: set[UUID] = set()
    for broker in cluster.brokers.values():
        assert broker.tier is not None
        for partition in broker.table:
            metadata = broker.tier.topic.metadata_of(partition.key)
            if metadata is not None:
                known.update(each.id.segment_id for each in metadata.all_segments())
    names = ((key, parse_object_key(key)) for key in store.objects)
    return [key for key, name in names if name and name.names.segment_id not in known]


class BucketLogs:
    """The logs that a restore would put together from a simulated object store."""

    def __init__(self, store: SimulatedObjectStore, cluster_id: str) -> None:
        self._store = store
        self._scan = BucketScan(cluster_id)
        for key, content in store.objects.items():
            self._scan.add(ObjectEntry(key, len(content), 0))

    def check(self, at: TopicIdPartition, lineage: Lineage | None) -> bool:
        """Check the log that a restore of a partition would produce. `lineage` is the lineage of
        the leader's log. Returns True if segments of the partition in the store overlap. Raises
        Violation if an invariant is broken."""
        for topic, partitions in self._scan.by_topic().items():
            if UUID(topic.topic_id) == at.topic_id and at.partition in partitions:
                return self._check(at, partitions[at.partition], lineage)
        return False

    def _check(
        self, at: TopicIdPartition, listed: list[ListedSegment], lineage: Lineage | None
    ) -> bool:
        manifests = [self._manifest(each) for each in listed]
        newest = newest_segment(manifests)
        stored = stored_partition(manifests, self._epochs(newest))
        own = Lineage(stored.epochs, start_offset=stored.start_offset, end_offset=stored.end_offset)
        expected = int(stored.start_offset)
        is_present = lineage is not None and lineage.contains(newest.remote_segment)
        if lineage is not None and is_present:
            expected = max(expected, int(lineage.start_offset))
        for offset, epoch in self._records(stored):
            if offset < expected and lineage is not None and offset < lineage.start_offset:
                continue  # it is expired, and about to be deleted
            if offset != expected and is_present:
                raise Violation("RestoredOnce", f"{at}: {offset} follows {expected - 1}")
            if offset < expected:
                raise Violation("RestoredOnce", f"{at}: {offset} follows {expected - 1}")
            epochs = [own.epoch_of(Offset(offset))]
            if lineage is not None and is_present:
                epochs.append(lineage.epoch_of(Offset(offset)))
            if any(each != epoch for each in epochs):
                raise Violation(
                    "RestoredInOneLineage", f"{at}: {offset} has epoch {epoch}, not {epochs}"
                )
            expected = offset + 1
        ends = sorted((one.start_offset, one.end_offset) for one in manifests)
        return any(two[0] <= one[1] for one, two in pairwise(ends))

    def _records(self, stored: StoredPartition) -> Iterator[tuple[int, int]]:
        for piece in stored.pieces:
            data = self._store.peek(piece.manifest.names.key(SegmentObject.LOG)) or b""
            for position, header in batches(data):
                for record in scan(data, position, header):
                    if piece.start_offset <= record.offset < piece.end_offset:
                        yield int(record.offset), int(header.partition_leader_epoch)

    def _manifest(self, listed: ListedSegment) -> SegmentManifest:
        key = listed.names.key(SegmentObject.MANIFEST)
        return decode_manifest(self._store.peek(key) or b"", key)

    def _epochs(self, manifest: SegmentManifest) -> tuple[EpochEntry, ...]:
        section = manifest.section(IndexKind.EPOCHS)
        data = self._store.peek(manifest.names.key(SegmentObject.INDEXES)) or b""
        assert section is not None
        return decode_epochs(data[section.start : section.end]).entries
