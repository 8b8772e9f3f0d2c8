"""Faults of a whole cluster, within the guarantees of the protocol.

nemesis.py             concurrent faults and their repair: start here
loss_limit.py          decides which nodes may lose data without breaking a guarantee
cluster_faults.py      base class of the families of faults
disk_troubles.py       disks that fail partially or temporarily, and the required behaviour of nodes
disk_losses.py         disks that have lost acknowledged records when their broker starts
quorum_damages.py      damaged files of a stopped controller
reassignments.py       partitions that move to other brokers
topic_recreations.py   topics that are recreated under the same name, settings that change
share_faults.py        share coordinators without followers, and leaders that miss their succession
tier_faults.py         leaders that die while they copy or delete segments, unclean elections
coordinator_deaths.py  brokers that are killed while they end a transaction
untrusted_clients.py   clients that no broker may serve, and certificates that change
calm.py                requirements whose time limit counts only while no other fault is active
"""
