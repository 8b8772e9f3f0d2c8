"""Topics as DataFrames and streams.

source_options.py   the options of a read (pure)
read_options.py     the options that all tasks of a query share (pure)
ranges.py           ranges of offsets, split and grouped into tasks (pure)
batch_reader.py     the reader of a batch query
stream_reader.py    the reader of a stream
shadow.py           commits the progress of streams to groups
offsets.py          positions of a query, the records between two positions, lost records (pure)
cluster_queries.py  the driver's requests to the cluster, as blocking calls
source_check.py     checks a source before a JVM starts
places.py           the start of a query, and the end of a batch query
range_reader.py     reads the ranges of a Spark task as Arrow batches
segment_planner.py  finds copied segments of ranges in an object store, as blocking calls
segment_splits.py   ranges divided into copied segments and the rest (pure)
segment_reader.py   reads copied segments of a Spark task
epoch_ends.py       requests for the ends of leader epochs
range_fetcher.py    fetches the ranges, one request ahead
range_progress.py   the progress of each range (pure)
fetched_batches.py  the batches of a response within a range (pure)
arrow_decode.py     decodes record batches to Arrow batches (pure)
arrow_schema.py     the columns of a topic (pure)
"""
