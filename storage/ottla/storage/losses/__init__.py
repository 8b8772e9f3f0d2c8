"""Losses of records that a broker found at its startup. They are stored on disk until the replica
is complete again.

log_losses.py           comparison of logs with their checkpoints and the metadata image
known_losses_driver.py  the losses of a broker's directories: start here
loss_file.py            the file of one directory
"""
