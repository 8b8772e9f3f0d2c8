"""The log cleaner: which logs are compacted when, and what that reads, keeps and writes.

When
cleaner_driver.py        cleans a broker's logs as long as it lives: start here
cleaner_manager.py       which log is next, what pauses one, what becomes of failures
cleanable.py             how much of a log can be cleaned, and whether that is due
log_tasks.py             what the cleaning of a log is asked
cleaning_runner.py       the seam behind which cleanings run
worker_pool_driver.py    cleanings in processes of their own
in_place_driver.py       cleanings in the broker's loop, for simulated brokers

What
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
