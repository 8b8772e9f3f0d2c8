"""Offsets that wait for the end of the transaction they were committed in.  Pure.

What is in the log later wins, so a commit that waits is superseded by whatever is written of its
partition after it: another commit, or another transaction's that ended before.  A tombstone takes
it away.
"""

from collections.abc import Iterator

from ottla.broker.groups.offsets import CommittedOffset, TopicAndIndex

OffsetPlace = tuple[str, str, int]
"""Group, topic and partition."""


class PendingOffset:
    """One offset of an open transaction."""

    __slots__ = ("is_superseded", "offset", "order")

    def __init__(self, offset: CommittedOffset, order: int) -> None:
        self.offset = offset
        self.order = order
        """Its place among all pending offsets, as in the log."""
        self.is_superseded = False


class PendingOffsets:
    """The offsets of all open transactions, by producer and by group."""

    __slots__ = ("_by_group", "_by_producer", "_written_count")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetPlace, PendingOffset]] = {}
        self._by_group: dict[str, dict[TopicAndIndex, set[int]]] = {}
        """The producers whose offsets wait."""
        self._written_count = 0

    def __len__(self) -> int:
        """Return how many offsets wait."""
        return sum(map(len, self._by_producer.values()))

    def put(
        self, producer_id: int, group: str, topic: str, index: int, offset: CommittedOffset
    ) -> None:
        """Have an offset wait for the end of its producer's transaction."""
        self._written_count += 1
        waiting = self._by_producer.setdefault(producer_id, {})
        waiting[group, topic, index] = PendingOffset(offset, self._written_count)
        waiting_here = self._by_group.setdefault(group, {})
        waiting_here.setdefault((topic, index), set()).add(producer_id)

    def supersede(self, group: str, topic: str, index: int) -> None:
        """Note that a commit of no transaction is written after what waits here."""
        if not self._by_group:
            return
        for producer_id in self._by_group.get(group, {}).get((topic, index), ()):
            self._by_producer[producer_id][group, topic, index].is_superseded = True

    def drop(self, group: str, topic: str, index: int) -> None:
        """Forget what waits here: a tombstone is written after it."""
        for producer_id in list(self._by_group.get(group, {}).get((topic, index), ())):
            self._remove(producer_id, (group, topic, index))

    def end(
        self, producer_id: int, *, is_commit: bool
    ) -> list[tuple[OffsetPlace, CommittedOffset]]:
        """End a transaction; return the offsets that count from now, in the order of the log."""
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
        """Return whether an open transaction has committed this partition."""
        waiting = self._by_group.get(group)
        return waiting is not None and (topic, index) in waiting

    def find(self, group: str, topic: str, index: int) -> CommittedOffset | None:
        """Return an offset that waits here, None if there is none."""
        for producer_id in self._by_group.get(group, {}).get((topic, index), ()):
            return self._by_producer[producer_id][group, topic, index].offset
        return None

    def has_group(self, group: str) -> bool:
        """Return whether an open transaction has committed anything of the group."""
        return group in self._by_group

    def of_group(self, group: str) -> list[TopicAndIndex]:
        """Return the partitions of a group that open transactions have committed."""
        return list(self._by_group.get(group, ()))

    @property
    def group_ids(self) -> Iterator[str]:
        """The groups that open transactions have committed anything of."""
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
