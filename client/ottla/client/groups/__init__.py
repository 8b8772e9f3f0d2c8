"""A consumer's place in a group.

group.py                a consumer's place in a group, by either protocol
subscription.py         what a member wants to read (pure)
handover.py             gives partitions to the application and takes them, between two polls
committer.py            commits in order, in the background
classic_membership.py   a membership by the classic protocol
group_member.py         what its member sends next, and what answers mean to it (pure)
assignors.py            how its members share partitions (pure)
sticky_user_data.py     what sticky assignors tell each other of the past (pure)
consumer_membership.py  a membership by the consumer protocol (KIP-848)
consumer_member.py      what its member says next, and what it is told (pure)
coordinator.py          the way to a group's coordinator
group_offsets.py        committed offsets of a group
"""
