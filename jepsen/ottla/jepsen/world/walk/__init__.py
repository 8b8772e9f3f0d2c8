"""Search engine `walk`: runs of randomly chosen actions without a clock (random walks), one subject
per file or folder.

raft_walk.py, raft_disk.py, raft_disk_log.py            quorums, in memory and over real files
raft_membership.py, raft_recovery.py                    quorums whose voters change
forgeries.py                                            forged messages of a quorum
replication/                                            replicated partitions
controller_walk.py, controller_host.py                  decisions of the shipped controller
feature_walk.py                                         feature levels, and other releases
controller_history.py                                   the controller that replication/ uses
log_walk.py, log_life.py, log_model.py, log_batches.py  one partition's log
log_sequences.py                                        the same with sequences before a crash
group_walk.py, group_members.py                         members of a group, and faults
group_host.py, group_requests.py                        a broker core that coordinates the group
one_disk.py                                             ports of a broker core without tasks
actions.py                                              random choice of the next action
stepping.py, now.py                                     tasks run step by step; immediate disk work
"""
