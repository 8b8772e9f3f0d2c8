"""Choice of a partition for records that are sent without a partition.

Pure. If the application has a partitioner of its own, this partitioner is called first. If it
returns None, or if the application has none, the setting `partitioner` decides for records with
keys. Records without keys are sent to the sticky partition of their topic.
"""

from collections import defaultdict
from collections.abc import Sequence

from ottla.client.produce.accumulator import record_bytes
from ottla.client.produce.many_records import Chunk
from ottla.client.produce.partitioner import (
    PartitionChoice,
    Partitioner,
    StickyPartitions,
    UnplacedRecord,
    no_partition,
)


class RecordPlacement:
    """The partitioners of one producer, in order of precedence."""

    __slots__ = ("_choose", "_partitioner", "_sticky", "has_choice")

    def __init__(
        self,
        partitioner: Partitioner,
        sticky: StickyPartitions,
        choose: PartitionChoice | None = None,
    ) -> None:
        self._partitioner = partitioner
        self._sticky = sticky
        self._choose = choose
        self.has_choice = choose is not None
        """True if the application has a partitioner of its own."""

    def chosen(self, record: UnplacedRecord) -> int | None:
        """Return the partition that the application's partitioner chooses, or None if the setting
        `partitioner` decides.

        Raises RefusedError if the topic does not have the chosen partition.
        """
        assert self._choose is not None
        if not record.available:
            record = record._replace(available=record.partitions)
        partition = self._choose(record)
        if partition is not None and partition not in record.partitions:
            raise no_partition(record.topic, partition)
        return partition

    def deal(
        self,
        topic: str,
        chunk: Chunk,
        partition: int | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> dict[int, Sequence[int]]:
        """Choose the partition of each record in a chunk, as `send` does. Returns the indexes of
        the records within the `send_many` call, by partition."""
        everything = range(chunk.first, chunk.first + len(chunk.values))
        if partition is not None:
            return {partition: everything}
        if chunk.keys is None and not self.has_choice:
            # All records of the chunk without a key go to one partition, so that batches fill.
            size_bytes = sum(map(len, filter(None, chunk.values)))
            return {self._sticky.choose(topic, available, size_bytes): everything}
        keys = chunk.keys or [None] * len(chunk.values)
        dealt: dict[int, list[int]] = defaultdict(list)
        for position, key, value in zip(everything, keys, chunk.values, strict=True):
            number = None
            if self.has_choice:
                record = UnplacedRecord(topic, key, value, partitions, available)
                number = self.chosen(record)
            if number is None:
                number = self._partitioner.partition_of(key, len(partitions))
            if number is None:
                number = self._sticky.choose(topic, available, record_bytes(key, value, ()))
            dealt[number].append(position)
        found: dict[int, Sequence[int]] = {**dealt}
        return found
