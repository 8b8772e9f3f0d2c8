"""Commands that show and change topics and settings.

topic.py               `ottla topic`: its options, and the module of each verb
change_arguments.py    options that commands for changes share
topic_list.py          `ottla topic list`
quick_list.py          the fast path of `ottla topic list`
topic_rows.py          rows of topics in tables
topic_verbs.py         create, describe, delete
topic_changes.py       alter, add-partitions, trim, elect
unclean_candidates.py  the records that each candidate of an unclean election lacks
topic_storage.py       `ottla topic storage`: size of each replica
config.py              `ottla config`: show, change, compare
config_changes.py      parses and requests changes of settings
"""
