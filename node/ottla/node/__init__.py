"""What controller and broker processes share.

quorum_driver.py         start here: one member of the quorum at work, `open_quorum_member`
quorum_ports_driver.py   its disk, waiting requests and next tick, as raft's effects ask for them
metadata_log.py          the replicated log on disk: raft's LogView, snapshots, quorum-state
reserved_space.py        what is left to the log on a full disk
image_loader_driver.py   what is committed becomes images, and publishers are told
snapshot_store.py        the snapshot files on disk
snapshot_driver.py       when a snapshot is written
snapshot_file.py         a snapshot as bytes
record_batches.py        metadata records as batches, and batches as steps of an image
address_probe.py         the sign that a process is gone, and the seam by which it is found
address_probe_driver.py  the machine's own probe, by TCP
peer_troubles.py         why other members do not work with this one, for people
authorizer_metrics.py    what a node's authorizer decides, at /metrics
quorum_metrics.py        what a member tells of the quorum at /metrics
process_metrics_driver.py  what the kernel and Python know of this process
identity.py              formatting, and who a replica is
properties.py            `.properties` files
private_files_driver.py  files that other users of the machine do not read
seams.py                 what a node stands on
seams_driver.py          what a node of a real machine stands on
clock_driver.py          the machine's time and chance
local_nodes_driver.py    nodes as processes of this machine: started, waited for, ended
forked_process_driver.py  processes that begin with all that this one has imported
secure_cluster_driver.py  certificates, users and settings of a local cluster, `ottla up --secure`
certificate_authority_driver.py  issues certificates under a root of one's own
collector_pause_driver.py  keeps the collector of garbage from walking costly answers
process_driver.py        limits, signals, the garbage collector
"""
