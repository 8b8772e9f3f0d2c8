"""Tiered storage without a broker.

tier_transfer.py   upload and sequential read of segments, with a limited object store: start here
limited_store.py   an object store with a limited bandwidth
held_loop.py       longest time for which a task held an event loop
"""
