"""Groups of consumers: their members, the assignment of partitions, and committed offsets.

group_coordinator.py   the shards of groups led here, and their deadlines: start here
                       (leadership, appending: `coordinators/shard_coordinator`)
shard.py               the groups of one partition of `__consumer_offsets`
coordinated_group.py   base class of a group of any kind
group_kind.py          the decisions on the groups of one kind: a new kind begins here
classic/               groups of the classic protocol
consumer/              groups of the consumer protocol (KIP-848)
share/                 share groups (KIP-932)
offsets/               committed offsets
group_records.py       the records of `__consumer_offsets`, in Kafka's formats
group_replay.py        replays a partition of `__consumer_offsets` into its shard
group_settings.py      the settings of one group
group_figures.py       counts of the groups that are coordinated here
timer_names.py         the names of a group's deadlines

group_apis.py          registers the APIs
group_admin_apis.py    DescribeGroups, ListGroups, DeleteGroups
"""
