"""What a stream of rollups remembers between its batches, kept in the directory of its checkpoint.

Batch n reads what batch n - 1 left and leaves what batch n + 1 reads; the two lie in two slots that
take turns.  So a batch that is run again, because its process died before Spark knew that it was
done, finds what it found the first time, whatever it had written: LedgerIsOneBatchBehind.
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
"""Types of all columns of a slot that are no text."""


class Memory(NamedTuple):
    """What one batch leaves to the next."""

    seen: DataFrame
    """Pushes of late (`SEEN`), so that a copy of one is known."""
    heads: DataFrame | None
    """The last point of every cumulative series (`HEAD`); None where there was no such series."""
    open: DataFrame
    """What belongs to windows that are not over (`OPEN`)."""
    newest_ms: int | None
    """When the newest push of all was received; None before there was any."""


class SlotLedger:
    """The slots of one query; writes nothing but them."""

    def __init__(self, spark: SparkSession, directory: str, query_id: str) -> None:
        self._spark = spark
        self._directory = directory
        self._query_id = query_id

    def before(self, batch_id: int) -> Memory:
        """Return what the batch before left; nothing before batch 0.

        CorruptDataError when it is not there: then the checkpoint is not this ledger's.
        """
        if batch_id == 0:
            slot = self._spark.createDataFrame([], schema_of(("part", *SLOT)))
            return _memory(slot, None, has_heads=False)
        path = self._slot(batch_id - 1)
        try:
            slot = self._spark.read.schema(schema_of(("part", *SLOT))).parquet(path)
            found = slot.filter("part = 'meta'").select(*META).collect()
        except AnalysisException:  # there is no such directory
            found = []
        if [(row.query_id, row.batch_id) for row in found] != [(self._query_id, batch_id - 1)]:
            raise CorruptDataError(
                f"{path} is not what batch {batch_id - 1} left; remove the checkpoint that it "
                "belongs to and the output, and begin again"
            )
        return _memory(slot, found[0].newest_ms, has_heads=found[0].has_heads)

    def write(self, batch_id: int, memory: Memory) -> None:
        """Keep what a batch leaves, in the place of what the batch before the last left."""
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
        # What is written is little, and most of it cached; files are what costs.
        few = whole.coalesce(self._spark.sparkContext.defaultParallelism)
        few.write.mode("overwrite").parquet(self._slot(batch_id))

    def _slot(self, batch_id: int) -> str:
        return f"{self._directory}/slot-{batch_id % SLOTS}"


def schema_of(columns: Iterable[str]) -> str:
    """Return columns of a slot as Spark's DDL."""
    return ", ".join(f"{name} {TYPES.get(name, 'string')}" for name in columns)


SLOT = tuple(dict.fromkeys((*META, *SEEN, *HEAD, *OPEN)))
"""Every column of a slot but `part`, once."""


def _memory(slot: DataFrame, newest_ms: int | None, *, has_heads: bool) -> Memory:
    def part(name: str, columns: Iterable[str]) -> DataFrame:
        return slot.filter(F.col("part") == name).select(*columns)

    heads = part("head", HEAD) if has_heads else None
    return Memory(part("seen", SEEN), heads, part("open", OPEN), newest_ms)
