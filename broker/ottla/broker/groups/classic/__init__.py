"""Groups of the classic protocol. One member, the leader, computes the assignment of partitions.

classic_groups.py    the `GroupKind` of classic groups
classic_group.py     one group: its members, its generation, its state machine
classic_member.py    one member
rebalance.py         JoinGroup, SyncGroup, heartbeats, leaving: start here
describe_classic.py  the DescribeGroups response of one group
membership_apis.py   JoinGroup, SyncGroup, Heartbeat, LeaveGroup
"""
