"""The bug bank: mutants of our own cores, each of which an engine must find.

mutant.py             what a mutant is, and how a core is patched for a while
bank.py               the table of all of them
hunt.py               plants one and measures how long it lives
voter_bugs.py         of a damaged voter
raft_bugs.py          of the quorum
forgery_bugs.py       that believe what nobody honest would send
metadata_log_bugs.py  of its log on disk
replication_bugs.py   of partitions, followers and idempotent producers
controller_bugs.py    of elections, ELR, ISR changes, reassignments and brokers' lives
storage_bugs.py       of a partition's log
loss_bugs.py          of replicas whose disks lost records
group_bugs.py         of groups
cleaner_bugs.py       of compaction
transaction_bugs.py   of transactions: coordinators, markers, readers, offsets
trouble_bugs.py       of disks in trouble, and of topics whose names are used again
"""
