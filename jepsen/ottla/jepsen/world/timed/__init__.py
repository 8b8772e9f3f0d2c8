"""Engine B: timed events on a faulty network and faulty disks, one subject a file.

timeline.py   virtual time: what is due, in order, and tasks that sleep in it
net.py        links that delay, drop, repeat, reorder, clog and part
machine.py    a machine: a clock that drifts, a disk that takes its time and fails
raft_node.py  one member of the quorum: the real core over the real metadata log
raft_wire.py  what members of a quorum say to each other
storming.py   one run: a storm, with the points where buggify may strike
timed_raft.py the quorum as a subject
controller_seat.py the active controller on that quorum, and every image it committed
cluster_hosts.py   controllers, brokers, clients and their calls on one timeline
timed_cluster.py   all of them as a subject
"""
