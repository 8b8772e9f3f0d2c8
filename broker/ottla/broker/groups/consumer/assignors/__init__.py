"""Assignors: they assign the partitions of a consumer group in the coordinator (KIP-848).

table.py         the assignors by name
subscription.py  the input and the output of an assignor
uniform.py       as balanced as subscriptions allow; members keep their partitions
near.py          exchanges between racks that bring partitions nearer to their members
range.py         consecutive partitions of each topic, so that similar topics are split alike
"""
