"""Tools that read the files of a log without a broker.

readable.py      a read-only file, which is read in blocks
batch_walk.py    iteration over the batches of a `.log` as stored, damaged ones included
dump.py          rows of every file, for display
index_checks.py  comparison of an index with its log
verify.py        consistency check of all files of a partition: start here
"""
