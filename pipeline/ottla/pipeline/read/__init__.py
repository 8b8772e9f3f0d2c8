"""Topics as DataFrames and streams.

source_options.py   everything that may be said to a read (pure)
read_options.py     what every task of a query must know (pure)
ranges.py           offsets of partitions, cut and packed into tasks (pure)
batch_reader.py     the reader of a batch query
stream_reader.py    the reader of a stream
shadow.py           has the progress of streams seen by their groups
offsets.py          where a query stands, what lies between, what was lost (pure)
asking.py           what the driver asks the cluster, in blocking calls
places.py           where a query begins, and where a batch ends
range_reader.py     what a Spark task does: its ranges as Arrow batches
range_fetcher.py    fetches them, one request ahead
range_course.py     how far they are read (pure)
fetched_batches.py  the batches of an answer, as far as a range wants them (pure)
arrow_decode.py     batches of records as Arrow batches (pure)
arrow_schema.py     the columns of a topic (pure)
"""
