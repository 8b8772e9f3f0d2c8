"""Client metrics in a Spark pipeline: a table of all pushes, which grows, and a view with rollups
of all of them.

The functions are those of `ottla pipeline telemetry`. There, a stream stores only the state that it
needs. Here, all pushes are stored, and each run computes the view from all of them. The totals are
the same and the pipeline is simpler, but there is more work as the table grows.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from ottla.pipeline.rollup import frames
from ottla.pipeline.rollup.frames import RollupOptions

OPTIONS = RollupOptions(window_ms=60_000, by=("client_id", "broker_id"))


@dp.table
def client_pushes() -> DataFrame:
    """Return every record of `__client_metrics`, decoded: its client, its time and its points."""
    spark = SparkSession.active()
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", spark.conf.get("ottla.bootstrap"))
        .option("subscribe", "__client_metrics")
        .option("startingOffsets", "earliest")
        .load()
    )
    return frames.decoded(records)


@dp.materialized_view
def client_rollups() -> DataFrame:
    """Return one row for each minute, client, broker and metric."""
    pushes = frames.first_copies(SparkSession.active().read.table("client_pushes"))
    added = frames.contributions(frames.points_of(pushes, OPTIONS))
    return frames.rolled_up(frames.with_window(added, OPTIONS), OPTIONS)
