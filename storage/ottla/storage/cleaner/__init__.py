"""The passes of the log cleaner: what compaction reads, keeps and writes.

cleaning_task.py         one cleaning of one partition, its reports, and their lines for a pipe
clean_driver.py          carries a task out, in a worker process or in place: start here
worker_driver.py         a process that carries out tasks for a broker
key_index.py             pass 1: the keys of the dirty section and their largest offsets
batch_filter.py          pass 2: what stays of each batch
record_work.py           the work per record of both passes, plain
array_record_work.py     the same by numpy, for those who have it
record_forms.py          the form of that work: arrays or plain
offset_map.py            each key's largest offset, at 24 bytes a slot
array_offset_map.py      the same as arrays
transactions.py          whose data was aborted, whose markers are needed
batch_bodies.py          records of batches, unpacked, in runs that are worked on together
batch_rewrite.py         the bytes of a batch that changes
legacy_entries.py        what stays of the formats v0 and v1
segment_groups.py        which segments are merged
cleaned_segment.py       the `.cleaned` files of a new segment
cleaning_bench.py        a log cleaned and swapped in, for tests
"""
