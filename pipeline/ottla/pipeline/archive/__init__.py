"""Topics as Parquet files.

archive.py            topics into Parquet, each record once
archive_directory.py  who may change an archive, its log, its files
checkpoint.py         how far a stream is, by its checkpoint
sink_log.py           the log of Spark's file sink (pure)
compaction_plan.py    which small files become one (pure)
compaction.py         makes them one
backfill.py           adds what an archive lacks of a span of time
"""
