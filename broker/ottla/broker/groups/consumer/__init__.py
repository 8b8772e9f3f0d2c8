"""Groups of the consumer protocol (KIP-848).

consumer_rebalance.py  joining, assignment, heartbeats, leaving: start here
consumer_groups.py     the `GroupKind` of consumer groups
consumer_group.py      one group: its epochs, and the owner of each partition
consumer_member.py     one member
consumer_changes.py    every change of a group, applied and written in one step
consumer_records.py    conversion between a group and its records
reconcile.py           the steps of a member from its current assignment to its target
assigned_group.py      epochs, members and targets, which share groups have too
assigned_changes.py    changes and their records, which share groups have too
target_schedule.py     when a target is computed, and the joins that wait for it
target_job.py          the target assignment of a group, computed in steps
assignors/             the assignors: range and uniform
topic_view.py          the topics of the cluster, and those that match a regular expression
subscription_regex.py  regular expressions of subscriptions, in RE2's syntax
regex_readers.py       the topics visible to the subscribers of a regular expression
mixed_group.py         members of the classic protocol in a consumer group; upgrade, downgrade
embedded_protocol.py   subscriptions and assignments in the format of classic consumers
consumer_group_apis.py ConsumerGroupHeartbeat
describe_consumers.py  ConsumerGroupDescribe
"""
