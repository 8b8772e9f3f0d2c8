"""Tiered storage of this broker's partitions: reads of records that only the object store has.

remote_reads.py  interface through which requests read copied segments, and its errors: start here
"""
