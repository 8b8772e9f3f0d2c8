"""Recovery of a partition's log from its directory after any crash.

recovery.py         recovers one directory: start here
sealed_segments.py  compares closed segments with the list that a shutdown wrote
segment_swap.py     replaces segments by a cleaned one
segment_split.py    splits a segment that spans too many offsets for its indexes
"""
