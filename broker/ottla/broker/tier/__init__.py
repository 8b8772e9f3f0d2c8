"""Tiered storage of this broker's partitions: copies of closed segments in an object store.

remote_reads.py  interface through which requests read copied segments, and its errors: start here
tier_settings.py          settings of the remote log manager
metadata_topic.py         the topic `__remote_log_metadata`
remote_states.py          metadata of copied segments, as it is loaded from that topic
metadata_topic_driver.py  reads and writes that topic
"""
