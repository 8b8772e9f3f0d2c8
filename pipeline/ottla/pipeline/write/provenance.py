"""Provenance of records: headers by which a reader detects a record that was written twice. Pure.

Spark repeats a task or a whole batch if it has not received the report of its end. The topic then
contains the records of the first attempt twice. Each record therefore identifies the task that
wrote it (query, batch and task, as `WriteId`), and contains its number among the records that this
task wrote to its partition. Invariants:

- SameRowsSameHeaders: a task with the same rows in the same order writes the same records,
  including headers, to the same partitions.  Nothing is random.
- EachPartitionCounts: a task's records in one partition are numbered 0, 1, 2, … without gaps.
- ChangesShow: `spark.check` covers every row of the task in that partition up to this one.  It
  differs if two attempts wrote different rows.
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
"""Names of the headers that identify the task that wrote a record, in order. They follow a record's
own headers."""
OVERHEAD_BYTES_MAX = 250
"""Maximum size in bytes of the headers that identify the task that wrote a record, if the query's
name is a UUID. They differ only in a few digits within a batch of records, so compression almost
removes them."""

SEQ_BEGIN = encode_header(SEQ, b"")[:-1]
CHECK_BEGIN = encode_header(CHECK, b"%08x" % 0)[:-8]
"""Constant beginnings of the encoded headers SEQ and CHECK."""

ROWS_PER_TURN = 500
"""Number of rows without a key that are written to one partition before the next partition is used.
With fewer rows, record batches are small; with more, the sizes of partitions differ more."""


class WriteId(NamedTuple):
    """Identity of a Spark task (query, batch and task), which is the same for all attempts at the
    task."""

    query: str
    """Id of the streaming query, from its checkpoint. For a batch query, the id that the user has
    set, or a random id."""
    batch: int
    """Number of the Spark batch in its query. It increases from batch to batch, and is the same if
    a batch is repeated."""
    partition: int
    """Number of the Spark task in its batch: Spark's partition id."""


StampedRow = tuple[bytes | memoryview | None, bytes | memoryview | None, Headers, int]
"""A row's key, value and headers, and the number of topic partitions among which its partition was
chosen (0 if the row names its partition)."""


class Stamps:
    """Sequence numbers of the rows that one Spark task writes, in the order of writing."""

    __slots__ = ("_counts", "_same", "_turns", "_write")

    def __init__(self, write: WriteId) -> None:
        assert write.batch >= 0
        assert write.partition >= 0
        self._write = write
        texts = (QUERY, write.query), (BATCH, str(write.batch)), (PARTITION, str(write.partition))
        self._same = b"".join(encode_header(name, text.encode()) for name, text in texts)
        """Headers that identify the task and are the same for all its records."""
        self._counts: dict[tuple[str, int], tuple[int, int]] = {}
        self._turns: dict[str, int] = {}

    def next_turns(self, topic: str, row_count: int, partition_count: int) -> list[int]:
        """Return the partitions for the next rows of a topic that have neither a key nor a
        partition. These rows are distributed round-robin."""
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
        """Encoded headers common to all records of the task, followed by the constant start of the
        header SEQ."""
        return self._same + SEQ_BEGIN

    def number(
        self, topic: str, partition: int, rows: Iterable[StampedRow]
    ) -> tuple[int, list[int]]:
        """Number the next records that the task writes to a topic-partition. Returns the number of
        the first record, and the value of the header CHECK for each record."""
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
        """Return the headers of the next record of a topic-partition: the record's own headers,
        followed by its provenance headers.

        `chosen_among` is the number of partitions among which its partition was chosen, or 0 if the
        row names its partition. This number is part of the header CHECK. If partitions were added,
        a repeated task writes its rows to other partitions, and a reader must be able to detect
        this.
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
