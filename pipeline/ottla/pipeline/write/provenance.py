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

from collections.abc import Iterable
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


StampedRow = tuple[bytes | memoryview | None, bytes | memoryview | None, Headers, int]
"""A row's key, value and headers, and among how many partitions its own was chosen (0: it names
one)."""


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

    def next_turns(self, topic: str, row_count: int, partition_count: int) -> list[int]:
        """Return the partitions of the next rows that have neither key nor partition."""
        assert partition_count > 0
        first = self._turns.get(topic, 0)
        self._turns[topic] = first + row_count
        begin = self._write.batch + self._write.partition
        return [
            (begin + row // ROWS_PER_TURN) % partition_count
            for row in range(first, first + row_count)
        ]

    @property
    def fixed(self) -> bytes:
        """The headers, of ours, that every record has, and the start of the next one."""
        return self._same + SEQ_BEGIN

    def number(
        self, topic: str, partition: int, rows: Iterable[StampedRow]
    ) -> tuple[int, list[int]]:
        """Number the next records of a topic-partition; return the first number, and all checks."""
        first, check = self._counts.get((topic, partition), (0, 0))
        checks: list[int] = []
        add = checks.append
        for key, value, headers, chosen_among in rows:
            check ^= chosen_among << 16
            check = crc32(b"0", check) if key is None else crc32(key, check ^ len(key) + 1)
            check = crc32(b"0", check) if value is None else crc32(value, check ^ len(value) + 1)
            for name, content in headers:
                check = _fold(content, crc32(name.encode(), check))
            add(check)
        self._counts[topic, partition] = first + len(checks), check
        return first, checks

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
        seq, (check,) = self.number(topic, partition, [(key, value, headers, chosen_among)])
        own = b"".join(encode_header(name, content) for name, content in headers)
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
