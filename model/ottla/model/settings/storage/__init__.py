"""Settings of topics, log directories and compaction.

topic.py               settings of one topic, with the broker key of each default
tiered_topics.py       checks of the settings of tiered topics
tier.py                tiered storage: the object store, copies and reads
cleaner.py             compaction of logs
cordoned.py            log directories that get no new replica (KIP-1066)
disks.py               free space below which a node warns
throttled_replicas.py  replicas of a topic whose replication is throttled
"""
