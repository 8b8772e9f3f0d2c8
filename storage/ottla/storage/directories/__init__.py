"""One log directory of a process.

log_directory_driver.py   lock, identity and clean marker of a directory: start here
directory_lock_driver.py  the lock file `.lock`
meta_properties.py        the identity file `meta.properties`
clean_shutdown.py         the clean shutdown marker `.kafka_cleanshutdown`
checkpoints_driver.py     offset checkpoints, each line of which belongs to a topic id
checkpoint_file.py        the format of offset checkpoints
checkpoint_topics.py      the side file with the topic ids of checkpoint lines
free_space.py             levels of free space: enough, filling, full
free_space_driver.py      measures the free space and logs its changes
"""
