"""Groups of consumers: who is in them, what each member works on, and how far they have come.

coordinator_driver.py  the shards of groups led here, and their time: start here
shard_coordinator_driver.py  what it has in common with the coordinator of transactions:
                       leadership, loading, resigning, appending
led_shard.py           one of the shards, and what is still to be done for it
log_replay.py          a log read back into its shard
shard.py               the groups of one partition of `__consumer_offsets`
rebalance.py           how members join, get their assignment, stay and leave
classic_group.py       one group of the classic protocol: its members, its generation
classic_member.py      one member
consumer_rebalance.py  how members of the consumer protocol (KIP-848) join, get their work, leave
mixed_group.py         members of the classic protocol in such a group, from the one to the other
embedded_protocol.py   what consumers of the classic protocol tell each other
reconcile.py           how one of them comes from what it has to what it is to get
topic_view.py          the topics there are, and which a regular expression means
consumer_group.py      one group of the consumer protocol: its epochs, who has what
consumer_member.py     one member of it
assignors/             which member works on what, computed for consumer groups
subscription_regex.py  which topics a regular expression subscribes
regex_readers.py       which of them all who subscribe by it may see
consumer_changes.py    every change of it, made and written in one step
consumer_records.py    what its records say, both ways
commit_rules.py        who may commit, and who may fetch as a member
offset_store.py        what groups have committed, and what open transactions may change
offsets.py             the committed offsets
pending_offsets.py     those that wait for the end of their transaction
offset_retention.py    how long that is kept
backlog.py             work that takes longer than one turn may, in steps
target_job.py          the target of a consumer group, computed so
describe.py            what DescribeGroups says of a group
effects.py             what a decision asks of the driver
timer_names.py         what groups wait for
timers.py              deadlines that move often and come seldom
commit_wait.py         answers that wait until what they say is committed
group_records.py       the records of `__consumer_offsets`, in Kafka's formats
group_batches.py       what events decided, as batches of them
placement.py           which partition a group belongs to
group_settings.py      what one group goes by

group_apis.py          registers the APIs
coordinator_door.py    what handlers need of the coordinator
membership_apis.py     JoinGroup, SyncGroup, Heartbeat, LeaveGroup
consumer_group_apis.py ConsumerGroupHeartbeat
offset_apis.py         OffsetCommit, OffsetFetch, OffsetDelete
framed_commits.py      an OffsetCommit of one topic, answered from its frame
topic_committer.py     who commits offsets of which topic, again and again
small_commits.py       an OffsetCommit of few partitions
transactional_offsets.py  TxnOffsetCommit
group_admin_apis.py    DescribeGroups, ListGroups, DeleteGroups
describe_consumers.py  ConsumerGroupDescribe
find_coordinator.py    FindCoordinator, and the offsets topic made for the first group
"""
