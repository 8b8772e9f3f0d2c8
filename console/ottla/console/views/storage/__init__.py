"""Pages about the storage of records.

compaction.py  compacted logs, and requests to compact them
retention.py   topics whose records stay longer than their retention
tiers.py       tiered topics, and their copies in an object store
"""
