"""Benchmark of tiered storage without a broker.

small_disk.py      producers on a disk that is smaller than the load, with real clusters
tier_transfer.py   uploads and sequential reads of segments, with a limited object store: start here
limited_store.py   an object store with a limited bandwidth
held_loop.py       measures the longest time for which a task blocked the event loop
"""
