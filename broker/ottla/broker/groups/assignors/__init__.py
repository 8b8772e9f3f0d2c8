"""Which member of a consumer group works on which partition, computed by the coordinator (KIP-848).

table.py         the assignors by the names that members ask for
subscription.py  what an assignor is told, and what it answers
uniform.py       as even as subscriptions allow, and whoever has a partition keeps it
range.py         of each topic a run of neighbours, so that topics alike are split alike
"""
