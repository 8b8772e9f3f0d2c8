"""Mutants (deliberate bugs) in Ottla's own code. A search engine of the simulator must find each of
them.

mutant.py             a mutant, and the temporary patch that applies it
bank.py               the table of all mutants
hunt.py               applies one mutant and measures the time until an engine finds it
voter_bugs.py         mutants of a damaged voter
raft_bugs.py          mutants of the quorum
membership_bugs.py    mutants of changes of the voter set
stuck_quorum_bugs.py  mutants of changes of the voter set after which a quorum is stuck
forgery_bugs.py       mutants of the quorum that accept forged messages
metadata_log_bugs.py  mutants of the metadata log on disk
replication_bugs.py   mutants of partitions, followers and idempotent producers
controller_bugs.py    mutants of elections, ELR, ISR changes, reassignments and registrations
storage_bugs.py       mutants of a partition's log
loss_bugs.py          mutants of the handling of disks that lost records
group_bugs.py         mutants of groups
share_bugs.py         mutants of share groups
cleaner_bugs.py       mutants of compaction
transaction_bugs.py   mutants of transactions: coordinators, markers, readers, offsets
disk_and_topic_bugs.py mutants for failing disks, and for topics whose names are reused
tier_bugs.py         mutants of tiered storage
whole_bugs.py         mutants that only whole clusters reveal
"""
