"""Position up to which a table contains the records of its topic, computed after each batch that a
stream adds to the table. Pure.

The position is an offset in each partition. A stream that writes a table begins at the table's
position, so its batches join the table without gap or overlap (`table_position.EveryRecordOnce`).
"""

import json

from ottla.model.ids import TopicPartition
from ottla.pipeline.export.table_position import (
    ExportProgress,
    LogBounds,
    TablePosition,
    first_position,
    pending_ranges,
)
from ottla.pipeline.read.offsets import StreamPosition


def starting_offsets(position: TablePosition, bounds: LogBounds) -> str:
    """Return the option `startingOffsets` for a stream that begins at a table's position.

    Raises RefusedError if records were lost before they were written, or if the topic was deleted
    and created again.
    """
    pending_ranges(position, bounds)  # raises with both offsets
    offsets = {
        str(partition): position.next_offsets.get(partition, 0) for partition in sorted(bounds.ends)
    }
    return json.dumps({bounds.topic: offsets})


def position_after(
    before: TablePosition | None, end: StreamPosition, topic: str, commit_id: str
) -> TablePosition | None:
    """Return the position to commit to the table together with the rows of a batch that ends at the
    position `end`.

    `before` is None for the first batch of a new table. Returns None if the batch has no offsets.
    Raises RefusedError if the batch does not continue the table.
    """
    ends = {at.partition: offset for at, offset in end.offsets.items() if at.topic == topic}
    begin = end.begin or {}
    starts = {
        partition: begin.get(TopicPartition(topic, partition), 0)
        if before is None
        else before.next_offsets.get(partition, 0)
        for partition in ends
    }
    bounds = LogBounds(topic=topic, topic_id=end.topic_ids.get(topic, ""), starts=starts, ends=ends)
    progress = ExportProgress(before or first_position(bounds))
    ranges = pending_ranges(progress.committed, bounds)
    if not ranges:
        return None
    progress.begin(ranges)
    progress.end()
    return progress.position(commit_id)
