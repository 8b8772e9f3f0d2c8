"""Log compaction of a running cluster.

cleaner.py          `ottla cleaner status | run | retry`
cleaner_passes.py   requested compaction passes, until they end
cleaner_targets.py  the replicas that a command names, and their brokers
"""
