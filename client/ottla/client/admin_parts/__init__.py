"""Methods of the admin client, grouped by subject. `ottla.client.admin` combines them in one class.

admin_calls.py      common base class: the cluster, a timeout, retries
admin_topics.py     topics, partitions, records
admin_configs.py    settings: describe and change
admin_brokers.py    brokers and their log directories
admin_replicas.py   elections, reassignments, moves between log directories, producers
admin_cleaner.py    log compaction: state, requested passes, retries
admin_groups.py     groups: members and committed offsets
admin_share_groups.py  share groups: members, start offsets, records that wait
admin_streams_groups.py  groups of Kafka Streams: members and tasks
admin_transactions.py  transactional ids, and the abort of hanging transactions
admin_tokens.py     delegation tokens
admin_users.py      SCRAM credentials of users
admin_acls.py       ACLs
admin_telemetry.py  client telemetry: subscriptions, clients, last pushes
admin_cluster.py    the quorum of controllers, features
"""
