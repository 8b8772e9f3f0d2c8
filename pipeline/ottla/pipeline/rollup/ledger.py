"""State of a rollup stream between its batches, stored in the directory of the stream's checkpoint.

Batch n reads the state that batch n - 1 has written, and writes its own state for batch n + 1. Two
slots are used alternately. If a process dies before Spark has recorded a batch, the batch is run
again. It then reads the same state as the first time, regardless of its earlier output (invariant
LedgerIsOneBatchBehind).
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own way to write it

from ottla.model.errors import CorruptDataError
from ottla.pipeline.rollup.frames import CONTRIBUTION, HEAD

SLOTS = 2
SEEN = ("push_id", "received_ms")
OPEN = (*CONTRIBUTION, "window_ms")
META = ("query_id", "batch_id", "newest_ms", "has_heads")

TYPES = {
    "broker_id": "int",
    "ordinal": "int",
    "received_ms": "bigint",
    "window_ms": "bigint",
    "newest_ms": "bigint",
    "batch_id": "bigint",
    "has_heads": "boolean",
    "at_ns": "bigint",
    "start_ns": "bigint",
    "value": "double",
    "count": "bigint",
    "sum": "double",
    "bounds": "array<double>",
    "counts": "array<bigint>",
}
"""Spark types of the columns in a state slot of a rollup stream, by column name. All other columns
are text."""


class Memory(NamedTuple):
    """State that one batch of a rollup stream stores for the next batch."""

    seen: DataFrame
    """Recent pushes (clients' reports of metrics, columns `SEEN`), by which copies are detected."""
    heads: DataFrame | None
    """Last point of every cumulative metric series (columns `HEAD`), or None if there was no such
    series."""
    open: DataFrame
    """Metric points of time windows that are not over yet (columns `OPEN`)."""
    newest_ms: int | None
    """Time in ms since 1970 at which a broker received the newest push, or None before the first
    push."""


class SlotLedger:
    """The two state slots of one rollup stream, in the directory of its checkpoint. It writes no
    other files."""

    def __init__(self, spark: SparkSession, directory: str, query_id: str) -> None:
        self._spark = spark
        self._directory = directory
        self._query_id = query_id

    def before(self, batch_id: int) -> Memory:
        """Return the state that the previous batch of the rollup stream has written. It is empty
        for batch 0.

        Raises CorruptDataError if the previous batch's state is missing: the checkpoint then does
        not belong to this ledger.
        """
        if batch_id == 0:
            slot = self._spark.createDataFrame([], schema_of(("part", *SLOT)))
            return _memory(slot, None, has_heads=False)
        path = self._slot(batch_id - 1)
        try:
            slot = self._spark.read.schema(schema_of(("part", *SLOT))).parquet(path)
            found = slot.filter("part = 'meta'").select(*META).collect()
        except AnalysisException:  # The directory does not exist.
            found = []
        if [(row.query_id, row.batch_id) for row in found] != [(self._query_id, batch_id - 1)]:
            raise CorruptDataError(
                f"{path} is not what batch {batch_id - 1} left; remove the checkpoint that it "
                "belongs to and the output, and begin again"
            )
        return _memory(slot, found[0].newest_ms, has_heads=found[0].has_heads)

    def write(self, batch_id: int, memory: Memory) -> None:
        """Write the state of a rollup stream's batch. It overwrites the state of the batch before
        the previous one."""
        meta = self._spark.createDataFrame(
            [(self._query_id, batch_id, memory.newest_ms, memory.heads is not None)],
            schema_of(META),
        )
        whole = meta.withColumn("part", F.lit("meta"))
        parts = (
            ("seen", SEEN, memory.seen),
            ("head", HEAD, memory.heads),
            ("open", OPEN, memory.open),
        )
        for name, columns, part in parts:
            if part is not None:
                named = part.select(*columns).withColumn("part", F.lit(name))
                whole = whole.unionByName(named, allowMissingColumns=True)
        # The data are small and mostly cached, so the number of files determines the cost.
        few = whole.coalesce(self._spark.sparkContext.defaultParallelism)
        few.write.mode("overwrite").parquet(self._slot(batch_id))

    def _slot(self, batch_id: int) -> str:
        return f"{self._directory}/slot-{batch_id % SLOTS}"


def schema_of(columns: Iterable[str]) -> str:
    """Return the Spark DDL (names and types) of the given columns in the state table of a rollup
    stream."""
    return ", ".join(f"{name} {TYPES.get(name, 'string')}" for name in columns)


SLOT = tuple(dict.fromkeys((*META, *SEEN, *HEAD, *OPEN)))
"""All columns of the table in which a rollup stream stores its state, except `part`. Each column
occurs once."""


def _memory(slot: DataFrame, newest_ms: int | None, *, has_heads: bool) -> Memory:
    def part(name: str, columns: Iterable[str]) -> DataFrame:
        return slot.filter(F.col("part") == name).select(*columns)

    heads = part("head", HEAD) if has_heads else None
    return Memory(part("seen", SEEN), heads, part("open", OPEN), newest_ms)
