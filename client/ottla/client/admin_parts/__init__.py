"""What operators ask, in parts; `ottla.client.admin` puts them together.

admin_calls.py      what every part needs: the cluster, a bound in time, patience
admin_topics.py     topics, partitions, records
admin_configs.py    settings, as they are in force and changed
admin_brokers.py    brokers and their log directories
admin_replicas.py   elections, reassignments, moves between directories, producers
admin_cleaner.py    compaction: how it stands, passes that are asked for, retries
admin_groups.py     groups: who is in them, what they committed
admin_transactions.py  transactional ids, and the end of what hangs
admin_tokens.py     delegation tokens
admin_users.py      users that log in by SCRAM
admin_acls.py       access control entries
admin_telemetry.py  what clients report: subscriptions, who does, what came last
admin_cluster.py    the controllers' quorum, features
"""
