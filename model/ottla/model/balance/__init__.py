"""Planner of replica moves that balance a cluster, or that empty a broker before its removal. Pure.

cluster_load.py    input: brokers, partitions, limits
move_plan.py       output: moves, reasons for moves not made, loads before and after
refusals.py        conditions under which nothing, or one partition, may move
bands.py           loads of brokers, and the band around the mean that counts as balanced
domains.py         replicas that share a rack or a host
replica_table.py   replicas of all partitions during the search, and the hard rules
planner.py         the search: start here
pace.py            the throttle, adapted to the latency of producers
plan_text.py       a plan as text, as it is stored in the metadata log
"""
