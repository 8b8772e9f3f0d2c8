"""Tiered storage of this broker's partitions: copies of closed segments in an object store.

remote_reads.py           interface through which requests read copied segments: start here
store_reads_driver.py     implementation of this interface with the object store
remote_fetches.py         reads of copied segments that fetches have started
remote_reads_driver.py    runs reads of copied segments in the background
metadata_topic.py         the topic `__remote_log_metadata`
remote_states.py          metadata of copied segments, as it is loaded from that topic
metadata_topic_driver.py  reads and writes that topic

remote_log_manager.py         decisions about one tiered partition: start here
partition_tier_driver.py      performs these decisions, as the leader or as a follower
remote_log_manager_driver.py  one task for each tiered partition; deleted topics
deleted_topics.py             partitions of deleted topics in a listing of the object store
deleted_topics_driver.py      deletes what deleted topics have left in the object store
segment_storage.py            interfaces of the metadata and of the object store
segment_storage_driver.py     uploads and deletions in the object store
store_check_driver.py         check of an object store that has failed
cluster_objects_driver.py     the cluster's heartbeat in the object store
tier_figures.py               metrics
tier_alarms.py                failures that last, for `ottla status`
tier_opening_driver.py        opens the object store, and reserves the cluster's prefix
broker_tier_driver.py         creates these parts and connects them
"""
