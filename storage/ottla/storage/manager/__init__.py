"""All logs of a broker.

log_manager_driver.py         creates, deletes, finds and checkpoints logs: start here
log_start_driver.py           opens the logs at broker startup, and finds losses
log_recovery_driver.py        opens the logs of one directory
recovery_processes_driver.py  recovers large logs in worker processes
offline_recovery_driver.py    recovers a directory without a broker
log_upkeep_driver.py          periodic checkpoints, flushes and retention of one directory
delayed_removal_driver.py     deletes files after a delay
disk_relief_driver.py         deletes copied segments if a directory is short of free space
log_placement.py              chooses the directory of a new log
log_names_driver.py           names directories of new logs and renames those of deleted ones
name_locks_driver.py          locks that serialise changes of a partition's name
log_moves_driver.py           all moves of logs between directories
log_move_driver.py            one move of a log: copy, then switch
log_checkpoints.py            checkpoint lines of one log
log_cleaning_driver.py        the part of the log manager that the cleaner uses
"""
