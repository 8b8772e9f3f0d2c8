"""Random walk on a share partition: the leaders, the share coordinator and the log of one partition
that a share group reads.

share_log.py          the records of the partition, which compaction and retention remove
share_states.py       the share coordinator, and the calls in flight to it
share_letters.py      the dead letter topic, and the requests in flight to it
share_deliveries.py   invariants of deliveries and acknowledgements
share_order.py        delays, back-off, keys and priorities, and their invariants
share_leader.py       one leader of the share partition
share_walk.py         the adversary
"""
