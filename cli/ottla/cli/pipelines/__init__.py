"""Commands that process topics in Spark, or export topics as tables without Spark.

pipeline.py            `ottla pipeline`
pipeline_common.py     functions that the verbs of `ottla pipeline` share
pipeline_start.py      checks before Spark starts, and progress of the start
pipeline_run.py        runs a user's own pipeline
pipeline_archive.py    archives topics
pipeline_archive_table.py  archives a topic as an Iceberg or Delta table
pipeline_compact.py    compacts an archive
pipeline_telemetry.py  aggregates client telemetry over time windows
pipeline_lag.py        lag of a streaming query
export.py              exports a topic into Parquet, Iceberg or Delta, without Spark
table.py               maintains exported tables
sql.py                 queries live topics by DuckDB
pipeline_zip.py        a zip of the Python sources, for a Spark cluster
"""
