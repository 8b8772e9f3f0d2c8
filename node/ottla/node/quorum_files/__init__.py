"""Files of a quorum member other than its log, and the handling of damaged files.

member_files.py     start here: opens the files of a voter or a broker
checkpoint_file.py  `voter-checkpoint`: the promises of a voter, written after each flush
log_check.py        check of the log's offsets and epochs, which no CRC covers
snapshot_check.py   check for damaged snapshots of a voter, and whether its log can replace them
voter_opening.py    the state in which a voter may start, given its files; logs what it lost
accepted_loss.py    an operator's decision that a damaged voter may vote again
observer_copy.py    a broker's copy of the metadata, which is fetched again if it is damaged
"""
