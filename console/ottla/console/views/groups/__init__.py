"""Pages of groups of every kind.

group_list.py   the list of all groups, with their kinds and lags
group_page.py   one group of consumers: lag by partition and over time, members
group_reset.py  reset of offsets with a preview, deletions
queues.py       share groups: records in flight, dead letters, resets
queue_redrive.py  moves of dead letters back to their partitions
group_parts.py  addresses and parts that these pages share (pure)
"""
