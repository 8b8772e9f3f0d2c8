"""DataFrames and streams into topics.

sink_options.py       the options of a write, and the columns of its rows (pure)
batch_writer.py       writes a DataFrame to topics
stream_writer.py      writes a streaming query to topics
produce_rows.py       writes the rows of one task, in order
row_sender.py         distributes rows to partitions
record_runs.py        encodes whole columns as records (pure)
task_transactions.py  the transaction of a task, and the committed offset that names its batch
key_hashes.py         hashes all keys of a batch at once (pure)
provenance.py         headers that identify the task and batch that wrote a record (pure)
replays.py            filters records that a repeated task has written again (pure)
"""
