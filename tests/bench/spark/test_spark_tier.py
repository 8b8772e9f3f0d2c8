"""Rows of the benchmark of Spark's reads of copied segments."""

from ottla.bench.spark.spark_tier import BROKERS, DIRECT, PARQUET, ScanCost, rows_of


def test_ratios_are_medians_of_the_rounds() -> None:
    """A slow round slows all readers, so that times of different rounds are not compared."""
    seconds = {DIRECT: [1.0, 10.0, 1.0], BROKERS: [2.0, 20.0, 4.0], PARQUET: [0.5, 5.0, 0.5]}
    found = {
        ("noop", reader): [ScanCost(one, one / 2, 0.1) for one in times]
        for reader, times in seconds.items()
    }
    rows = {row["reader"]: row for row in rows_of(found, 100, 40_000)}
    assert {name: row["of_direct"] for name, row in rows.items()} == {
        DIRECT: 1.0,
        BROKERS: 2.0,
        PARQUET: 0.5,
    }
    assert rows[BROKERS]["of_parquet"] == 4.0
    assert rows[BROKERS]["seconds"] == 4.0
    assert rows[BROKERS]["mb_per_second"] == 1.0
    assert rows[BROKERS]["cluster_cpu_s"] == 0.1
