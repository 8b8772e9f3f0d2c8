"""Reads of copied segments from an object store.

remote_reader_driver.py   batches, offsets by time, aborted transactions: start here
chunk_source_driver.py    chunks of segments: memory, files, then the store, with read-ahead
remote_indexes_driver.py  manifests and indexes of segments: memory, files, then the store
requests_driver.py        requests to the store: limited in number and time, repeated
shared_loads_driver.py    loads that several tasks may await, and that continue without them
cached_files_driver.py    a cache of bounded size, in files
memory_cache.py           a cache of bounded size, in memory
index_sections.py         look-ups in the index sections of a segment
sequential_reads.py       detects sequential readers, and decides how far to read ahead
reader_limits.py          limits of memory, files, requests and time
"""
