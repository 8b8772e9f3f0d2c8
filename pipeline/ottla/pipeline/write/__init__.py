"""DataFrames and streams into topics.

sink_options.py   everything that may be asked of a write, and the columns of its rows (pure)
batch_writer.py   writes a DataFrame to topics
stream_writer.py  writes a streaming query to topics
produce_rows.py   writes the rows of one task, in order
row_sender.py         deals rows out to partitions
record_runs.py        encodes whole columns as records (pure)
task_transactions.py  the transaction of a task, and the note that its batch is committed
key_hashes.py     the hashes of all keys of a batch at once (pure)
provenance.py     the headers that say which write a record is of (pure)
replays.py        leaves out what a repeated task wrote again (pure)
"""
