"""Parts of a consumer that fetch and decode records.

fetch_link.py     the connection over which a consumer fetches from one broker
fetch_session.py  the client's side of a fetch session (pure)
positions.py      assigned partitions, their positions, and records fetched ahead (pure)
fetched.py        fetched batches of one partition, decoded on demand (pure)
record_batch.py   single records, and batches with lazily decoded columns (pure)
record_decoder.py the choice between decoding by numpy and a scan (pure)
array_columns.py  columns of records located by numpy (pure)
aborted_producers.py  detection of batches that belong to aborted transactions (pure)
offset_lookup.py  look-up of offsets by time
position_reads.py  reads from explicit positions by single requests, for commands and web pages
"""
