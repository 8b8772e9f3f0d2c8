"""Which write a record comes from: the headers by which a reader knows a record written twice.

Spark repeats a task, or a whole batch, whose end it did not learn of; what the first attempt had
written is then in the topic twice.  So each record says which write it belongs to (query, batch and
task, as `WriteId`), and its number among the records of that task in its topic-partition.  Pure.
Invariants:

SameRowsSameHeaders   a task that is given the same rows in the same order writes the same records,
                      headers and all, to the same partitions: nothing here depends on chance
EachPartitionCounts   a task's records in one partition are numbered 0, 1, 2, … without gaps
ChangesShow           `spark.check` covers every row of the task in that partition up to this one:
                      where two attempts wrote different rows it differs
"""

from typing import NamedTuple
from zlib import crc32

from ottla.wire.batch_builder import EncodedHeaders, Headers, encode_header, varint

QUERY = "spark.query"
BATCH = "spark.batch"
PARTITION = "spark.partition"
SEQ = "spark.seq"
CHECK = "spark.check"
NAMES = (QUERY, BATCH, PARTITION, SEQ, CHECK)
"""The headers of a record, in their order: the last ones that it has."""
OVERHEAD_BYTES_MAX = 250
"""What they add to a record, at most, where the query's name is a UUID.  In a batch of records they
are alike but for a few digits, so compression all but removes them."""

SEQ_BEGIN = encode_header(SEQ, b"")[:-1]
CHECK_BEGIN = encode_header(CHECK, b"%08x" % 0)[:-8]
"""What these two begin with in every record."""

ROWS_PER_TURN = 500
"""Rows without a key stay on one partition for so many, then go to the next.  Fewer make small
batches, more make uneven partitions."""


class WriteId(NamedTuple):
    """Which task wrote: attempts at the same task have the same."""

    query: str
    """The streaming query's id, which its checkpoint keeps; else what the user or chance gave."""
    batch: int
    """The query's batch: grows from batch to batch, stays where one is repeated."""
    partition: int
    """The number of the task in its batch: Spark's partition id."""


class Stamps:
    """Numbers the rows of one task, in the order in which they are written."""

    __slots__ = ("_counts", "_same", "_turns", "_write")

    def __init__(self, write: WriteId) -> None:
        assert write.batch >= 0
        assert write.partition >= 0
        self._write = write
        texts = (QUERY, write.query), (BATCH, str(write.batch)), (PARTITION, str(write.partition))
        self._same = b"".join(encode_header(name, text.encode()) for name, text in texts)
        """The headers that every record of the task has."""
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}
        self._turns: dict[str, int] = {}

    def next_turn(self, topic: str, partition_count: int) -> int:
        """Return the partition of the next row that has neither key nor partition."""
        assert partition_count > 0
        row = self._turns.get(topic, 0)
        self._turns[topic] = row + 1
        write = self._write
        return (write.batch + write.partition + row // ROWS_PER_TURN) % partition_count

    def stamp(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        chosen_among: int = 0,
    ) -> EncodedHeaders:
        """Return the headers of the next record of a topic-partition: its own, then ours.

        `chosen_among` is the number of partitions among which this one was chosen, 0 where the row
        names it: a repetition after partitions were added sends its rows elsewhere, and that must
        show.
        """
        at = topic, partition
        seq, check = self._counts.get(at, (0, 0))
        check = _fold(value, _fold(key, check ^ chosen_among << 16))
        own = b""
        for name, content in headers:
            check = _fold(content, crc32(name.encode(), check))
            own += encode_header(name, content)
        self._counts[at] = seq + 1, check
        number = b"%d" % seq
        return b"".join(
            (
                varint(len(headers) + len(NAMES)),
                own,
                self._same,
                SEQ_BEGIN,
                varint(len(number)),
                number,
                CHECK_BEGIN,
                b"%08x" % check,
            )
        )


def _fold(content: bytes | None, check: int) -> int:
    if content is None:
        return crc32(b"0", check)
    return crc32(content, check ^ len(content) + 1)
