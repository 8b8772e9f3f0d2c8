"""Log of a partition that a share group consumes: batches that compaction and retention remove.
Everything is in memory: the module does no I/O."""

from ottla.broker.shares.share_partition import LogBatch
from ottla.jepsen.world.chance import Chance
from ottla.model.ids import Offset
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import Record

BATCH_RECORDS_MAX = 5
READ_BATCHES_MAX = 4


class ShareLog:
    """The batches of a consumed partition between the log start offset and the end offset, with
    gaps where batches were removed."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self.batches: list[LogBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.records: set[int] = set()
        """Offsets of all records of the log that consumers can still read."""

    def append(self) -> LogBatch:
        """Append a batch of a few records to the partition's log, or occasionally a control
        batch."""
        is_control = self._chance.below(8) == 7
        size = 1 if is_control else 1 + self._chance.below(BATCH_RECORDS_MAX)
        batch = LogBatch(self.end_offset, self.end_offset + size - 1, not is_control)
        self.batches.append(batch)
        self.end_offset += size
        self._count_records()
        return batch

    def compact(self) -> bool:
        """Remove a batch of the partition's log that is not the last one. Returns False if there is
        no such batch."""
        if len(self.batches) < 2:
            return False
        del self.batches[self._chance.below(len(self.batches) - 1)]
        self._count_records()
        return True

    def delete_before(self, offset: int) -> None:
        """Move the log start offset to `offset`, and remove the batches below it."""
        self.start_offset = max(self.start_offset, offset)
        self.batches = [one for one in self.batches if one.last_offset >= self.start_offset]
        self._count_records()

    def read(self, offset: int) -> list[LogBatch]:
        """Return some batches of the partition's log, beginning with the batch that contains the
        offset, or else with the next batch."""
        found = [one for one in self.batches if one.last_offset >= offset]
        return found[: 1 + self._chance.below(READ_BATCHES_MAX)]

    def encoded(self, offset: int) -> bytes:
        """Return, in encoded form, the batches that a read of the log from an offset returns."""
        found = []
        for batch in self.read(offset):
            builder = BatchBuilder()
            for at in range(batch.first_offset, batch.last_offset + 1):
                builder.append(*record_at(at)[1:])
            base_offset = Offset(batch.first_offset)
            found.append(builder.build(base_offset=base_offset, is_control=not batch.is_delivered))
        return b"".join(found)

    def _count_records(self) -> None:
        self.records = {
            offset
            for batch in self.batches
            if batch.is_delivered
            for offset in range(max(batch.first_offset, self.start_offset), batch.last_offset + 1)
        }


def record_at(offset: int) -> Record:
    """Return the content of the record at an offset, which depends only on the offset."""
    headers = (("trace", b"%d" % offset),)
    return Record(Offset(offset), 5_000 - offset, b"k%d" % offset, b"v%d" % offset, headers)
