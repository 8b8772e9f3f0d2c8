"""Walk on a share partition: leaders, share coordinator and log of one partition of a share group.

share_log.py          the records of the partition, which compaction and retention remove
share_states.py       the share coordinator, and the calls on their way to it
share_deliveries.py   invariants of deliveries and acknowledgements
share_leader.py       one leader of the share partition
share_walk.py         the adversary
"""
