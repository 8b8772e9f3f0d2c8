"""The log cleaner, which compacts logs whose cleanup.policy includes `compact`.

Scheduling

cleaner_driver.py      the cleaner task of a broker: start here
cleaner_manager.py     choice of the next log, pauses, and retries after failures
cleanable.py           the cleanable part of a log, and whether a cleaning is due
log_tasks.py           the cleaning task of one log
cleaning_runner.py     the interface between the cleaner and the processes that run cleanings
worker_pool_driver.py  cleanings in worker processes
in_place_driver.py     cleanings in the broker's event loop, for simulated brokers

Cleaning

cleaning_task.py      a cleaning task, its reports, and their encoding as lines of a pipe
clean_driver.py       performs a task, in a worker process or in place: start here
worker_driver.py      main program of a worker process
key_index.py          pass 1: the keys of the dirty section and their largest offsets
batch_filter.py       pass 2: the part of each batch that is kept
record_work.py        per-record implementation of both passes in plain Python
array_record_work.py  per-record implementation with numpy, if it is installed
record_forms.py       selects the plain or the numpy implementation
offset_map.py         the largest offset of each key, at 24 bytes a slot
array_offset_map.py   the offset map as numpy arrays
transactions.py       aborted data, and the transaction markers that are still needed
batch_bodies.py       decompressed records of batches, in runs that are processed together
batch_rewrite.py      the new bytes of a batch that a cleaning changes
legacy_entries.py     compaction of the message formats v0 and v1
segment_groups.py     groups of segments that are merged
cleaned_segment.py    the `.cleaned` files of a new segment
"""
