"""Log compaction of a running cluster.

cleaner.py          `ottla cleaner status | run | retry`
cleaner_passes.py   requests compaction passes, and waits until they end
cleaner_targets.py  the replicas that a command names, and their brokers
"""
