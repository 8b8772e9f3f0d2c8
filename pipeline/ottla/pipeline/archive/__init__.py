"""Topics as Parquet files.

archive.py            archives topics as Parquet, each record once
archive_directory.py  the lock, the log and the files of an archive
checkpoint.py         the position of a stream in its checkpoint
sink_log.py           the log of Spark's file sink (pure)
compaction_plan.py    selects the small files to merge (pure)
compaction.py         merges small files
backfill.py           adds the missing records of a time span
"""
