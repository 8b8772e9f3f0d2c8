"""Commands on topics and settings.

topic.py           `ottla topic`: its options, and where each verb is
change_arguments.py  the options of changes
topic_list.py      `ottla topic list`
quick_list.py      the same where nothing is in its way
topic_rows.py      rows of topics as tables show them
topic_verbs.py     create, describe, delete
topic_changes.py   the changes
unclean_candidates.py  what each candidate of an unclean election lacks
topic_storage.py   `ottla topic storage`: bytes of its replicas
offsets.py         first and last offsets of partitions
config.py          `ottla config`: show, change, compare
config_changes.py  the changes
"""
