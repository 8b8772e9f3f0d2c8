"""Stores the offsets that groups committed in transactions that have not ended yet. Pure.

If two records contain offsets of the same partition, the later record in the log takes effect. A
pending offset is therefore superseded by any later commit without a transaction. It is also
superseded by a later offset whose transaction ends earlier. A tombstone deletes it.
"""

from collections.abc import Iterator

from ottla.broker.groups.offsets.committed_offsets import CommittedOffset, TopicAndIndex

OffsetPlace = tuple[str, str, int]
"""Key of a committed offset: group id, topic name and partition index."""


class PendingOffset:
    """Offset that a group committed in a transaction that has not ended yet."""

    __slots__ = ("is_superseded", "offset", "order")

    def __init__(self, offset: CommittedOffset, order: int) -> None:
        self.offset = offset
        self.order = order
        """Position of this offset among all pending offsets, in the order of their records in the
        log."""
        self.is_superseded = False


class PendingOffsets:
    """Pending offsets (committed in open transactions), by producer and by group."""

    __slots__ = ("_by_group", "_by_producer", "_written_count")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetPlace, PendingOffset]] = {}
        self._by_group: dict[str, dict[TopicAndIndex, set[int]]] = {}
        """Ids of the producers whose open transactions have pending offsets, by group and
        partition."""
        self._written_count = 0

    def __len__(self) -> int:
        """Return the number of offsets that wait for the end of their transactions."""
        return sum(map(len, self._by_producer.values()))

    def put(
        self, producer_id: int, group: str, topic: str, index: int, offset: CommittedOffset
    ) -> None:
        """Add an offset that waits for the end of its producer's transaction."""
        self._written_count += 1
        waiting = self._by_producer.setdefault(producer_id, {})
        waiting[group, topic, index] = PendingOffset(offset, self._written_count)
        waiting_here = self._by_group.setdefault(group, {})
        waiting_here.setdefault((topic, index), set()).add(producer_id)

    def supersede(self, group: str, topic: str, index: int) -> None:
        """Mark a group's pending offsets of a partition as superseded, because a later
        non-transactional commit was written."""
        if not self._by_group:
            return
        for producer_id in self._by_group.get(group, {}).get((topic, index), ()):
            self._by_producer[producer_id][group, topic, index].is_superseded = True

    def drop(self, group: str, topic: str, index: int) -> None:
        """Delete a group's pending offsets of a partition, because a tombstone was written for
        it."""
        for producer_id in list(self._by_group.get(group, {}).get((topic, index), ())):
            self._remove(producer_id, (group, topic, index))

    def end(
        self, producer_id: int, *, is_commit: bool
    ) -> list[tuple[OffsetPlace, CommittedOffset]]:
        """End a producer's transaction. Returns the offsets that the transaction commits, in the
        order of the log."""
        committed = []
        for place, pending in list(self._by_producer.get(producer_id, {}).items()):
            self._remove(producer_id, place)
            if not is_commit or pending.is_superseded:
                continue
            committed.append((place, pending.offset))
            group, topic, index = place
            for other_id in self._by_group.get(group, {}).get((topic, index), ()):
                other = self._by_producer[other_id][place]
                if other.order < pending.order:
                    other.is_superseded = True
        return committed

    def is_pending(self, group: str, topic: str, index: int) -> bool:
        """Return True if a group has a pending offset (of an open transaction) in the partition."""
        waiting = self._by_group.get(group)
        return waiting is not None and (topic, index) in waiting

    def find(self, group: str, topic: str, index: int) -> CommittedOffset | None:
        """Return a group's pending offset of a partition (from an open transaction), or None if no
        offset is pending."""
        for producer_id in self._by_group.get(group, {}).get((topic, index), ()):
            return self._by_producer[producer_id][group, topic, index].offset
        return None

    def has_group(self, group: str) -> bool:
        """Return True if the group has a pending offset, which waits for the end of a
        transaction."""
        return group in self._by_group

    def of_group(self, group: str) -> list[TopicAndIndex]:
        """Return the partitions in which a group has pending offsets, which wait for the end of a
        transaction."""
        return list(self._by_group.get(group, ()))

    @property
    def group_ids(self) -> Iterator[str]:
        """Ids of the groups with pending offsets, which wait for the end of a transaction."""
        return iter(self._by_group)

    def _remove(self, producer_id: int, place: OffsetPlace) -> None:
        group, topic, index = place
        waiting = self._by_producer[producer_id]
        del waiting[place]
        if not waiting:
            del self._by_producer[producer_id]
        waiting_here = self._by_group[group]
        producers = waiting_here[topic, index]
        producers.discard(producer_id)
        if not producers:
            del waiting_here[topic, index]
        if not waiting_here:
            del self._by_group[group]
