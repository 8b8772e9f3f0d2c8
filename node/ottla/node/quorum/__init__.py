"""One member of the quorum: its driver, its log, its snapshots.

quorum_driver.py        start here: `open_quorum_member`, which performs the effects of raft
quorum_ports_driver.py  the effects of raft on disk, on waiting requests and on the next tick
metadata_log.py         the replicated log on disk: raft's LogView, snapshots, quorum-state
record_batches.py       conversion between metadata records, batches and changes of an image
log_changes.py          describes committed entries as text
reserved_space.py       disk space that is reserved for the metadata log if its disk is full
image_loader_driver.py  images of the committed records, published to subscribers
snapshot_driver.py      the task that writes snapshots when they are due
snapshot_report.py      report of a snapshot that a client has requested
snapshot_store.py       snapshot files on disk
snapshot_file.py        the contents of a snapshot file
peer_troubles.py        reasons why other members refuse requests or do not respond
quorum_meter.py         rates and latencies of appends, commits and elections
quorum_metrics.py       metrics of the quorum
"""
