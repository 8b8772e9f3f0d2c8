"""The files of one partition.

files.py               names of files
segment.py             a `.log` file with its indexes: start here
entry_file.py          the common form of the three indexes
indexes.py             the `.index` and `.timeindex` files
transaction_index.py   the `.txnindex` file
abort_digests.py       digests that reveal a changed `.txnindex`
batch_scan.py          batches of a file, read in blocks and checked
timestamp_lookup.py    look-up of an offset by time
segment_list.py        the list of closed segments that a clean shutdown writes
directory_view.py      contents of a partition's directory
partition_metadata.py  the `partition.metadata` file
epoch_cache.py         start offsets of leader epochs
retention.py           segments that retention deletes
log_config.py          settings of a log
append_info.py         arguments and result of an append
"""
