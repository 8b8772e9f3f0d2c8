"""Commands on topics and settings.

topic.py           `ottla topic`: its options, and where each verb is
change_arguments.py  the options of changes
topic_list.py      `ottla topic list`
topic_verbs.py     create, describe, delete
topic_changes.py   the changes
topic_storage.py   `ottla topic storage`: bytes of its replicas
offsets.py         first and last offsets of partitions
config.py          `ottla config`: show, change, compare
config_changes.py  the changes
"""
