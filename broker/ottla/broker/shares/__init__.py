"""Share partitions: delivery of records to the members of share groups (KIP-932).

share_partition.py  delivery state of one share partition, its locks and its writes: start here
delivery_window.py  spans of records with equal delivery state between start and end offset
"""
