"""Share groups (KIP-932): members that consume the same partitions together.

share_rebalance.py       joining, heartbeats, assignment, leaving: start here
share_groups.py          the `GroupKind` of share groups
share_group.py           one group: its members, and the partitions that it consumes
share_member.py          one member
share_changes.py         the changes of a group, applied and written in one step
share_records.py         conversion between a group and its records
share_partitions.py      partitions by the progress of their durable state
partition_states.py      initialisation, reset and deletion of durable states
simple_assignor.py       the assignor
share_group_apis.py      ShareGroupHeartbeat
describe_share_groups.py ShareGroupDescribe
share_offset_apis.py     DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets
end_offsets.py           interface to the end offsets of partitions, for the lag
end_offsets_driver.py    end offsets by ListOffsets at the leaders
"""
