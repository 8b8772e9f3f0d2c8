"""What a consumer reads, and has read ahead.

fetch_link.py     a consumer's connection to one broker
fetch_session.py  the asking side of a fetch session (pure)
positions.py      what is read, where it stands, what is fetched ahead (pure)
fetched.py        batches that were fetched, until somebody asks for a record (pure)
record_batch.py   single records, and batches of them whose columns are made when asked for (pure)
record_decoder.py whether arrays find the records, or a scan (pure)
array_columns.py  columns of records that arrays found (pure)
aborted_producers.py  which of them belong to aborted transactions (pure)
offset_lookup.py  offsets by time
"""
