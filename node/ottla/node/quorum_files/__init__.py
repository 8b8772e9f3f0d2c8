"""Files of a member of the quorum beside its log, and what is done when they are damaged.

member_files.py     start here: the files of a voter or a broker, opened
checkpoint_file.py  `voter-checkpoint`: what a voter promised, written after each flush
log_check.py        offsets and epochs of the log that no CRC covers
snapshot_check.py   damaged snapshots of a voter, and whether its log goes without them
voter_opening.py    what a voter may do with the files that it finds, logged
accepted_loss.py    an operator's decision that a damaged voter votes again
observer_copy.py    a broker's copy, which is thrown away when it is damaged
"""
