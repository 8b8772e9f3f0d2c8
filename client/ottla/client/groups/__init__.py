"""Membership of a consumer in a group.

group.py                a consumer's membership, by either protocol
subscription.py         the subscription of a member (pure)
handover.py             assignment and revocation of partitions between two polls of the application
committer.py            commits of offsets, in order and in the background
classic_membership.py   membership by the classic protocol
group_member.py         state machine of the classic protocol: requests and responses (pure)
assignors.py            assignors of the classic protocol (pure)
sticky_user_data.py     user data of the sticky assignors (pure)
consumer_membership.py  membership by the consumer protocol (KIP-848)
consumer_member.py      state machine of the consumer protocol: heartbeats and responses (pure)
coordinator.py          the connection to the coordinator of a group or transactional id
group_offsets.py        requests that fetch and commit the offsets of a group
"""
