"""Reads of copied segments from an object store.

remote_reader_driver.py  batches, offsets by time, aborted transactions: start here
chunk_source_driver.py   chunks of segments: memory, files, then the store, with read-ahead
remote_indexes_driver.py  manifests and indexes of segments: memory, files, then the store
requests_driver.py       requests to the store: bounded in number and time, repeated
shared_loads_driver.py   loads that several tasks wait for, and that outlive their waiters
cached_files_driver.py   files of a bounded cache in one directory
memory_cache.py          recently used values within a bound of bytes
index_sections.py        look-ups in the sections of the indexes
sequential_reads.py      detection of readers that read on, and how far to read ahead of them
reader_limits.py         bounds of memory, files, requests and time
"""
