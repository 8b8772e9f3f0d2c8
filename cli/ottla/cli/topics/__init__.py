"""Commands on topics and settings.

topic.py           `ottla topic`: create, list, describe, change, delete
topic_changes.py   the changes
topic_storage.py   `ottla topic storage`: bytes of its replicas
offsets.py         first and last offsets of partitions
config.py          `ottla config`: show, change, compare
config_changes.py  the changes
"""
